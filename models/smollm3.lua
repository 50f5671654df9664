-- smollm3.lua: SmolLM3.  Llama with layers that have no positions.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "smollm3",
        params = {
                vocab = 128256, ctx = 65536, n_layer = 36, n_embd = 2048, n_head = 16,
                n_kv_head = 4, head_dim = 128, n_ff = 11008, eps = 1e-6, tied = true,
                rope_theta = 5e6, turns = "rrrn",
        },
        config = function(c)
                local window = c.use_sliding_window and c.sliding_window or nil
                local flags, turns = c.no_rope_layers or {}, {}
                if c.no_rope_layers and #flags < c.num_hidden_layers then
                        config.refuse("no_rope_layers", flags,
                                      "should have a number for each of num_hidden_layers, " ..
                                      c.num_hidden_layers)
                end
                local pattern = {}
                for i = 1, c.num_hidden_layers do
                        local flag = flags[i] or (i % c.no_rope_layer_interval == 0 and 0 or 1)
                        if flag ~= 0 and flag ~= 1 then
                                config.refuse("no_rope_layers", flag, "should be 0 or 1")
                        end
                        turns[i] = flag == 1 and "r" or "n"
                        pattern[i] = window and flag == 0 and "s" or "f"
                end
                pattern = table.concat(pattern)
                if c.layer_types then
                        pattern = config.pattern(c.layer_types, c.num_hidden_layers, window)
                end
                return decoder.from_hf(c, config.with({
                        window = window or 0, pattern = pattern, turns = table.concat(turns),
                }, config.rope(c)))
        end,
}
