local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.linear(nil, "up", 8) -- error: b.linear: its first argument is a tensor, not a nil
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
