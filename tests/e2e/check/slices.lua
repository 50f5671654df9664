-- slices.lua: slices of parameters, and of one of several results, have gradients: rows and
-- columns, of three axes, every second, overlapping, the same twice, along two axes; one weight for
-- q, k and v.
local b = require "blocks"

return {
        name = "slices",
        params = { vocab = 65, ctx = 32, n_embd = 24, n_head = 4 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, H = p.n_embd, p.n_head
                local x = b.embedding(ids, "wte", p.vocab, C)
                local function rows(w, i, n) return w:slice { axis = 0, start = i, len = n } end
                local function cols(w, i, n, step)
                        return w:slice { axis = 1, start = i, len = n, step = step }
                end

                local qkv = param("qkv", { 3 * C, C }, { std = 0.2 })
                local q, k, v = rows(qkv, 0, C), rows(qkv, C, C), rows(qkv, 2 * C, C)
                local function by(w) return x:matmul(w, { tb = 1 }) end
                x = x + b.attend(by(q), by(k), by(v), { n_head = H, head_dim = C // H })

                -- rows, one twice, one never; columns too
                local gains = param("gains", { 4, C }, { std = 0.5 })
                x = x:rmsnorm(1e-5) * rows(gains, 1, 1):reshape { C }
                        + rows(gains, 3, 1):reshape { C }
                x = x * rows(gains, 1, 1):reshape { C } + cols(gains, 2, 1):sum():reshape { 4 }
                        :slice { axis = 0, start = 2, len = 1 }

                -- gate and up are every second column
                local wide = param("wide", { C, 2 * C }, { std = 0.2 })
                x = x + x:matmul(cols(wide, 0, C, 2)):silu() * x:matmul(cols(wide, 1, C, 2))
                local over = param("over", { C + 8, C }, { std = 0.2 })
                x = x + x:matmul(rows(over, 0, C)) * x:matmul(rows(over, 5, C))

                local cube = param("cube", { 3, 5, C }, { std = 0.4 })
                local one = cube:slice { axis = 0, start = 1, len = 1 }
                        :slice { axis = 1, start = 2, len = 2 }
                x = x + one:reshape { 2, C }:colsum(1)
                        + cube:slice { axis = 2, start = 3, len = 1 }:reshape { 15, 1 }:colsum(1)

                local values = x:topk(3)  -- the first of two results
                x = x + values:item(0):slice { axis = 2, start = 1, len = 1 }
                local bias = param("bias", { 2 * C }, { uniform = { -1, 1 } })
                local logits =
                        b.linear(x + bias:slice { axis = 0, start = C, len = C }, "logits", p.vocab)
                return b.outputs(logits, targets)
        end,
}
