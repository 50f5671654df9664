-- parts.lua: parts of columns that a kernel takes in pairs: of every second column, of twice as
-- many that interleave makes, of every second of these; pairs that the backward pass makes again.
local b = require "blocks"

return {
        name = "parts",
        params = { vocab = 65, ctx = 24, n_embd = 24 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C = p.n_embd
                local x, table = b.embedding(ids, "tok", p.vocab, C, { std = 0.5 })
                local gain = param("gain", { C }, { std = 0.5 })
                local sum = x
                local function from(y, start, len, step)
                        return y:slice { axis = 2, start = start, len = len, step = step }
                end
                local function wide(name, n) return b.linear(x, name, n, { std = 0.2 }) end
                local function add(name, y) sum = sum + b.linear(y, name, C, { std = 0.2 }) end

                for _, start in ipairs { 0, 6, 24 } do -- of every second column, and every second
                        local y = from(wide("half" .. start, 4 * C), 1, 2 * C, 2):sin()
                        add("half_part" .. start, from(y, start, C):silu())
                        add("half_odd" .. start, from(y, start + 3, 9):silu())
                        add("half_half" .. start, from(y, 1, C, 2):silu())
                end
                local values = { wide("a", C), x:silu(), x:rmsnorm(1e-5), wide("m", C):softmax() }
                for i, y in ipairs(values) do
                        local t = op.interleave(y * 2, x * gain)
                        add("twice_part" .. i, from(t, 0, C):silu() + from(t, C, C))
                        add("twice_and_once" .. i, from(t, 0, C) + y) -- equal numbers of columns
                        add("twice_half" .. i, from(t, 1, C, 2) + y)
                        add("twice_twice" .. i, from(op.interleave(t, t:sin()), 2, C))
                end
                -- every second column of rows at an odd stride; and beside the value itself, so
                -- that a gradient is interleaved with zeros
                local odd = wide("odd", 4 * C + 5)
                local row = from(odd, 1, 18):softmax()
                add("odd_half", from(row * 3, 1, 9, 2) * param("odd_gain", { 9 }, { std = 0.5 }))
                local h = from(odd, 20, C)
                add("zeros", op.interleave(from(h, 1, C // 2, 2), wide("other", C // 2)) + h)
                add("zeros_too", h:silu())
                -- a part of pairs, then every second one of it; pairs of a part
                local t = op.interleave(h:silu(), x * gain)
                add("part_half", from(from(t, 8, 24), 1, 12, 2):gelu())
                add("part_pairs", op.interleave(from(h:sin(), 6, 12), from(x, 0, 12)))
                local s = x * 2
                local again = op.interleave(s, op.min(s, gain)):gelu() -- of no trained weight
                sum = sum + s + again:matmul(
                        param("out", { C, 2 * C }, { std = 0.2, trainable = false }), { tb = 1 })
                return b.outputs(sum:rmsnorm(1e-5):matmul(table, { tb = 1 }):as "logits", targets)
        end,
}
