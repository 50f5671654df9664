-- smoothing.lua: cross-entropy with label smoothing, and the z-loss of PaLM.
--
--      L = mean of (1 - s) (-log p(target)) + s mean over v of (-log p(v))  +  z (log sum exp)^2
--
-- The reported loss is the cross-entropy; aux_loss is L.

local o = require "objective"

return {
        name = "smoothing",
        params = {
                smoothing = 0.1, -- the part of a target's weight that all tokens share
                z = 0.0,         -- weight of the squared normaliser
        },
        loss = function(m, p)
                o.range(p, "smoothing", 0, 1)
                o.range(p, "z", 0)
                local counts = o.counts(m)
                local lse = o.lse(m)
                local each = m.nll * (1 - p.smoothing) + (lse - o.mean_logit(m)) * counts
                        * p.smoothing
                if p.z > 0 then each = each + lse ^ 2 * counts * p.z end
                local loss = o.with_extra(m, o.mean(each)):as "total"
                return { loss = loss, aux_loss = loss, ce = o.mean(m.nll):as "ce" }
        end,
}
