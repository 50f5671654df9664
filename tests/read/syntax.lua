local b = require "blocks"
return { graph = function(p)
        local x = = 3 -- error: unexpected symbol near '='
end }
