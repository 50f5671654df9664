return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T })
        local x = param("e", { 8, 4 }):gather(ids) -- error: the model returns hidden, as an encoder does, and logits as well
        return { logits = x, hidden = x }
end }
