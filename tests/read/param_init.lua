local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local w = param("w", { 8, 4 }, { init = "xavier" }) -- error: param: no way to begin 'xavier'; there are zeros, ones, normal, uniform, value
        return { logits = w:gather((b.inputs())) }
end }
