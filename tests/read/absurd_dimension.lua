local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = param("big", { 1 << 40, 1 << 40 }) -- error: param: the shape [1099511627776,1099511627776] is out of range
        return { logits = x }
end }
