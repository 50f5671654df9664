local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        w:from("name", { rows = { 4, 9 } }) -- error: rows 4 to 9 do not lie in 'w'
        return { logits = x }
end }
