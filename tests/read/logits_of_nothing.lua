local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local y = b.linear(param("e", { 8, 4 }):gather(targets), "l", 8) -- error: the logits, %l, do not depend on %ids
        return { logits = y }
end }
