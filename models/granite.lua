-- granite.lua: Granite 3.  Llama with factors for embeddings, scores, residuals and logits.  The
-- defaults are granite-3.1-2b.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "granite",
        params = {
                vocab = 49155, ctx = 131072, n_layer = 40, n_embd = 2048, n_head = 32,
                n_kv_head = 8, head_dim = 64, n_ff = 8192, tied = true, rope_theta = 5e6,
                embed_scale = 12.0, score_scale = 0.015625, residual_scale = 0.22,
                logit_scale = 0.125,
        },
        config = function(c)
                return decoder.from_hf(c, config.with({
                        embed_scale = c.embedding_multiplier, score_scale = c.attention_multiplier,
                        residual_scale = c.residual_multiplier, logit_scale = 1 / c.logits_scaling,
                }, config.rope(c)))
        end,
}
