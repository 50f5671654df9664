local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = b.rmsnorm(x:reshape { B * T * 4 }:reshape {}, "n", { eps = 1e-5 }) -- error: reshape: %reshape is [4*B*T] and cannot become []
        return { logits = x }
end }
