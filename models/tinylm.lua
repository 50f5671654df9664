-- tinylm.lua: the first model of TinyLM-RMSnorm: RMSNorm, rotary positions, one
-- linear for q, k and v, an MLP of two linears with SiLU between, no biases.
-- (That repository gave the two halves of a rotary pair different frequencies; here
-- they turn together.)
local b = require "blocks"

local function block(x, p, rope, i)
        local C, l = p.n_embd, "blocks." .. i .. "."
        x = scope("attn", function()
                local h = b.rmsnorm(x, "norm", { eps = p.eps, from = l .. "norm1" })
                local qkv = b.linear(h, "qkv", 3 * C, { std = p.std, from = l .. "attn.qkv" })
                local q, k, v = b.part(qkv, "q", 0, C), b.part(qkv, "k", C, C),
                        b.part(qkv, "v", 2 * C, C)
                local y = b.attend(q, k, v, { n_head = p.n_head, head_dim = C // p.n_head,
                                              rope = rope })
                return (x
                        + b.linear(y, "out", C, { std = p.std, from = l .. "attn.proj" })):as "sum"
        end)
        return scope("mlp", function()
                local h = b.rmsnorm(x, "norm", { eps = p.eps, from = l .. "norm2" })
                h = b.mlp(h, { n_ff = 4 * C, act = "silu", std = p.std,
                               from = { up = l .. "mlp.0", down = l .. "mlp.2" } })
                return (x + h):as "sum"
        end)
end

return {
        name = "tinylm",
        params = {
                vocab = 4096, ctx = 256, n_layer = 6, n_head = 6, n_embd = 384, eps = 1e-6,
                std = 0.02, rope_theta = 10000.0,
        },
        graph = function(p)
                local ids, targets = b.inputs()
                local rope = b.rope(p.n_embd // p.n_head, p.rope_theta)
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, { std = p.std, from = "tok" })
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, rope, i)
                end
                x = b.rmsnorm(x, "norm", { eps = p.eps, from = "norm" })
                return b.outputs(b.linear(x, "logits", p.vocab, { std = p.std, from = "head" }),
                                 targets)
        end,
}
