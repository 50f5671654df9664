return { name = "bad", params = { n = 4 }, graph = function(p)
        local ids = input("ids", { B, T })
        return { hidden = param("e", { 8, 4 }):gather(ids):reshape { B * T, 4 } } -- error: hidden must be [B,T,C], not [B*T,4]
end }
