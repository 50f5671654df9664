local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        local function f() scope("s", f) end f() -- error: scopes lie too deep
        return { logits = x }
end }
