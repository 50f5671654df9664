-- apart.lua: one token's attention in a launch of its own on every GPU: what it gives is multiplied
-- by a gate that another kernel makes, after q, k and v; or, with keys=true, another kernel than
-- attention reads k of the product that makes all three.
local b = require "blocks"

local function gated(x, h, C, heads)
        local y = b.attend(b.linear(h, "q", C), b.linear(h, "k", C), b.linear(h, "v", C), heads)
        local gate = b.linear(b.rmsnorm(x, "norm_gate", { eps = 1e-5 }), "gate", C)
        return x + b.linear(y * gate:sigmoid(), "out", C)
end

local function keys(x, h, C, heads)
        local qkv = b.linear(h, "qkv", 3 * C)
        local q, k = b.part(qkv, "q", 0, C), b.part(qkv, "k", C, C)
        local y = b.attend(q, k, b.part(qkv, "v", 2 * C, C), heads)
        local more = b.linear(b.rmsnorm(k, "norm_k", { eps = 1e-5 }), "more", C)
        return x + b.linear(y, "out", C) + more
end

return {
        name = "apart",
        params = { vocab = 65, ctx = 128, n_layer = 2, n_embd = 64, n_head = 4, keys = false },
        graph = function(p)
                local ids, targets = b.inputs()
                local C = p.n_embd
                local block, heads = p.keys and keys or gated,
                        { n_head = p.n_head, head_dim = C // p.n_head }
                local x = b.embedding(ids, "tok", p.vocab, C)
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, function()
                                return block(x, b.rmsnorm(x, "norm", { eps = 1e-5 }), C, heads)
                                        :as "sum"
                        end)
                end
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
