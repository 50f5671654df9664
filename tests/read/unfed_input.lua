local b = require "blocks"
return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = b.inputs()
        local segments = input("segments", { B, T }) -- error: nothing feeds the input %segments, i32[B,T]; there are %ids, i32[B,T] (the tokens)
        return { logits = param("w", { 8, 4 }):gather(ids) + param("s", { 2, 4 }):gather(segments) }
end }
