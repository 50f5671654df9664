return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T })
        local d = input("documents", { B, T }) -- error: input %documents is i32[B,T], but must be i32[B,T,2]: where the document
        return { logits = param("w", { 8, 4 }):gather(ids) }
end }
