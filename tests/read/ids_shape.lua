return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T, 2 }) -- error: input %ids is i32[B,T,2], but must be i32[B,T]: the tokens
        return { logits = param("w", { 8, 4 }):gather(ids) }
end }
