-- stablelm.lua: StableLM 2 and 3B.  Layernorm, a part of each head turns, perhaps both parts of a
-- layer side by side and a norm for each head of q and k.  The defaults are stablelm-2-1_6b.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "stablelm",
        params = {
                vocab = 100352, ctx = 4096, n_layer = 24, n_embd = 2048, n_head = 32,
                n_kv_head = 32, head_dim = 64, n_ff = 5632, norm = "layer", qkv_bias = true,
                rotary = 0.25,
        },
        config = function(c)
                return decoder.from_hf(c, config.with({
                        norm = "layer", order = c.use_parallel_residual and "parallel" or "pre",
                        qkv_bias = c.use_qkv_bias, qk_norm = c.qk_layernorm and "each" or "none",
                }, config.rope(c, { partial_ok = true })))
        end,
        names = function(i)
                local n = decoder.names(i)
                local a = "model.layers." .. i .. ".self_attn."
                n.q_norm, n.k_norm = a .. "q_layernorm", a .. "k_layernorm"
                return n
        end,
}
