local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = x:matmul(w) -- error: matmul: inner dimensions differ, 4 in %gather [B,T,4] and 8 in %w [8,4]
        return { logits = x }
end }
