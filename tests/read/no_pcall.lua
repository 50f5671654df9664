local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        pcall(error) -- error: attempt to call a nil value (global 'pcall'
        return { logits = x }
end }
