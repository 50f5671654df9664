-- indices.lua: rows picked by indices that the graph computes, at random (-D seed): sums, products,
-- quotients, casts, NaN, what comes of parameters; in range, beyond either end, or not a number at
-- all.  What picks is a gather, experts, a loss.
-- exact: of small whole numbers alone, so that values can be compared.  mix: of other tokens too,
-- for --mode train.
local b = require "blocks"

return {
        name = "indices",
        params = { vocab = 13, ctx = 12, n_embd = 8, seed = 1, depth = 3, picks = 3,
                exact = false, mix = false },
        graph = function(p)
                local ids, targets = b.inputs()
                local state = p.seed * 7919 + 12345
                local function random(n)                -- 0 .. n - 1
                        state = (state * 1103515245 + 12345) % 2147483648
                        return (state // 65536) % n
                end
                local x, aim = b.embedding(ids, "wte", p.vocab, p.n_embd), ids
                local wild = p.exact and { -9, -3, -1, 0, 1, 2, 4, 100 }
                        or { -1e30, -3e9, -1000, -1.5, -1, -0.4, 0, 0.5, 1, 2, 7.3, 1e4, 3e9, 1e38 }
                local function leaf()
                        local k = random(6)
                        if k == 0 then return ids:cast "f32"
                        elseif k == 1 then return position():cast "f32"
                        elseif k == 2 and not p.exact then
                                return x:sum():reshape { B, T } * wild[random(#wild) + 1]
                        elseif k == 3 then return x:argmax():cast "f32"
                        elseif k == 4 then return aim:cast "f32"
                        else return fill(wild[random(#wild) + 1]):expand { B, T } end
                end
                local function value(depth)
                        if depth == 0 then return leaf() end
                        local k, a = random(16), value(depth - 1)
                        -- whole numbers
                        if p.exact then
                                k = ({ 0, 1, 2, 0, 4, 5, 6, 1, 2, 9, 10, 11, 12, 6, 14, 15 })[k + 1]
                        end
                        if k == 0 then return a + value(depth - 1)
                        elseif k == 1 then return a - value(depth - 1)
                        elseif k == 2 then return a * value(depth - 1)
                        elseif k == 3 then return a / value(depth - 1)
                        elseif k == 4 then return a * wild[random(#wild) + 1]
                        elseif k == 5 then return a + wild[random(#wild) + 1]
                        elseif k == 6 then return a:neg()
                        elseif k == 7 then return a:abs():log()         -- NaN and infinities
                        elseif k == 8 then return a:sqrt()
                        elseif k == 9 then return a:cast "i32":cast "f32"
                        elseif k == 10 then return a:max(value(depth - 1))
                        elseif k == 11 then return a:min(value(depth - 1))
                        elseif k == 12 then return op.where(op.gt(a, leaf()), a, value(depth - 1))
                        elseif k == 13 then return a:sin() * 5
                        elseif k == 14 then return a:square()
                        else return op.max(op.min(a, fill(5)), fill(0)) end
                end
                -- what is surely beyond a table is refused: the sum is unknown, whatever is added
                local function index()
                        local at = value(random(p.depth + 1))
                        return (random(4) > 0 and at + x:argmax():cast "f32" or at):cast "i32"
                end
                for i = 1, p.picks do
                        local name, k, at = "pick" .. i, random(4), index()
                        local rows = 1 + random(6)
                        if k == 0 then
                                x = x + param(name, { rows, p.n_embd }, { std = 0.5 }):gather(at)
                        elseif k == 1 then  -- rows in order of what was computed, back again
                                local perm = at:reshape { B * T }:bucket(rows)
                                local y = x:reshape { B * T, p.n_embd }
                                local w = param(name, { rows, p.n_embd, p.n_embd }, { std = 0.3 })
                                y = y:expert_matmul(w, perm, perm:item(1),
                                        { adiv = 1, scatter = 1 })
                                x = x + y:reshape { B, T, p.n_embd }
                        elseif k == 2 then              -- an index of an index
                                x = x + param(name, { rows, p.n_embd }, { std = 0.5 }):gather(
                                        const(name .. ".next", { 0, rows - 1, 1 % rows })
                                                :gather(at):cast "i32")
                        elseif p.mix then
                                x = x + x:reshape { B * T, p.n_embd }:gather(at:reshape { B * T })
                                        :reshape { B, T, p.n_embd }
                        end
                end
                local logits = b.linear(x, "logits", p.vocab)
                aim = targets                           -- for the loss's own index
                local loss = (logits:ce(targets) + logits:ce(index())):reshape { B * T }
                return { logits = logits, loss = loss:colsum(1) * (1 / 14) }
        end,
}
