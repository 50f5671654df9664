local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        b.slides("sgs", 1) -- error: the pattern 'sgs' has a letter 'g'; it is s for the window, f for everything
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
