local b = require "blocks"
return { name = "bad", params = {}, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", 16, 8)
        x = b.self_attention(x, { n_head = 2 }) -- error: b.self_attention needs the option head_dim
        return b.outputs(b.linear(x, "logits", 16), targets)
end }
