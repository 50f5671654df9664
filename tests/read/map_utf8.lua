local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        w:from "\x92\x9e" -- error: a map is one line of text, in UTF-8
        return { logits = x }
end }
