-- polychromic.lua: cross-entropy that rewards continuations which differ.
--
--      L = cross-entropy of the completion - w D
--
-- published = false: D is 1 - the mean cosine of the pairs of `samples` continuations of the
-- prompt, each the mean of its last hidden states (the input of the head), computed with a
-- gradient. published = true: D is a number made of the texts, as the published code has it: 1 -
-- the mean cosine of their embeddings (--embedder MODEL), or with metric = "bleu" 1 - Self-BLEU-2,
-- "distinct" distinct-2.  It is a metric: the loss has no gradient of it, and training is that of
-- cross-entropy. The reported loss is the cross-entropy; aux_loss is D.

local o = require "objective"
local texts = require "texts"

-- (B,N,C) of length 1: the mean of x (B,T,C) over the tokens of each continuation; zeros where it
-- has none.
local function pooled(x, member, N)
        local place = {}
        for i = 1, N do place[i] = i end
        local which = const("place", place, { 1, N, 1 })
        local own = op.eq(member:reshape { B, 1, T }, which)                    -- (B,N,T)
        local count = own:sum()                                                 -- (B,N,1)
        local mean = own:matmul(x) / op.max(count, 1)
        return mean * ((mean ^ 2):sum() + 1e-12):rsqrt(), op.gt(count, 0.5)
end

-- 1 - the mean cosine of all pairs of rows of e (B,N,C), which have length 1 or 0.  Of n unit
-- vectors the cosines of all pairs add up to (|sum e|^2 - n) / 2.
local function diversity(e, there, N)
        local C = e.shape[3]
        local n = there:reshape { B, N }:sum()                                  -- (B,1)
        local s = e:transpose { 0, 2, 1 }:sum():reshape { B, C }
        local pairs = op.max(n * (n - 1), 1)
        return (1 - ((s ^ 2):sum() - n) / pairs) * op.gt(n, 1.5)
end

return {
        name = "polychromic",
        params = {
                weight = 0.3,     -- w
                samples = 3,      -- continuations of a prompt
                max_tokens = 64,  -- of each
                temp = 0.9,       -- they are sampled at
                top_p = 0.9,      -- and from so much of the distribution
                every = 1,        -- steps of which the first has them; D is 0 in the others
                published = false,
                metric = "embedding", -- of published: embedding, bleu or distinct
        },
        data = "prompts",
        learn = "completion",
        feeds = { "member", "weight", "diversity" },
        loss = function(m, p)
                o.range(p, "samples", 2)        -- of one there are no pairs
                local ce = o.mean(m.nll):as "ce"
                local d
                if p.published then
                        d = o.unit_mean(m, m.diversity)
                else
                        if not m.hidden then
                                error(
                                        "the logits are not a product of the last hidden states "
                                        .. "and one matrix")
                        end
                        local e, there = pooled(m.hidden, m.member, p.samples)
                        d = o.row_mean(m, diversity(e, there, p.samples))
                end
                d = d:as "diversity"
                return { loss = o.with_extra(m, ce - d * p.weight):as "total", aux_loss = d,
                         ce = ce }
        end,
        group = function(g, p)
                local said = texts.of(g)
                local d = not p.published and 0 or p.metric == "bleu"
                        and 1 - texts.self_bleu(said, 2)
                        or p.metric == "distinct" and texts.distinct(said, 2)
                                or texts.spread(embed(said))
                return { diversity = d, score = p.published and d or nil }
        end,
}
