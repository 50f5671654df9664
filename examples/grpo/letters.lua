-- letters.lua: GRPO, whose reward is the share of the letter "a" in what the model says.

local grpo = require "grpo"

grpo.reward = function(c, p)
        local n = 0
        for i = 1, #c.text do
                if c.text:sub(i, i) == "a" then n = n + 1 end
        end
        return #c.text > 0 and n / #c.text or 0
end

return grpo
