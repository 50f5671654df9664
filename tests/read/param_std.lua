local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        param("w", { 3 }, { std = -1 }) -- error: param: std is -1, but must be at least 0
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
