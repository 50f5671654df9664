-- exaone4.lua: EXAONE 4.  Norms behind each part and on each head of q and k; where layers have
-- windows, those without one have no positions.  The defaults are EXAONE-4.0-32B.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "exaone4",
        params = {
                vocab = 102400, ctx = 131072, n_layer = 64, n_embd = 5120, n_head = 40,
                n_kv_head = 8, head_dim = 128, n_ff = 27392, order = "post", qk_norm = "head",
                window = 4096, pattern = "sssf", turns = "rrrn", rope_theta = 1e6,
        },
        config = function(c)
                local pattern = c.sliding_window_pattern
                if not c.layer_types
                        and (not c.sliding_window or math.type(pattern) ~= "integer") then
                        config.refuse("layer_types", nil,
                                      "is needed where sliding_window is null or "
                                      .. "sliding_window_pattern is not a number")
                end
                local types = config.layer_types(c, pattern)
                local letters = config.pattern(types, c.num_hidden_layers, c.sliding_window)
                return decoder.from_hf(c, config.with({
                        order = "post", qk_norm = "head", window = c.sliding_window or 0,
                        pattern = letters,
                        turns = c.sliding_window and config.letters(letters, { s = "r", f = "n" })
                                or "r",
                }, config.rope(c)))
        end,
        names = function(i)
                local n = decoder.names(i)
                n.mlp_norm = n.att_after
                return n
        end,
}
