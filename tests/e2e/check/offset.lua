-- offset.lua: learned positions that begin at the table's third row, or are the last row from there
-- on.
local b = require "blocks"

return {
        name = "offset",
        params = { vocab = 65, ctx = 32, n_layer = 1, n_embd = 16, n_head = 2, tokens = 0,
                rows = 0, bound = false },
        graph = function(p)
                local ids, targets = b.inputs()
                local rows = p.rows > 0 and p.rows or p.ctx + 2
                local at = position() + 2
                if p.bound then at = at:min(fill(rows - 1)) end
                local x, wte =
                        b.embedding(ids, "wte", p.tokens > 0 and p.tokens or p.vocab, p.n_embd)
                local wpe = param("wpe.weight", { rows, p.n_embd })
                x = x + wpe:gather(at:cast "i32")
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
