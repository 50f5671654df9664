-- cohere.lua: Cohere's Command R (Cohere) and Command R7B, A (Cohere2).  Layernorm without bias,
-- attention and MLP side by side, neighbouring rotary pairs, scaled logits; Cohere2 has windows,
-- and positions in the layers with a window alone.  The defaults are Command R7B.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "cohere",
        params = {
                vocab = 256000, ctx = 132096, n_layer = 32, n_embd = 4096, n_head = 32,
                n_kv_head = 8, head_dim = 128, n_ff = 14336, norm = "gain", order = "parallel",
                tied = true, interleaved = true, logit_scale = 0.25, rope_theta = 50000.0,
                window = 4096, pattern = "sssf", turns = "rrrn",
        },
        config = function(c, family)
                local windows = {}
                if family == "cohere2" then
                        local types = config.layer_types(c, c.sliding_window_pattern)
                        local pattern = config.pattern(types, c.num_hidden_layers, c.sliding_window)
                        windows = { window = c.sliding_window or 0, pattern = pattern,
                                    turns = config.letters(pattern, { s = "r", f = "n" }) }
                end
                if c.head_dim and c.head_dim ~= c.hidden_size // c.num_attention_heads then
                        config.refuse("head_dim", c.head_dim,
                                      "should be hidden_size over num_attention_heads")
                end
                return decoder.from_hf(c, config.with(config.with({
                        norm = "gain", order = "parallel", interleaved = true,
                        logit_scale = c.logit_scale, qk_norm = c.use_qk_norm and "heads" or "none",
                }, windows), config.rope(c)))
        end,
}
