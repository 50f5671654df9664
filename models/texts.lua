-- texts.lua: what rewards are made of: words, and how much texts differ.

local texts = {}

-- The words of a text: what stands between blanks.
function texts.words(s)
        local words, from = {}, nil
        for i = 1, #s + 1 do
                local c = i <= #s and s:byte(i) or 32
                if c > 32 then
                        from = from or i
                elseif from then
                        words[#words + 1] = s:sub(from, i - 1)
                        from = nil
                end
        end
        return words
end

-- The texts of a group.
function texts.of(g)
        local said = {}
        for i, c in ipairs(g) do said[i] = c.text end
        return said
end

local function grams(words, n)
        local list = {}
        for i = 1, #words - n + 1 do
                list[i] = table.concat(words, " ", i, i + n - 1)
        end
        return list
end

-- Different n-grams over all n-grams of the texts; 0 where there are none.
function texts.distinct(said, n)
        local seen, different, all = {}, 0, 0
        for _, s in ipairs(said) do
                for _, g in ipairs(grams(texts.words(s), n)) do
                        all = all + 1
                        if not seen[g] then seen[g] = true; different = different + 1 end
                end
        end
        return all > 0 and different / all or 0
end

local function counted(list)
        local n = {}
        for _, g in ipairs(list) do n[g] = (n[g] or 0) + 1 end
        return n
end

-- BLEU of words against references, n-grams up to `most`, each precision (matches + 1) / (n-grams +
-- 1) above unigrams (Lin and Och 2004, smoothing 2), brevity by the reference nearest in length.
local function bleu(words, others, most)
        local log_sum, near = 0, nil
        for n = 1, most do
                local mine, best, match, all = grams(words, n), {}, 0, 0
                for _, other in ipairs(others) do
                        for g, k in pairs(counted(grams(other, n))) do
                                if k > (best[g] or 0) then best[g] = k end
                        end
                end
                for g, k in pairs(counted(mine)) do match = match + math.min(k, best[g] or 0) end
                all = #mine
                local add = n > 1 and 1 or 0
                if match + add == 0 or all + add == 0 then return 0 end
                log_sum = log_sum + math.log((match + add) / (all + add))
        end
        for _, other in ipairs(others) do
                local d, b = math.abs(#other - #words), near and math.abs(near - #words)
                if not near or d < b or (d == b and #other < near) then near = #other end
        end
        local brevity = #words >= near and 0 or 1 - near / #words
        return math.exp(log_sum / most + brevity)
end

-- The mean BLEU of each text against the others (Zhu et al. 2018).
function texts.self_bleu(said, most)
        local words, sum = {}, 0
        for i, s in ipairs(said) do words[i] = texts.words(s) end
        if #words < 2 then return 1 end
        for i, mine in ipairs(words) do
                local others = {}
                for k, other in ipairs(words) do
                        if k ~= i then others[#others + 1] = other end
                end
                if #mine > 0 then sum = sum + bleu(mine, others, most) end
        end
        return sum / #words
end

-- The cosine of two vectors.
function texts.cosine(a, b)
        local ab, aa, bb = 0, 0, 0
        for i = 1, #a do
                ab, aa, bb = ab + a[i] * b[i], aa + a[i] ^ 2, bb + b[i] ^ 2
        end
        return aa > 0 and bb > 0 and ab / math.sqrt(aa * bb) or 0
end

-- 1 - the mean cosine of all pairs of vectors.
function texts.spread(v)
        local sum, n = 0, 0
        for i = 1, #v do
                for k = i + 1, #v do
                        sum, n = sum + texts.cosine(v[i], v[k]), n + 1
                end
        end
        return n > 0 and 1 - sum / n or 0
end

-- Rewards of a group less their mean, over their standard deviation (of a sample, as GRPO has it).
function texts.advantages(g)
        local mean, square, a = 0, 0, {}
        for _, c in ipairs(g) do mean = mean + c.reward / #g end
        for _, c in ipairs(g) do square = square + (c.reward - mean) ^ 2 end
        local std = math.sqrt(square / math.max(#g - 1, 1))
        for i, c in ipairs(g) do a[i] = (c.reward - mean) / (std + 1e-4) end
        return a
end

return texts
