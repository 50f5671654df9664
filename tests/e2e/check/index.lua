-- index.lua: one index of a graph's own making (-D how), and what picks by it.
local b = require "blocks"

return {
        name = "index",
        params = { vocab = 20, ctx = 16, n_embd = 8, how = "square", rows = 20 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "wte", p.vocab, p.n_embd)
                local f, how = ids:cast "f32", p.how
                local flat, slots = x:reshape { B * T, p.n_embd }, ids:reshape { B * T }
                local w = param("w", { p.rows, p.n_embd, p.n_embd }, { std = 0.3 })
                local table = param("table", { p.rows, p.n_embd }, { std = 0.5 })
                local function pick(at) x = x + table:gather(at) end
                local function experts(perm, offs)
                        x = x + flat:expert_matmul(w, perm, offs, { adiv = 1, scatter = 1 })
                                :reshape { B, T, p.n_embd }
                end
                if how == "far" then pick(f:offset(-1000000):cast "i32")
                elseif how == "before" then pick((f - 1):cast "i32")
                elseif how == "behind" then pick((f + 1):cast "i32")
                elseif how == "square" then pick((f * f):cast "i32")
                elseif how == "float" then pick((x:sum():reshape { B, T } * 1e9):cast "i32")
                elseif how == "nan" then pick((f * 0 - 1):sqrt():cast "i32")
                elseif how == "bounded" then
                        pick((x:sum():reshape { B, T } * 1e9):max(fill(0))
                                :min(fill(p.rows - 1)):cast "i32")
                elseif how == "const" then
                        x = x + table:gather(const("at", { 0, 3, p.rows }):cast "i32"):colsum(1)
                elseif how == "same" then
                        local perm = slots:bucket(p.rows)
                        experts(perm, perm:item(1))
                elseif how == "any" then
                        local perm = (f * f):cast "i32":reshape { B * T }:bucket(p.rows)
                        experts(perm, perm:item(1))
                elseif how == "perm" then experts(slots, slots:bucket(p.rows):item(1))
                elseif how == "other" then
                        experts(slots:bucket(p.rows), f:neg():max(fill(0)):cast "i32"
                                :reshape { B * T }:bucket(p.rows):item(1))
                elseif how == "buckets" then
                        local perm = slots:bucket(p.rows - 1)
                        x = x + perm:cast "f32":reshape { B, T, 1 }
                end
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
