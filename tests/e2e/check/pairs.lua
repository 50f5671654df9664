-- pairs.lua: what looks at pairs of tokens without an attention op: products of
-- batches, transposed in every way, and a diversity loss over pairwise cosines; and
-- attention under a mask that the graph computes.  Only the loss sees them, so the
-- logits can be had token by token.
local b = require "blocks"

return {
        name = "pairs",
        params = { vocab = 65, ctx = 33, heads = 2, head_dim = 10, masked = true },
        graph = function(p)
                local ids, targets = b.inputs()
                local H, D = p.heads, p.head_dim
                local x, table = b.embedding(ids, "tok", p.vocab, H * D, { std = 0.5 })
                local logits = b.linear(x, "head", H * D, { bias = true, std = 0.2 }):matmul(table, { tb = 1 })

                -- attention by hand, (B,H,T,D)
                local function heads(name)
                        return b.heads(b.linear(x, name, H * D, { std = 0.3 }), name .. ".heads", H, D)
                end
                local q, k, v = heads "q", heads "k", heads "v"
                local function swap(y) return y:transpose { 0, 2, 1, 3 } end
                local scores = swap(q):matmul(swap(k), { tb = 1 }) * D ^ -0.5           -- (B,H,T,T)
                local by_hand = swap(scores:softmax():matmul(swap(v))):reshape { B, T, H * D }
                local op_y = q:attention(k, v, { causal = 0, scale = D ^ -0.5 }):reshape { B, T, H * D }
                local aux = (by_hand - op_y):square():sum():reshape { B * T }:sum():reshape {} * inv_tokens()
                aux = aux + (by_hand * op_y):abs():sum():reshape { B * T }:sum():reshape {} * inv_tokens()

                -- mean square cosine of all pairs of a sequence
                local unit = by_hand / ((by_hand:square():sum() + 1e-6):sqrt())
                local cosine = unit:matmul(unit, { tb = 1 })                            -- (B,T,T)
                aux = aux + cosine:square():sum():reshape { B * T }:sum():reshape {} * inv_tokens()

                -- a^T b of a batch: (B,C,C)
                local gram = unit:matmul(by_hand, { ta = 1 })
                aux = aux + (gram:tanh():square():sum():reshape { B * H * D }:sum():reshape {} * 0.01)

                if p.masked then
                        local y = q:attention(k, v, cosine * 3, { causal = 1, mask = 1, scale = D ^ -0.5 })
                        aux = aux + (y:reshape { B * T, H * D }:square():sum():reshape { B * T }:sum():reshape {} * inv_tokens())
                end
                return b.outputs(logits:as "logits", targets, aux:as "aux_loss", 0.3)
        end,
}
