-- deepseek.lua: DeepSeek V2 and V3.  Each token's keys and values are made from one short vector
-- (MLA). Part of each key has rotary positions; all heads share it.  A token uses the best experts
-- of the best groups, and shared experts. The defaults are DeepSeek-V2-Lite.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"
local keys = require "config_keys"

local spelling = { expert = "mlp.experts.%d.%s.weight", gate = "gate_proj", up = "up_proj",
                   down = "down_proj" }

local params = b.with_defaults({
        vocab = 102400, ctx = 163840, n_layer = 27, n_embd = 2048, n_head = 16, n_kv_head = 16,
        eps = 1e-6, interleaved = true,
        head_dim = 64,          -- width of the part of queries and keys with rotary positions
        nope_dim = 128,         -- width of the part without
        v_dim = 128,
        q_rank = 0,             -- width of the vector that queries are made from; 0: the layer's
                                -- input
        kv_rank = 512,          -- width of the vector that keys and values are made from
        n_ff = 10944,           -- of dense layers
        n_expert = 64, top_k = 6, n_ff_expert = 1408,
        n_shared = 2,           -- shared experts
        n_dense = 1,            -- the first layers are dense: so many
        n_group = 1, top_group = 1,     -- groups of experts, and groups that a token uses
        sigmoid = false,        -- scores are sigmoids, and a correction is added for the choice;
                                -- false: softmax
        renorm = false,         -- scale the chosen scores to sum to 1
        routed_scale = 1.0,
        kv_split = false,       -- the checkpoint has k_b and v_b by themselves, k_b as
                                -- (H,rank,nope)
}, decoder.params)

-- MLA.  The rotary part comes first in each head, in queries and in keys.
local function attention(x, p, from, layer)
        local H, C, R, N, V = p.n_head, p.n_embd, p.head_dim, p.nope_dim, p.v_dim
        local a, rope, halves = from.layer .. "self_attn.", layer.rope, " | rope %d " .. R
        -- rows first..last-1 of each of H heads, `all` rows a head, K wide
        local function cut(all, first, last, K)
                return string.format(": %dx%d | reshape %d %d | cols %d %d | reshape %d %d",
                                     H * all, K, H, all * K, first * K,
                                     last * K, H * (last - first), K)
        end
        local function turned(y, name)
                y = y:rope(rope.freq):as(name .. "_rope")
                return rope.gain ~= 1 and (y * rope.gain):as(name .. "_gain") or y
        end
        local h, name, width = x, a .. "q_proj", C
        if p.q_rank > 0 then
                h = b.linear(x, "q_a", p.q_rank,
                             { std = p.std, bias = p.qkv_bias, from = a .. "q_a_proj" })
                h = b.rmsnorm(h, "q_a_norm", { eps = 1e-6, from = a .. "q_a_layernorm" })
                name, width = a .. "q_b_proj", p.q_rank
        end
        local turn = p.interleaved and "" or string.format(halves, H)
        local q_turn = b.linear(h, "q_turn", H * R,
                                { std = p.std, from = name, steps = cut(N + R, N, N + R, width)
                                  .. turn })
        local q_pass = b.linear(h, "q_pass", H * N,
                                { std = p.std, from = name, steps = cut(N + R, 0, N, width) })
        local q = turned(b.heads(q_turn, "q_turn_heads", H, R),
                         "q"):concat(b.heads(q_pass, "q_pass_heads", H, N)):as "q"

        local all = p.kv_rank + R
        local function part(part_name, first, last, steps)
                return b.linear(x, part_name, last - first, {
                        std = p.std, bias = p.qkv_bias, from = a .. "kv_a_proj_with_mqa",
                        steps = string.format(": %dx%d | rows %d %d", all, C, first, last) .. steps,
                        bias_steps = string.format(": %d | rows %d %d", all, first, last) .. steps,
                })
        end
        local latent = b.rmsnorm(part("kv_a", 0, p.kv_rank, ""), "kv_norm",
                                 { eps = 1e-6, from = a .. "kv_a_layernorm" })
        local k_turn = part("k_turn", p.kv_rank, all, p.interleaved and ""
                            or string.format(halves, 1))
        k_turn = turned(b.heads(k_turn, "k_turn_heads", 1, R), "k"):expand { B, T, H,
                R }:as "k_turn_all"
        local kv_b = a .. "kv_b_proj"
        local of_k, k_steps, of_v, v_steps = kv_b, cut(N + V, 0, N, p.kv_rank), kv_b,
                cut(N + V, N, N + V, p.kv_rank)
        if p.kv_split then
                of_k, of_v = a .. "k_b_proj", a .. "v_b_proj"
                k_steps = string.format(": %dx%dx%d | t | reshape %d %d", H, p.kv_rank, N, H * N,
                                        p.kv_rank)
                v_steps = string.format(": %dx%dx%d | reshape %d %d", H, V, p.kv_rank, H * V,
                                        p.kv_rank)
        end
        local k_pass = b.linear(latent, "k_pass", H * N,
                                { std = p.std, from = of_k, steps = k_steps })
        local v = b.linear(latent, "v", H * V, { std = p.std, from = of_v, steps = v_steps })
        local k = k_turn:concat(b.heads(k_pass, "k_pass_heads", H, N)):as "k"
        local y = q:attention(k, b.heads(v, "v_heads", H, V), {
                causal = 1, scale = p.score_scale > 0 and p.score_scale or (N + R) ^ -0.5,
                p = p.dropout,
        })
        y = y:as "att":reshape { B, T, H * V }:as "att_rows"
        return b.linear(y, "out", C, { std = p.std, bias = p.out_bias, from = a .. "o_proj" })
