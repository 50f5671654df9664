local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        for i = 1, 1e6 do param("p" .. i, { 1 }) end -- error: more than 16384 parameters
        return { logits = x }
end }
