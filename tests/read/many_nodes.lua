local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        while true do x = x:neg() end -- error: the model needs more than 256 MiB
        return { logits = x }
end }
