local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        while true do x = x:neg() end -- error: the model has more than 1048576 nodes
        return { logits = x }
end }
