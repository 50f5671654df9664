local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:topk { k = 1.5 } -- error: topk: k must be a whole number
        return { logits = x }
end }
