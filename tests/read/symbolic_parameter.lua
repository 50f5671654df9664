local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = param("big", { B, 4 }) -- error: cannot depend on B or T
        return { logits = x }
end }
