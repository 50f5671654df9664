local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:gatherr(ids) -- error: unknown op 'gatherr'; did you mean 'gather'?
        return { logits = x }
end }
