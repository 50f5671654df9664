local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:reshape { B, T // 2, 8 } -- error: the dimension T cannot be divided by 2
        return { logits = x }
end }
