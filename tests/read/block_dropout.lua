local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.dropout(x, -0.1) -- error: dropout: the probability is -0.1, but must be at least 0 and below 1
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
