local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:dropout(1.5) -- error: dropout: the probability is 1.5
        return { logits = x }
end }
