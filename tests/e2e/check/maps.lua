-- maps.lua: elementwise ops in long chains, operands stretched along every axis,
-- values read twice, several results of one kernel, dropout between, choices.
local b = require "blocks"

return {
        name = "maps",
        params = { vocab = 65, ctx = 33, width = 15, heads = 3, dropout = 0.0 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, H = p.width, p.heads
                local D = C // H
                local x, table = b.embedding(ids, "tok", p.vocab, C, { std = 0.5 })
                x = x + b.positions("pos", p.ctx, C, { std = 0.2 })

                -- stretched: a scalar, (1), (C), (B,T,1) on the left, (H,1) and (1,D) of heads
                local s = param("s", {}, { value = 0.7 })
                local one = param("one", { 1 }, { value = 1.1 })
                local row = param("row", { C }, { value = 0.4 })
                local gate = b.linear(x, "gate", 1, { bias = true, std = 0.3 }):sigmoid()
                x = gate * (x * s + row) - one / (x:square() + 2)
                local heads = x:reshape { B, T, H, D }
                local per_head, per_dim = param("per_head", { H, 1 }, { std = 0.5 }),
                        param("per_dim", { 1, D }, { std = 0.5 })
                x = (heads * per_head + (per_dim - heads):tanh()):reshape { B, T, C }

                -- everything once, where it is defined and smooth enough
                local y = (x:abs() + 0.5):sqrt() + (x:square() + 1):rsqrt()
                        + (x:square() + 3):recip()
                y = y + x:exp():log() + x:sin() * x:cos() + x:erf() - x:gelu() + x:gelu_tanh()
                        - x:silu() + x:relu() ^ 2
                y = op.where(op.gt(x, x:neg() * 0.3), y, x * 2) + op.max(x, row)
                        - op.min(y * 0.5, x)
                y = b.dropout(y, p.dropout)

                -- a norm whose input is wanted too, its output read twice, an interleave
                local n = (x + y):rmsnorm(1e-5)
                local m = (n * row):layernorm(1e-5)
                local both = op.interleave(n:silu(), m)                 -- (B,T,2C)
                local twice = both:slice { axis = 2, start = 1, len = C, step = 2 } * n
                local parts = op.concat(twice, b.dropout(m, p.dropout), gate)
                local mixed = b.linear(parts, "mix", C, { bias = true, std = 0.2 })

                -- rows: softmax, logsumexp, the best three and their places
                local soft = mixed:softmax()
                local best = soft:topk(3)
                local again = b.linear(best / best:sum(), "best", C, { std = 0.5 })
                        + table:gather(best:item(1)):reshape { B * T, 3 * C }
                                :matmul(param("choice.weight", { C, 3 * C }, { std = 0.1 }),
                                        { tb = 1 }):reshape { B, T, C }
                mixed = mixed + again - mixed:logsumexp() * soft
                        + table:gather(mixed:argmax()):reshape { B, T, C }
                return b.outputs(mixed:matmul(table, { tb = 1 }):as "logits", targets)
        end,
}
