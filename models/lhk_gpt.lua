-- lhk_gpt.lua: the GPT of gpt_in_pytorch_and_cuda: pre-norm, erf GELU, q, k and v
-- without biases, the output projection with one.
local b = require "blocks"

local function block(x, p, i)
        local l = "blocks." .. i .. "."
        x = scope("attn", function()
                local h = b.layernorm(x, "norm", { eps = p.eps, from = l .. "ln1" })
                local a = l .. "attention."
                h = b.self_attention(h, {
                        n_head = p.n_head, head_dim = p.n_embd // p.n_head, out_bias = true,
                        std = p.std, dropout = p.dropout,
                        from = { q = a .. "w_q", k = a .. "w_k", v = a .. "w_v", o = a .. "w_o" },
                })
                return (x + b.dropout(h, p.dropout)):as "sum"
        end)
        return scope("mlp", function()
                local h = b.layernorm(x, "norm", { eps = p.eps, from = l .. "ln2" })
                h = b.mlp(h, { n_ff = p.n_ff, act = "gelu", bias = true, std = p.std,
                               from = { up = l .. "mlp.linear1", down = l .. "mlp.linear2" } })
                return (x + b.dropout(h, p.dropout)):as "sum"
        end)
end

return {
        name = "lhk_gpt",
        params = {
                vocab = 107, ctx = 256, n_layer = 6, n_head = 4, n_embd = 128, n_ff = 512,
                eps = 1e-5, std = 0.02, dropout = 0.0, tied = true,
        },
        graph = function(p)
                local ids, targets = b.inputs()
                local tok, table = b.embedding(ids, "tok", p.vocab, p.n_embd,
                                               { std = p.std, from = "token_embedding" })
                local pos = b.positions("pos", p.ctx, p.n_embd,
                                        { std = p.std, from = "pos_embedding.pos_embedding" })
                local x = (tok + pos):as "x"
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, i)
                end
                x = b.layernorm(x, "norm", { eps = p.eps, from = "ln_f" })
                if not p.tied then
                        return b.outputs(b.linear(x, "logits", p.vocab,
                                                  { std = p.std, from = "lm_head" }), targets)
                end
                ignore "lm_head.weight"
                return b.outputs(x:matmul(table, { tb = 1 }):as "logits", targets)
        end,
}
