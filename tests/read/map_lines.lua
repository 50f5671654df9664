local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        w:from "name\nmap ignore *" -- error: a map is one line of text
        return { logits = x }
end }
