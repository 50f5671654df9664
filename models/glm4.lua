-- glm4.lua: GLM-4.  The first (glm, GLM-4-9B) has norms before each part, the second (glm4,
-- GLM-4-0414) behind them too; half of each head turns, in neighbouring pairs; gate and up are
-- one tensor.  The defaults are GLM-4-9B-0414.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "glm4",
        params = {
                vocab = 151552, ctx = 32768, n_layer = 40, n_embd = 4096, n_head = 32,
                n_kv_head = 2, head_dim = 128, n_ff = 13696, order = "both", qkv_bias = true,
                fused = true, interleaved = true, rotary = 0.5,
        },
        config = function(c, family)
                return decoder.from_hf(c, config.with({
                        order = family == "glm" and "pre" or "both", out_bias = false, fused = true,
                        interleaved = true,
                }, config.rope(c, { partial_ok = true })))
        end,
        names = function(i)
                local n = decoder.names(i)
                local l = "model.layers." .. i .. "."
                n.att_after, n.mlp_after = l .. "post_self_attn_layernorm",
                l .. "post_mlp_layernorm"
                return n
        end,
}
