-- gate.lua: two products side by side, of which one alone has a bias: a pair of columns reads one
-- value of 16 bits.
local b = require "blocks"

return {
        name = "gate",
        params = { vocab = 65, ctx = 58, n_embd = 64, n_ff = 136 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd)
                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                local gate, up = b.linear(h, "gate", p.n_ff),
                        b.linear(h, "up", p.n_ff, { bias = true })
                x = x + b.linear(gate:sigmoid() * up, "down", p.n_embd)
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
