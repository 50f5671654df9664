-- views.lua: views of views, which strides alone do not describe: `depth` times heads and their
-- elements change places and become one row again; slices of an axis before the tokens; parts of
-- concats that are made in other shapes; concats of concats; frequencies that are rows and columns
-- of a parameter.
local b = require "blocks"

return {
        name = "views",
        params = { vocab = 65, ctx = 32, n_embd = 24, n_head = 4, depth = 7, kind = "all" },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, H = p.n_embd, p.n_head
                local D = C // H
                local x = b.embedding(ids, "wte", p.vocab, C)
                if p.kind == "all" or p.kind == "turns" then
                        for _ = 1, p.depth do
                                x = x:reshape { B, T, H, D }:transpose { 0, 1, 3, 2 }
                                        :reshape { B, T, C }
                        end
                end
                if p.kind == "slices" then
                        -- (B,H,T,D): stored so at -O0
                        local h = x:reshape { B, T, H, D }:transpose { 0, 2, 1, 3 }:silu()
                        local odd = h:slice { axis = 1, start = 1, len = H // 2, step = 2 }
                        local even = h:square()
                                :slice { axis = 1, start = 0, len = H // 2, step = 2 }
                        local y = (odd + even):transpose { 0, 2, 1, 3 }:reshape { B, T, C // 2 }
                        for i = 1, p.depth do
                                y = y:concat(y:slice { axis = 2, start = i % 3, len = 4 })
                                        :slice { axis = 2, start = 4, len = C // 2 }
                        end
                        x = x + y:concat(y)
                end
                if p.kind == "all" or p.kind == "parts" then
                        local flat = x:reshape { B * T * C }:gelu()
                        local y = flat:reshape { B, T, C }
                        for i = 1, p.depth do
                                y = y:concat(x:silu()):slice { axis = 2, start = i % C, len = C }
                        end
                        x = x + y
                        local z = (x:slice { axis = 2, start = 0, len = 2 }):neg()
                        for i = 1, p.depth do
                                local one = x:slice { axis = 2, start = i % C, len = 1 }
                                z = z:concat(one:square())
                        end
                        x = x + z:sum()
                end
                if p.kind == "all" or p.kind == "freqs" then
                        local rows, columns = param("rows", { 3, D // 2 }, { std = 0.7 }),
                                param("columns", { D // 2, 3 }, { std = 0.7 })
                        x = x:reshape { B, T, H, D }
                        local row = rows:slice { axis = 0, start = 1, len = 1 }
                        x = x:rope(row:reshape { D // 2 })
                        local column = columns:slice { axis = 1, start = 2, len = 1 }
                        x = x:rope(column:reshape { D // 2 }):reshape { B, T, C }
                end
                if p.kind == "all" or p.kind == "expands" then
                        local y = x:reshape { B, T, 1, C }
                        for _ = 1, p.depth do
                                y = y:expand { B, T, 2, C }:reshape { B, T, 2 * C }
                                        :slice { axis = 2, start = C // 2, len = C }
                                        :reshape { B, T, 1, C }
                        end
                        x = x + y:reshape { B, T, C }
                end
                local logits = b.linear(x, "logits", p.vocab)
                -- such slices have no gradient
                if p.kind == "slices" then return { logits = logits } end
                return b.outputs(logits, targets)
        end,
}
