local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local w = param("w", { 8, 4 }, { sdt = 0.1 }) -- error: param: no option 'sdt', did you mean 'std'? there are std, init, uniform, value, trainable, decay
        return { logits = w:gather((b.inputs())) }
end }
