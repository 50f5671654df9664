local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = x:layernorm(-1e-5) -- error: layernorm: eps is -1e-05, but must be at least 0
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
