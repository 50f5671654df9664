-- distill.lua: learn another model's distribution (Hinton et al. 2015).
--
--      L = a t^2 KL(softmax(teacher / t) || softmax(logits / t)) + (1 - a) cross-entropy
--
-- both means over the targets that count.  teacher: the logits of --reference MODEL.  The reported
-- loss is the cross-entropy; aux_loss is the KL, before a and t^2.

local o = require "objective"

return {
        name = "distill",
        params = {
                temperature = 2.0, -- t
                alpha = 0.5,       -- a
        },
        feeds = { "teacher" },
        loss = function(m, p)
                o.range(p, "temperature", 0.01)
                o.range(p, "alpha", 0, 1)
                local t = 1 / p.temperature
                local mine, other = m.logits * t, m.teacher * t
                local prob = other:softmax()
                -- sum of prob (log prob - log mine): both normalisers are taken out of the sum
                local kl = (prob * (other - mine)):sum() + mine:logsumexp() - other:logsumexp()
                local mean = o.mean(kl:reshape { B, T } * o.counts(m)):as "kl"
                local ce = o.mean(m.nll):as "ce"
                local loss = mean * (p.alpha * p.temperature ^ 2) + ce * (1 - p.alpha)
                return { loss = o.with_extra(m, loss):as "total", aux_loss = mean, ce = ce }
        end,
}
