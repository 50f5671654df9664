local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = (param("big", { 1 << 30, 1 }) + param("row", { 1 << 30 })):sum() -- error: has a dimension of 0 or too many elements
        return { logits = x }
end }
