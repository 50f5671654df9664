-- Fails as a whole, not on a line.
return { graph = function(p)
        return { logits = param("w", { 2, 3 }) }
end }
