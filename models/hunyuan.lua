-- hunyuan.lua: HunYuan's dense models.  Llama with norms on each head of q and k, behind rotary
-- positions.  The defaults are Hunyuan-7B.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "hunyuan",
        params = {
                vocab = 128167, ctx = 32768, n_layer = 32, n_embd = 4096, n_head = 32,
                n_kv_head = 8, head_dim = 128, n_ff = 14336, tied = true, qk_norm = "head",
                qk_norm_last = true,
        },
        config = function(c)
                if not c.head_dim then config.refuse("head_dim", nil, "is needed") end
                local rope = config.rope(c)
                local alpha = c.rope_scaling.alpha or c.rope_parameters.alpha
                -- of any length: a larger theta
                if alpha and rope.rope_scaling == "dynamic" then
                        local D = c.head_dim
                        if D < 4 then config.refuse("head_dim", D, "is too small for alpha") end
                        rope.rope_theta, rope.rope_scaling = rope.rope_theta
                                * alpha ^ (D / (D - 2)), "none"
                end
                return decoder.from_hf(c, config.with({ qk_norm = "head", qk_norm_last = true },
                                                      rope))
        end,
        names = function(i)
                local n = decoder.names(i)
                local a = "model.layers." .. i .. ".self_attn."
                n.q_norm, n.k_norm = a .. "query_layernorm", a .. "key_layernorm"
                return n
        end,
}
