-- naive_gpt.lua: the character models of the naive.cu repository.
--
-- variant "baseline": post-norm, x = norm(x + attention(x)), the head has a bias.
-- variant "custom":   its hand-written twin, which is another network: x = norm(x);
--                     x = x + attention(x), scores over sqrt(C), no head bias.
--
-- The checkpoint keeps a linear per head; here heads are rows of one weight.  Names
-- are those of the training reference, then the repository's own.
local b = require "blocks"

local naive = { name = "naive_gpt" }

naive.params = {
        vocab = 76, ctx = 64, n_layer = 4, n_head = 4, n_embd = 128, eps = 1e-5, std = 0.02,
        dropout = 0.1, variant = "baseline",
}

-- Rows h*D to (h+1)*D of w are head h's.
local function heads(x, which, p, i)
        local D = p.n_embd // p.n_head
        local w = param(which .. ".weight", { p.n_embd, p.n_embd }, { std = p.std })
        local name = { q = "query", k = "key", v = "value" }
        for h = 0, p.n_head - 1 do
                local own = string.format("heads.%d.%s", h, name[which])
                b.map(w, { "blocks." .. i .. "." .. own, "blocks." .. i .. ".sa." .. own },
                      ".weight",
                      string.format(": %dx%d", D, p.n_embd), { rows = { h * D, (h + 1) * D } })
        end
        return x:matmul(w, { tb = 1 }):as(which)
end

function naive.attention(x, p, i)
        local D = p.n_embd // p.n_head
        local y = b.attend(heads(x, "q", p, i), heads(x, "k", p, i), heads(x, "v", p, i), {
                n_head = p.n_head, head_dim = D, dropout = p.dropout,
                scale = (p.variant == "custom" and p.n_embd or D) ^ -0.5,
        })
        y = b.linear(y, "out", p.n_embd, { bias = true, std = p.std,
                                           from = { "blocks." .. i .. ".proj", "blocks." .. i
                                                    .. ".sa.proj" } })
        return b.dropout(y, p.dropout)
end

function naive.mlp(x, p, i)
        local y = b.mlp(x, { n_ff = 4 * p.n_embd, act = "gelu", bias = true, std = p.std,
                             from = { up = { "blocks." .. i .. ".fc1", "blocks." .. i
                                             .. ".ffwd.net.0" },
                                      down = { "blocks." .. i .. ".fc2", "blocks." .. i
                                               .. ".ffwd.net.2" } } })
        return b.dropout(y, p.dropout)
end

local function block(x, p, i, mlp)
        local function norm(y, n)
                return b.layernorm(y, "norm", { eps = p.eps, from = "blocks." .. i .. ".ln" .. n })
        end
        if p.variant == "custom" then
                x = scope("attn", function()
                        local h = norm(x, 1)
                        return (h + naive.attention(h, p, i)):as "sum"
                end)
                return scope("mlp", function()
                        local h = norm(x, 2)
                        return (h + mlp(h, p, i)):as "sum"
                end)
        end
        x = scope("attn", function() return norm((x + naive.attention(x, p, i)):as "sum", 1) end)
        return scope("mlp", function() return norm((x + mlp(x, p, i)):as "sum", 2) end)
end

-- mlp(x, p, i) is layer i's.
function naive.logits(ids, p, mlp)
        if p.variant ~= "baseline" and p.variant ~= "custom" then
                error("variant is baseline or custom, not '" .. p.variant .. "'")
        end
        local tok = b.embedding(ids, "tok", p.vocab, p.n_embd,
                                { std = p.std, from = { "tok", "token_embedding_table" } })
        local pos = b.positions("pos", p.ctx, p.n_embd,
                                { std = p.std, from = { "pos", "position_embedding_table" } })
        local x = (tok + pos):as "x"
        for i = 0, p.n_layer - 1 do
                x = scope("blk" .. i, block, x, p, i, mlp)
        end
        x = b.layernorm(x, "norm", { eps = p.eps, from = "ln_f" })
        return b.linear(x, "logits", p.vocab,
                        { bias = p.variant == "baseline", std = p.std,
                          from = { "head", "lm_head" } })
end

function naive.graph(p)
        local ids, targets = b.inputs()
        return b.outputs(naive.logits(ids, p, naive.mlp), targets)
end

return naive
