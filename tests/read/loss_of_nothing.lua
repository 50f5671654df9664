local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.linear(param("e", { 8, 4 }):gather(ids), "l", 8)
        return { logits = x, loss = x:sum():reshape { B * T }:sum():reshape {} } -- error: does not depend on %targets
end }
