-- weighted.lua: tokens count by how wrong they are, so that the gradient of each token's loss is
-- its own.
local b = require "blocks"

return {
        name = "weighted",
        params = { vocab = 65, ctx = 16, n_embd = 32 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.linear(b.embedding(ids, "tok", p.vocab, p.n_embd), "up", p.n_embd)
                        :silu()
                local logits = b.linear(x, "logits", p.vocab)
                local each = logits:ce(targets):as "loss.token"
                local total = (each * each):reshape { B * T }:as "loss.flat":sum():as "loss.sum"
                return { logits = logits,
                        loss = (total:reshape {}:as "loss.total" * inv_tokens()):as "loss" }
        end,
}
