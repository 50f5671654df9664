-- widths.lua: values of another width than queries and keys: grouped queries with rope and a
-- window, capped scores with dropout, slopes, latent keys and values (each key a part of its own
-- and a turned part that all heads share), and, for training alone, masks.
local b = require "blocks"

return {
        name = "widths",
        params = {
                vocab = 65, ctx = 33, n_embd = 40, n_head = 4, n_kv_head = 2, dk = 8, dv = 16,
                turned = 4, latent = 12,
                window = 5, dropout = 0.0, mask = false,
        },
        graph = function(p)
                local ids, targets = b.inputs()
                local H, C, D, V = p.n_head, p.n_embd, p.dk, p.dv
                local x, table = b.embedding(ids, "tok", p.vocab, C, { std = 0.5 })
                local function heads(h, name, n, width)
                        local y = b.linear(h, name, n * width, { std = 0.25, bias = name == "v" })
                        return b.heads(y, name .. "_heads", n, width)
                end
                local function rope(y, dims)
                        return y:rope(b.rope(dims, 100.0).freq,
                                { dims = dims < y.shape[4] and dims or 0 })
                end

                local function plain(h, K, turn)
                        local q, k = heads(h, "q", H, D), heads(h, "k", K, D)
                        if turn then q, k = scope("q", rope, q, D), scope("k", rope, k, D) end
                        return q, k, heads(h, "v", K, V)
                end
                local function latent(h)
                        local own, R = D - p.turned, p.turned
                        local c = b.linear(h, "down", p.latent, { std = 0.25 })
                                :rmsnorm(1e-5):as "latent"
                        local kv = heads(c, "up", H, own + V)
                        local shared = scope("k", rope, heads(h, "shared", 1, R), R)
                                :expand { B, T, H, R }
                        local q = heads(h, "q", H, D)
                        q = op.concat(b.part(q, "q_own", 0, own),
                                scope("q", rope, b.part(q, "q_turned", own, R), R))
                        return q, op.concat(b.part(kv, "k_own", 0, own), shared),
                                b.part(kv, "v", own, V)
                end
                local kinds = {
                        { window = p.window,
                          qkv = function(h) return plain(h, p.n_kv_head, true) end },
                        { softcap = 2.0, p = p.dropout, qkv = function(h) return plain(h, H) end },
                        { alibi = 1, extra = function() return b.alibi(H, 8) end,
                          qkv = function(h) return plain(h, 1) end },
                        { qkv = latent },
                }
                for i = 5, p.mask and 6 or 4 do  -- a row for each token, a row for all
                        local rows = i == 5 and p.ctx or 1
                        local function qkv(h) return plain(h, p.n_kv_head) end
                        kinds[i] = { causal = 0, mask = 1, qkv = qkv, extra = function()
                                local m = {}
                                for k = 0, rows * p.ctx - 1 do
                                        local some = (k % p.ctx * 7 + k // p.ctx * 3) % 5 > 1
                                        m[k + 1] = some and 1 or 0
                                end
                                return const("mask", m,
                                        i == 5 and { rows, p.ctx } or { 1, rows, p.ctx })
                        end }
                end
                for i, how in ipairs(kinds) do
                        x = scope("blk" .. i, function()
                                local h = b.rmsnorm(x, "norm", { eps = 1e-5 })
                                local q, k, v = how.qkv(h)
                                local o = { causal = how.causal or 1, scale = D ^ -0.5,
                                        window = how.window, softcap = how.softcap,
                                            p = how.p, alibi = how.alibi, mask = how.mask }
                                local y = how.extra and q:attention(k, v, how.extra(), o)
                                        or q:attention(k, v, o)
                                return x + b.linear(y:as "att":reshape { B, T, H * V }, "out",
                                        C, { std = 0.2 })
                        end)
                end
                return b.outputs(x:rmsnorm(1e-5):matmul(table, { tb = 1 }):as "logits", targets)
        end,
}
