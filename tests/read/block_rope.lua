local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        b.rope(8, 1e4, { kind = "llama3", factor = 8.0 }) -- error: b.rope: scaling of the kind llama3 needs original
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
