local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.moe(x, { n_expert = 4, top_k = 2, n_ff = 8, act = "silu", renormalise = true }) -- error: b.moe has no option 'renormalise'
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
