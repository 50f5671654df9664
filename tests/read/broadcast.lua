local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x + param("v", { 3 }) -- error: add: shapes do not match, [B,T,4] in %gather and [3] in %v
        return { logits = x }
end }
