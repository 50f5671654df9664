local b = require "blocks"
return { graph = function(p)
        local t = {}
        return { logits = t.y.z } -- error: attempt to index a nil value (field 'y')
end }
