local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        io.open("/etc/passwd") -- error: attempt to index a nil value (global 'io'
        return { logits = x }
end }
