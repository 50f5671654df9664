local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.attend(x, x, x, { n_head = 2, head_dim = 4, bias = true }) -- error: b.attend has no option 'bias'
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
