local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.rmsnorm(x, "norm", { epsilon = 1e-6 }) -- error: b.rmsnorm has no option 'epsilon'; there are eps, from, suffix, steps, offset
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
