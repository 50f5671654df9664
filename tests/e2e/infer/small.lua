-- small.lua: one block, for tests that compare plans byte by byte.
local b = require "blocks"

return {
        name = "small",
        params = { vocab = 31, ctx = 24, width = 16, heads = 2 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.width)
                local rope = b.rope(p.width // p.heads, 10000.0)
                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                h = b.self_attention(h,
                        { n_head = p.heads, head_dim = p.width // p.heads, rope = rope })
                x = (x + h):as "sum"
                h = b.gated_mlp(x, { n_ff = 40, act = "silu" })
                return b.outputs(b.linear(x + h, "logits", p.vocab), targets)
        end,
}
