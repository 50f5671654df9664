local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:matmul(w, { trans = 1 }) -- error: matmul has no attribute 'trans'; it has ta, tb
        return { logits = x }
end }
