-- olmo.lua: OLMo 1, 2 and 3.  The first has layernorm without parameters and clips q, k and v;
-- the others norm each part's result, and all heads of q and k at once; the third has layers
-- that see a window, with rotary positions of their own.  The defaults are OLMo-2-1124-7B.
local config = require "config"
local decoder = require "decoder"

-- Sliding layers of OLMo 3 have other rotary positions than full ones, where only these are scaled.
local function third(c)
        local pattern = config.pattern(config.layer_types(c, 4), c.num_hidden_layers,
                                       c.sliding_window)
        return config.with({
                window = c.sliding_window or 0, pattern = pattern,
                turns = config.letters(pattern, { s = "l", f = "r" }),
                local_theta = config.near_theta(c, 500000.0),
        }, config.rope(c, { part = "full_attention" }))
end

return decoder.file {
        name = "olmo",
        params = {
                vocab = 100352, ctx = 4096, n_layer = 32, n_embd = 4096, n_head = 32,
                n_kv_head = 32, head_dim = 128, n_ff = 11008, eps = 1e-6, norm = "rms",
                order = "post", qk_norm = "all", rope_theta = 500000.0,
        },
        config = function(c, family)
                local one = family == "olmo"
                return decoder.from_hf(c, config.with({
                        norm = one and "plain" or "rms", order = one and "pre" or "post",
                        qk_norm = one and "none" or "all", eps = c.rms_norm_eps or 1e-5,
                        clip = c.clip_qkv or 0.0,
                }, family == "olmo3" and third(c) or config.rope(c)))
        end,
        names = function(i, p)
                local n = decoder.names(i)
                n.mlp_norm = n.att_after
                return n
        end,
}
