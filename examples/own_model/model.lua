-- model.lua: a small transformer with two ideas of its own: an activation, and a learned weight for
-- each residual.
local b = require "blocks"

local function soft_cube(x) return x * (x * x * 0.5):sigmoid() end

local function block(x, p, rope)
        local C = p.n_embd
        local function join(y, name)
                return (x + y * param(name, { 1 }, { init = "ones" })):as "sum"
        end
        x = scope("attn", function()
                local y = b.self_attention(b.rmsnorm(x, "norm"),
                                           { n_head = p.n_head, head_dim = C // p.n_head,
                                             rope = rope })
                return join(y, "weight")
        end)
        return scope("mlp", function()
                local h = soft_cube(b.linear(b.rmsnorm(x, "norm"), "up", 4 * C))
                return join(b.linear(h, "down", C), "weight")
        end)
end

return {
        name = "own",
        params = { vocab = 65, ctx = 64, n_layer = 2, n_head = 4, n_embd = 64 },
        graph = function(p)
                local ids, targets = b.inputs()
                local rope = b.rope(p.n_embd // p.n_head, 10000.0)
                local x = b.embedding(ids, "wte", p.vocab, p.n_embd)
                for i = 0, p.n_layer - 1 do x = scope("blk" .. i, block, x, p, rope) end
                return b.outputs(b.linear(b.rmsnorm(x, "norm"), "logits", p.vocab), targets)
        end,
}
