-- starcoder2.lua: StarCoder2.  Layernorm, an MLP of two linears, biases, a window.  The defaults
-- are starcoder2-3b.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "starcoder2",
        params = {
                vocab = 49152, ctx = 16384, n_layer = 30, n_embd = 3072, n_head = 24, n_kv_head = 2,
                head_dim = 128, n_ff = 12288, act = "gelu_tanh", norm = "layer", gated = false,
                tied = true, window = 4096, qkv_bias = true, out_bias = true, mlp_bias = true,
                rope_theta = 999999.44,
        },
        config = function(c)
                return decoder.from_hf(c, config.with({
                        norm = "layer", gated = false, eps = c.norm_epsilon,
                        window = c.sliding_window or 0, qkv_bias = c.use_bias,
                        out_bias = c.use_bias, mlp_bias = c.use_bias,
                }, config.rope(c)))
        end,
        names = function(i)
                local m = "model.layers." .. i .. ".mlp."
                local n = decoder.names(i)
                n.up, n.down = m .. "c_fc", m .. "c_proj"
                return n
        end,
}
