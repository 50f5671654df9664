-- heads.lua: attention in all its forms over one linear of q, k and v: grouped
-- queries, a part of each head turned, caches written from its tail, a window, capped
-- scores, slopes, dropout; then a gated MLP and experts of both kinds.
local b = require "blocks"

return {
        name = "heads",
        params = {
                vocab = 65, ctx = 33, n_head = 4, n_kv_head = 2, head_dim = 10, n_ff = 20,
                dropout = 0.0, window = 5,
                n_expert = 3, top_k = 2,
        },
        graph = function(p)
                local ids, targets = b.inputs()
                local H, K, D = p.n_head, p.n_kv_head, p.head_dim
                local C = H * D
                local x, table = b.embedding(ids, "tok", p.vocab, C, { std = 0.5 })
                local layers = {}
                local kinds = {
                        { rope = b.rope(D, 10000.0), window = p.window },
                        { rope = scope("slow", b.rope, D - D % 4, 100.0), softcap = 2.0,
                          dropout = p.dropout },
                        { slopes = b.alibi(H, 8) },
                }
                for i, how in ipairs(kinds) do
                        x = scope("blk" .. i, function()
                                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                                local qkv = b.linear(h, "qkv", (H + 2 * K) * D,
                                        { bias = i == 2, std = 0.2 })
                                how.n_head, how.n_kv_head, how.head_dim = H, K, D
                                local y = b.attend(b.part(qkv, "q", 0, C),
                                        b.part(qkv, "k", C, K * D),
                                                   b.part(qkv, "v", C + K * D, K * D), how)
                                return x + b.dropout(b.linear(y, "out", C, { std = 0.2 }),
                                        p.dropout)
                        end)
                        x = scope("mlp" .. i, function()
                                local h = b.layernorm(x, "norm", { eps = 1e-5 })
                                if i == 1 then
                                        return x + b.gated_mlp(h, { n_ff = p.n_ff,
                                                act = "gelu_tanh", bias = true, std = 0.2 })
                                end
                                local y, l = b.moe(h, { n_expert = p.n_expert, top_k = p.top_k,
                                        n_ff = p.n_ff, act = i == 2 and "silu" or "gelu",
                                        gated = i == 2, renorm = i == 3, bias = i == 3,
                                        router_bias = i == 3, std = 0.2 })
                                layers[#layers + 1] = l
                                return x + y
                        end)
                end
                return b.outputs(x:rmsnorm(1e-5):matmul(table, { tb = 1 }):as "logits", targets,
                        b.balance_loss(layers), 0.1)
        end,
}
