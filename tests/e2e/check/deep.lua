-- deep.lua: `n` ops in a row, of one kind: nothing in the compiler may need a stack as deep, or
-- time that is not about n.
local b = require "blocks"

return {
        name = "deep",
        params = { vocab = 11, ctx = 8, n_embd = 6, n = 20000, kind = "maps" },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "wte", p.vocab, p.n_embd)
                local C, half = p.n_embd, p.n_embd // 2
                for i = 1, p.n do
                        if p.kind == "maps" then x = (i % 2 == 0 and x:neg() or x * 0.999)
                        elseif p.kind == "twice" then x = (x + x) * 0.5
                        elseif p.kind == "turns" then
                                x = x:reshape { B, T, half, 2 }:transpose { 0, 1, 3, 2 }
                                        :reshape { B, T, C }
                        elseif p.kind == "slices" then
                                x = x:concat(x):slice { axis = 2, start = 1, len = C }
                        elseif p.kind == "chain" then x = x:slice { axis = 2, start = 0, len = C }
                        elseif p.kind == "norms" then x = x:rmsnorm(1e-5)
                        elseif p.kind == "wider" then
                                x = x:concat(ids:cast "f32":reshape { B, T, 1 } * i)
                        elseif p.kind == "linears" then
                                x = x:matmul(param("w" .. i, { C, C }, { std = 0.5 }), { tb = 1 })
                        end
                end
                if p.kind == "wider" then x = x:slice { axis = 2, start = 2, len = C } end
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
