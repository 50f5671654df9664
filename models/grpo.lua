-- grpo.lua: group relative policy optimisation (Shao et al. 2024).
--
--      A = (r - mean r) / (std r + 1e-4)  within the continuations of a prompt
--      ratio = p / p_old,  d = log p_ref - log p
--      L = mean of  -min(ratio A, clip(ratio, 1 - e, 1 + e) A) + b (exp d - d - 1)
--
-- the mean over continuations of the mean over their tokens, or over all tokens (per_token).  p_old
-- has the weights that sampled, p_ref none of the adapters, or is --reference MODEL.  The reward
-- here, the share of a text's words that are different, is a stand-in: an objective of your own
-- has its own.  aux_loss is the mean of exp d - d - 1.

local o = require "objective"
local texts = require "texts"

return {
        name = "grpo",
        params = {
                samples = 8,      -- continuations of a prompt
                max_tokens = 64,  -- of each
                temp = 1.0,       -- they are sampled at
                top_p = 1.0,      -- and from so much of the distribution
                updates = 1,      -- steps that learn from the same samples
                clip = 0.2,       -- e
                beta = 0.04,      -- b
                per_token = false,
        },
        data = "prompts",
        feeds = { "advantage", "old", "reference", "weight" },
        loss = function(m, p)
                o.range(p, "samples", 2)        -- of one, the advantage is 0
                o.range(p, "clip", 0)
                o.range(p, "beta", 0)
                local counts = o.counts(m)
                local logp = -m.nll
                local ratio = ((logp - m.old) * counts):exp()
                local clipped = op.min(op.max(ratio, 1 - p.clip), 1 + p.clip)
                local gain = op.min(ratio * m.advantage, clipped * m.advantage)
                local d = (m.reference - logp) * counts
                local kl = d:exp() - d - 1
                local function mean(x)
                        return p.per_token and o.mean(x) or o.unit_mean(m, x)
                end
                return {
                        loss = (mean(kl * counts) * p.beta - mean(gain * counts)):as "total",
                        aux_loss = mean(kl * counts):as "kl",
                }
        end,
        reward = function(c, p)
                return texts.distinct({ c.text }, 1)
        end,
        group = function(g, p)
                return { advantage = texts.advantages(g) }
        end,
}
