local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:slice { axis = 2, start = 3, len = 2 } -- error: slice: 2 elements from 3 by 1 do not fit axis 2
        return { logits = x }
end }
