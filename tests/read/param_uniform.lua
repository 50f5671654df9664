local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        param("w", { 3 }, { uniform = { 2, 1 } }) -- error: param: uniform is {lo, hi}, and 2 is above 1
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
