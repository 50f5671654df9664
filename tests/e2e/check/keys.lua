-- keys.lua: of one product that makes q, k and v, another kernel than attention reads k.
local b = require "blocks"

return {
        name = "keys",
        params = { vocab = 65, ctx = 128, n_layer = 2, n_embd = 64, n_head = 4 },
        graph = function(p)
                local ids, targets = b.inputs()
                local C, D = p.n_embd, p.n_embd // p.n_head
                local x = b.embedding(ids, "tok", p.vocab, C)
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, function()
                                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                                local qkv = b.linear(h, "qkv", 3 * C)
                                local q, k = b.part(qkv, "q", 0, C), b.part(qkv, "k", C, C)
                                local y = b.attend(q, k, b.part(qkv, "v", 2 * C, C), { n_head = p.n_head, head_dim = D })
                                local more = b.linear(b.rmsnorm(k, "norm_k", { eps = 1e-5 }), "more", C)
                                return (x + b.linear(y, "out", C) + more):as "sum"
                        end)
                end
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
