return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T })
        local targets = input("targets", { B, T }, "f32") -- error: input %targets is f32[B,T], but must be i32[B,T]: the token after each
        return { logits = param("w", { 8, 4 }):gather(ids) }
end }
