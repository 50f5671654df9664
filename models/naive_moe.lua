-- naive_moe.lua: the inference model of the naive.cu repository with its mixture of
-- experts: post-norm blocks, 8 experts of two linears with GELU, the best 2 for each
-- token, their probabilities made to sum to 1; router and experts have biases.
-- -D dense=true gives its dense twin.
local b = require "blocks"
local naive = require "naive_gpt"

-- Expert e's tensors are those of a torch Sequential: 0 up, 2 down.
local function expert_map(i)
        local layer = { up = "0", down = "2" }
        return function(which, w, e, suffix)
                local name = string.format("blocks.%d.ffwd.experts.%d.%s%s", i, e, layer[which],
                                           suffix)
                local rows = { rows = { e, e + 1 } }
                if w.rank == 2 then
                        w:from(string.format("%s: %d | reshape 1 %d", name, w.shape[2], w.shape[2]),
                               rows)
                else
                        local n, k = w.shape[2], w.shape[3]
                        w:from(string.format("%s: %dx%d | reshape 1 %d %d", name, n, k, n, k), rows)
                end
        end
end

local function experts(x, p, i)
        return (b.moe(x, {
                n_expert = p.n_expert, top_k = p.top_k, n_ff = 4 * p.n_embd, act = "gelu",
                renorm = true, std = p.std, bias = true, router_bias = true,
                expert_map = expert_map(i), from = { router = "blocks." .. i .. ".ffwd.gate" },
        }))
end

return {
        name = "naive_moe",
        params = {
                vocab = 95, ctx = 64, n_layer = 12, n_head = 8, n_embd = 768, eps = 1e-5,
                std = 0.02, dropout = 0.0, n_expert = 8, top_k = 2, dense = false,
                variant = "baseline",
        },
        graph = function(p)
                local ids, targets = b.inputs()
                return b.outputs(naive.logits(ids, p, p.dense and naive.mlp or experts), targets)
        end,
}
