-- gated.lua: what attention gives is multiplied by a gate that another kernel makes, after q, k and v.
local b = require "blocks"

return {
        name = "gated",
        params = { vocab = 65, ctx = 128, n_layer = 2, n_embd = 64, n_head = 4 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, D = p.n_embd, p.n_embd // p.n_head
                local x = b.embedding(ids, "tok", p.vocab, C)
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, function()
                                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                                local y = b.attend(b.linear(h, "q", C), b.linear(h, "k", C), b.linear(h, "v", C),
                                                   { n_head = p.n_head, head_dim = D })
                                local gate = b.linear(b.rmsnorm(x, "norm_gate", { eps = 1e-5 }), "gate", C)
                                return (x + b.linear(y * gate:sigmoid(), "out", C)):as "sum"
                        end)
                end
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
