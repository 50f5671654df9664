local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x + const("c", { 0 / 0 }) -- error: const: every element must be a finite number
        return { logits = x }
end }
