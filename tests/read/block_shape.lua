local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids, targets = b.inputs()
        local w = param("w", { 8, 4 })
        local x = w:gather(ids)
        x = b.attend(x, x, x, { n_head = 3, head_dim = 2 }) -- error: reshape: %gather is [B,T,4] and cannot become [B,T,3,2]
        return { logits = x }
end }
