-- gemma.lua: Gemma 1 and the text part of Gemma 3.  Gains stored less 1, a scaled embedding, GeGLU;
-- the third has norms before and after each part and on each head of q and k, and layers with a
-- window and other rotary positions.  The defaults are gemma-3-1b.
local config = require "config"
local decoder = require "decoder"

local function third(c)
        config.divides(c, "num_attention_heads", "hidden_size")
        local pattern = config.pattern(config.layer_types(c, c.sliding_window_pattern),
                                       c.num_hidden_layers, c.sliding_window)
        return config.with({
                order = "both", qk_norm = "head", act = c.hidden_activation,
                score_scale = c.query_pre_attn_scalar ^ -0.5,
                logit_cap = c.final_logit_softcapping or 0.0, window = c.sliding_window or 0,
                pattern = pattern, turns = config.letters(pattern, { s = "l", f = "r" }),
                local_theta = config.near_theta(c, c.rope_local_base_freq),
        }, config.rope(c, { part = "full_attention" }))
end

return decoder.file {
        name = "gemma",
        params = {
                vocab = 262144, ctx = 32768, n_layer = 26, n_embd = 1152, n_head = 4, n_kv_head = 1,
                head_dim = 256, n_ff = 6912, act = "gelu_tanh", eps = 1e-6, norm = "rms1",
                order = "both", qk_norm = "head", tied = true, embed_scale = 0.0,
                score_scale = 0.0625, rope_theta = 1e6, window = 512, pattern = "sssssf",
                turns = "lllllr",
        },
        config = function(c, family)
                local one = family == "gemma"
                return decoder.from_hf(c, config.with({
                        norm = "rms1", embed_scale = 0.0,
                        -- its first files said so
                        act = c.hidden_act == "gelu" and "gelu_tanh" or c.hidden_act,
                }, one and config.rope(c) or third(c)))
        end,
        names = function(i, p)
                local n = decoder.names(i)
                if p.order == "both" then
                        n.mlp_norm = "model.layers." .. i .. ".pre_feedforward_layernorm"
                end
                return n
        end,
}