end

-- The best experts of the best groups.  A group is as good as its best expert, or its best two.
local function route(p, from)
        return function(logits)
                local E, G, k = p.n_expert, p.n_group, p.top_k
                local scores = (p.sigmoid and logits:sigmoid() or logits:softmax()):as "probs"
                local choice, correction = scores, nil
                if p.sigmoid then
                        correction = param("correction", { E },
                                           { init = "zeros", trainable = false })
                        correction:from(from.layer .. "mlp.gate.e_score_correction_bias")
                        choice = (scores + correction):as "corrected"
                end
                if G > 1 then
                        local groups = choice:reshape { B * T, G, E // G }:as "groups"
                        local good = p.sigmoid and groups:topk(2):as "group.best":sum()
                                or groups:rowmax()
                        good = good:as "group.sum":reshape { B * T, G }:as "group.score"
                        local least = good:topk(p.top_group):as "group.chosen"
                        least = least:slice { axis = 1, start = p.top_group - 1,
                                              len = 1 }:as "group.least"
                        local out = op.gt(least, good):as "group.out":reshape { B * T, G,
                                1 }:as "group.mask"
                        choice = op.where(out, -1e30, groups):as "group.kept":reshape { B * T,
                                E }:as "choice"
                end
                local gates = choice:topk(k):as "gates"
                local chosen = gates:item(1):as "chosen"
                if correction then
                        local unbiased = gates - correction:gather(chosen):as "chosen.correction"
                        gates = unbiased:as "gates.score"
                end
                if p.renorm then
                        gates = (gates / (gates:sum():as "gates.sum" + 1e-20)):as "gates.weight"
                end
                if p.routed_scale ~= 1 then gates = (gates * p.routed_scale):as "gates.scaled" end
                return gates, chosen
        end
end

local function mlp(x, p, from, i)
        if i < p.n_dense then return decoder.mlp(x, p, from) end
        local y = b.moe(x, {
                n_expert = p.n_expert, top_k = p.top_k, n_ff = p.n_ff_expert, act = p.act,
                gated = true, std = p.std,
                from = { router = from.layer .. "mlp.gate" }, route = route(p, from),
                expert_map = b.expert_map(spelling, from.layer, p.n_expert, p.n_ff_expert,
                                          p.n_embd),
        })
        local m = from.layer .. "mlp.shared_experts."
        local shared = scope("shared", decoder.mlp, x, p,
                             { gate = m .. "gate_proj", up = m .. "up_proj",
                                                             down = m .. "down_proj" }, i,
                                                                     p.n_shared * p.n_ff_expert)
        return (y + shared):as "both"
end

-- The scores by which experts are chosen.
local function routing(c, three)
        local E, k = c.n_routed_experts, c.num_experts_per_tok
        local grouped = three or c.topk_method == "group_limited_greedy"
        local G, most = grouped and c.n_group or 1, grouped and c.topk_group or 1
        if not k then config.refuse("num_experts_per_tok", nil, "is needed") end
        if E % G ~= 0 or three and E // G < 2 then
                config.refuse("n_group", G,
                              "groups of n_routed_experts (num_experts, num_local_experts), " .. E
                              .. ", should be equal, of two at least")
        end
        if most > G then config.refuse("topk_group", most, "is more than n_group, " .. G) end
        if k > E // G * most then
                config.refuse("num_experts_per_tok", k,
                              "is more than n_routed_experts (num_experts, num_local_experts) in "
                              .. "topk_group of n_group groups")
        end
        return { n_expert = E, top_k = k, n_group = G, top_group = most,
                 n_shared = c.n_shared_experts,
                 n_ff_expert = c.moe_intermediate_size, n_dense = c.first_k_dense_replace,
                 sigmoid = three,
                 renorm = three and c.norm_topk_prob or false,
                 routed_scale = c.routed_scaling_factor }
end

local function from_hf(raw, family)
        local c, name = keys.read(raw, family)
        local three, H = name == "deepseek_v3", c.num_attention_heads
        if (c.num_key_value_heads or H) ~= H then
                config.refuse("num_key_value_heads", c.num_key_value_heads,
                              "should be num_attention_heads, " .. H)
        end
        if c.qk_rope_head_dim % 2 == 1 then
                config.refuse("qk_rope_head_dim", c.qk_rope_head_dim, "is odd")
        end
        if three and c.head_dim and c.head_dim ~= c.qk_rope_head_dim then
                config.refuse("head_dim", c.head_dim, "should be qk_rope_head_dim, "
                              .. c.qk_rope_head_dim)
        end
        -- transformers turns pairs in place
        for _, key in ipairs { "kv_lora_rank", "qk_nope_head_dim" } do
                if not three and c[key] % 2 == 1 then config.refuse(key, c[key], "is odd") end
        end
        local rope = config.rope(c)
        local r = c[config.rope_key(c)]
        local scale = (c.qk_nope_head_dim + c.qk_rope_head_dim) ^ -0.5
        if rope.rope_scaling ~= "none" and (r.mscale_all_dim or 0) ~= 0
                and rope.rope_factor > 1 then
                scale = scale * (0.1 * r.mscale_all_dim * math.log(rope.rope_factor) + 1) ^ 2
        end
        local bias = c.attention_bias or false
        return decoder.from_hf(c, config.with(config.with({
                head_dim = c.qk_rope_head_dim, nope_dim = c.qk_nope_head_dim, v_dim = c.v_head_dim,
                q_rank = c.q_lora_rank or 0, kv_rank = c.kv_lora_rank, score_scale = scale,
                qkv_bias = bias, out_bias = bias, interleaved = not three or c.rope_interleave,
                kv_split = c.tgc_kv_b_split,
        }, rope), routing(c, three)))
end

return {
        name = "deepseek", params = params, config = from_hf,
        graph = function(p)
                local ids, targets = b.inputs()
                return b.outputs(decoder.logits(ids, p, { mlp = mlp, attention = attention }),
                                 targets)
        end,
}
