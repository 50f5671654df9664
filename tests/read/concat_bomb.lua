local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        local s = "xxxxxxxx" while true do s = s .. s end -- error: a string is longer than 1 MiB
        return { logits = x }
end }
