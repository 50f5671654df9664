local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        local s = string.rep("x", 1 << 40) -- error: the string would be longer than
        return { logits = x }
end }
