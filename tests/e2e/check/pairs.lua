-- pairs.lua: rotary pairs beside columns of odd width: in one linear's result, after a norm of rows
-- that lie at an odd stride, and in a gradient of values wider than keys.
local b = require "blocks"

return {
        name = "pairs",
        params = { vocab = 65, ctx = 24, n_embd = 12, odd = 21 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, N = p.n_embd, p.odd
                local x, table = b.embedding(ids, "tok", p.vocab, C, { std = 0.5 })
                local function rope(y, H, D)
                        return y:reshape { B, T, H, D }:rope(b.rope(D, 100.0).freq)
                                :reshape { B, T, H * D }
                end
                local function out(y, ...)
                        return x + b.linear(op.concat(y, ...), "out", C, { std = 0.2 })
                end
                x = scope("beside", function()
                        local y = b.linear(b.rmsnorm(x, "norm", { eps = 1e-5 }), "y",
                                12 + N, { std = 0.3 })
                        return out(scope("turned", rope, b.part(y, "turned", 0, 12), 3, 4),
                                b.part(y, "rest", 12, N):gelu())
                end)
                x = scope("after", function()
                        local y = b.linear(b.rmsnorm(x, "norm", { eps = 1e-5 }), "y",
                                8 + N, { std = 0.3 })
                        local q = b.part(y, "part", 0, 8):rmsnorm(1e-5):as "row"
                        return out(scope("turned", rope, q, 1, 8), b.part(y, "rest", 8, N))
                end)
                x = scope("wide", function()
                        local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                        local q, k = b.linear(h, "q", 48, { std = 0.25 }),
                                b.linear(h, "k", 8, { std = 0.25 })
                        local v = b.heads(b.linear(h, "v", N, { std = 0.25, bias = true }),
                                "v_heads", 1, N)
                        q = scope("q", rope, q, 6, 8):reshape { B, T, 6, 8 }
                        k = scope("k", rope, k, 1, 8):reshape { B, T, 1, 8 }
                        local y = q:attention(k, v, { causal = 1, scale = 8 ^ -0.5 }):as "att"
                        return out(y:reshape { B, T, 6 * N })
                end)
                return b.outputs(x:rmsnorm(1e-5):matmul(table, { tb = 1 }):as "logits", targets)
        end,
}
