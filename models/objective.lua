-- objective.lua: parts of objectives.  m is what `loss` gets.

local o = {}

-- Refuses a parameter below lo or above hi (nil: of any size).
function o.range(p, name, lo, hi)
        if p[name] < lo or hi and p[name] > hi then
                error("parameter '" .. name .. "' is " .. p[name] .. ", but must be at least " .. lo
                      .. (hi and " and at most " .. hi or ""))
        end
end

-- 1 where a target counts (B,T).
function o.counts(m)
        return op.gt(m.targets:cast "f32", -0.5):as "counts"
end

-- The sum of x (B,T) as one number.
function o.total(x)
        return x:reshape { B * T }:sum():reshape {}
end

-- The mean over pairs or groups, one a row, of x (B,1).
function o.row_mean(m, x)
        return (x * m.weight:sum()):reshape { B }:sum():reshape {} * inv_tokens()
end

-- The mean of x (B,T) over the targets that count; x is 0 elsewhere.
function o.mean(x)
        return o.total(x) * inv_tokens()
end

-- The mean over continuations, pairs or groups of the mean over their tokens.
function o.unit_mean(m, x)
        return o.total(x * m.weight) * inv_tokens()
end

-- The logit of each target (B,T), of a target that does not count any one.
local function target_logit(m)
        local t = op.max(m.targets:cast "f32", 0):cast "i32"
        local s = (m.hidden * m.head:gather(t)):sum():reshape { B, T }
        return m.head_bias and s + m.head_bias:gather(t) or s
end

-- log of the sum of exponentials of the logits (B,T).  Of a loss -log p = lse - logit it is the
-- loss and the target's logit, so the logits need not stand in memory.
function o.lse(m)
        if not m.head then return m.logits:logsumexp():reshape { B, T } end
        return (m.nll + target_logit(m)):as "lse"
end

-- The mean of the logits over the vocabulary (B,T): the product with the mean row of the matrix.
function o.mean_logit(m)
        local V = m.logits.shape[m.logits.rank]
        if not m.head then return (m.logits:sum() * (1 / V)):reshape { B, T } end
        local row = m.head:colsum { k = 1 } * (1 / V)
        local s = (m.hidden * row):sum():reshape { B, T }
        return m.head_bias and s + m.head_bias:sum() * (1 / V) or s
end

-- log(1 + e^x), of any x.
function o.softplus(x)
        return x:relu() + ((-x:abs()):exp() + 1):log()
end

-- With what the model's own loss has beside its cross-entropy (balance of experts).
function o.with_extra(m, loss)
        return m.extra and loss + m.extra or loss
end

return o
