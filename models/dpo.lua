-- dpo.lua: direct preference optimisation (Rafailov et al. 2023).
--
--      margin = b ((log p - log p_ref)(chosen) - (log p - log p_ref)(rejected))
--      L = mean over pairs of  -(1 - s) log sigmoid(margin) - s log sigmoid(-margin)
--
-- A row holds a pair, as two documents; log p is the sum over an answer's tokens.  p_ref is the
-- model with its adapters off, or --reference MODEL.  aux_loss is the mean margin.

local o = require "objective"

return {
        name = "dpo",
        params = {
                beta = 0.1,      -- b: how far the model may go from the reference
                smoothing = 0.0, -- s: how often a pair is thought to be the wrong way round
        },
        data = "pairs",
        feeds = { "reference", "side", "weight" },
        loss = function(m, p)
                o.range(p, "beta", 0)
                o.range(p, "smoothing", 0, 1)
                -- side: 1 in chosen, -1 in rejected, 0 elsewhere
                local gain = (-m.nll - m.reference) * m.side
                local margin = gain:sum() * p.beta                              -- (B,1)
                local each = o.softplus(-margin) * (1 - p.smoothing)
                if p.smoothing > 0 then each = each + o.softplus(margin) * p.smoothing end
                return { loss = o.row_mean(m, each):as "total",
                         aux_loss = o.row_mean(m, margin):as "margin" }
        end,
}
