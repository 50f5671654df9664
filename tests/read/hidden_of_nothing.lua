return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T })
        return { hidden = param("e", { 8, 4 }):gather(position()) } -- error: the hidden, %gather, does not depend on %ids
end }
