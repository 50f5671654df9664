-- ernie.lua: ERNIE 4.5, the dense ones.  Llama with neighbouring rotary pairs.  The defaults are
-- ERNIE-4.5-0.3B.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "ernie",
        params = {
                vocab = 103424, ctx = 131072, n_layer = 18, n_embd = 1024, n_head = 16,
                n_kv_head = 2, head_dim = 128, n_ff = 3072, tied = true, interleaved = true,
                rope_theta = 500000.0,
        },
        config = function(c)
                local bias = c.use_bias or false
                return decoder.from_hf(c, config.with({
                        interleaved = true, qkv_bias = bias, out_bias = bias, mlp_bias = bias,
                }, config.rope(c)))
        end,
}
