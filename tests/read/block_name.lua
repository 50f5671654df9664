local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.linear(x) -- error: b.linear: its name is a text, not a nil
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
