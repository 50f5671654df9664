-- limits.lua: one op at a size of its own, wherever a kernel might have room for no more: rows,
-- heads, experts, choices.
local b = require "blocks"

return {
        name = "limits",
        params = { vocab = 11, ctx = 24, n_embd = 8, kind = "softmax", n = 300, k = 2 },
        graph = function(p)
                local ids, targets = b.inputs()
                local V = p.kind == "vocab" and p.n or p.vocab
                local x = b.embedding(ids, "wte", V, p.n_embd, { std = 1 })
                local n, k = p.n, p.k
                local function wide() return b.linear(x, "wide", n, { std = 1, bias = true }) end
                local function narrow(y, s)
                        x = x + b.linear(y, "narrow", p.n_embd, { std = s or 0.3 })
                end
                local function attention(H, K, D, V, o)
                        local q = b.heads(b.linear(x, "q", H * D), "q_heads", H, D)
                        local key = b.heads(b.linear(x, "k", K * D), "k_heads", K, D)
                        local v = b.heads(b.linear(x, "v", K * V), "v_heads", K, V)
                        narrow(q:attention(key, v, { causal = 1, scale = D ^ -0.5 })
                                :reshape { B, T, H * V })
                end
                local kinds = {
                        softmax = function() narrow(wide():softmax() * n ^ 0.5) end,
                        logsumexp = function() x = x + wide():logsumexp() end,
                        sum = function() x = x + wide():silu():sum() * (1 / n) end,
                        rowmax = function() x = x + wide():rowmax() end,
                        argmax = function()
                                x = x + param("t", { n, p.n_embd }, { std = 1 })
                                        :gather(wide():argmax())
                        end,
                        rmsnorm = function()
                                narrow(b.rmsnorm(wide(), "norm", { eps = 1e-5 }), n ^ -0.5)
                        end,
                        layernorm = function()
                                narrow(b.layernorm(wide(), "norm", { eps = 1e-5 }), n ^ -0.5)
                        end,
                        unit = function() narrow(wide():rmsnorm(1e-5), n ^ -0.5) end,
                        topk = function()
                                local best = wide():topk(k)
                                local rows = param("t", { n, p.n_embd }, { std = 1 })
                                        :gather(best:item(1))
                                x = x + rows:reshape { B * T, k, p.n_embd }
                                        :combine(best:reshape { B * T, k })
                                        :reshape { B, T, p.n_embd } * (1 / k)
                        end,
                        colsum = function() narrow(wide() + param("rows", { 3, n }):colsum(1)) end,
                        moe = function()
                                x = x + b.moe(x, { n_expert = n, top_k = k, n_ff = 4,
                                        act = "silu", gated = true, std = 0.5 })
                        end,
                        renorm = function()
                                x = x + b.moe(x, { n_expert = n, top_k = k, n_ff = 4,
                                        act = "silu", gated = false, renorm = true, std = 0.5 })
                        end,
                        wide_moe = function()
                                x = x + b.moe(x, { n_expert = 3, top_k = k, n_ff = n,
                                        act = "silu", gated = true, std = 0.5 })
                        end,
                        heads = function() attention(2, 2, n, n) end,
                        values = function() attention(2, 1, 8, n) end,
                        keys = function() attention(2, 1, n, 8) end,
                        group = function() attention(n, 1, 8, 8) end,
                        table = function()
                                x = x + b.embedding((ids:cast "f32" * (n // p.vocab)):cast "i32",
                                        "t", n, p.n_embd, { std = 1 })
                        end,
                        vocab = function() end,
                        slices = function()                     -- of one value, and of each other
                                local w, y = wide(), 0.0
                                for i = 0, n - 1, k do
                                        y = y + w:slice { axis = 2, start = i, len = 1 } * (i + 1)
                                end
                                x = x + y * (1 / n)
                        end,
                        reads = function()                      -- one map of n values
                                for i = 1, n do
                                        x = x * 0.9 + param("r" .. i, { p.n_embd }, { std = 0.1 })
                                end
                        end,
                        parts = function()                      -- a concat of concats
                                local y = x
                                for i = 2, n do y = y:concat(x * (1 / i)) end
                                narrow(y, n ^ -0.5)
                        end,
                        gates = function()
                                local y = b.linear(x, "u", n, { std = 0.3 }):silu()
                                for i = 1, k do
                                        y = y * b.linear(x, "g" .. i, n, { std = 0.3 }):sigmoid()
                                end
                                narrow(y)
                        end,
                        positions = function()
                                x = x + param("wpe", { n, p.n_embd }, { std = 1 })
                                        :gather(position())
                        end,
                }
                kinds[p.kind]()
                return b.outputs(b.linear(x, "logits", V, { std = 0.3 }), targets)
        end,
}
