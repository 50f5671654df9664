-- gguf_deepseek.lua: the row of deepseek2, which is DeepSeek V2 and V3: MLA, shared experts, groups
-- of experts (gguf.lua says what a row holds).  Rotary pairs are neighbours, in both.
--
-- Files of 2025 and later hold kv_b in two tensors, attn_k_b (H,rank,nope) and attn_v_b (H,v,rank),
-- for a cache of latent vectors: then one head of key and value is counted, with the sizes of these
-- vectors.  config.json says it in a key that is tgc's own, tgc_kv_b_split.
local rules = require "gguf_rules"
local refuse, show, set, only = rules.refuse, rules.show, rules.set, rules.only

-- Sizes of heads.
local function heads(m, config)
        local rope, rank, split = config.qk_rope_head_dim, config.kv_lora_rank,
                rules.has(m, "attn_k_b.weight")
        local function must(name, want)
                local v = m.meta[m.arch .. "." .. name]
                if name == "attention.head_count_kv" and v == nil then v = m.heads end
                if v ~= want then
                        refuse(m.arch .. "." .. name, show(v) .. " is not supported for a file "
                               .. (split and "with" or "without") .. " attn_k_b, only " .. want
                                       .. " is")
                end
        end
        local name = split and "attention.key_length_mla" or "attention.key_length"
        if split then
                for _, of in ipairs { "attention.key_length_mla", "attention.value_length_mla" } do
                        if not m.meta[m.arch .. "." .. of] then
                                refuse(m.arch .. "." .. of, "is missing")
                        end
                end
                must("attention.key_length", rank + rope)
                must("attention.value_length", rank)
                config.v_head_dim,
                config.tgc_kv_b_split = m.meta[m.arch .. ".attention.value_length_mla"], true
        end
        must("attention.head_count_kv", split and 1 or m.heads)
        local nope = m.meta[m.arch .. "." .. name] - rope
        if nope < 1 then
                refuse(m.arch .. "." .. name, nope + rope .. " leaves nothing beside " .. rope
                       .. " rotary elements")
        end
        config.num_key_value_heads, config.head_dim, config.qk_nope_head_dim = m.heads, nil, nope
end

-- The published files of V2-Lite alone have no key of groups, and no groups.
local function groups(m, config)
        local three, key = config.model_type == "deepseek_v3", m.arch .. ".expert_group_count"
        if not config.n_group and (three or config.n_routed_experts > 64) then
                refuse(key, "is missing: which experts may be chosen depends on it")
        end
        config.n_group, config.topk_group = config.n_group or 1, config.topk_group or 1
        if not three then
                config.topk_method = config.n_group > 1 and "group_limited_greedy" or "greedy"
        end
end

local keys = {
        ["attention.key_length"] = rules.free, ["attention.value_length"] = "v_head_dim",
        ["attention.key_length_mla"] = rules.free, ["attention.value_length_mla"] = rules.free,
        ["attention.q_lora_rank"] = "q_lora_rank", ["attention.kv_lora_rank"] = "kv_lora_rank",
        ["rope.dimension_count"] = "qk_rope_head_dim",
        -- 0.1 of the folder's mscale_all_dim; cosines are scaled by mscale over it, and published
        -- models have both alike
        ["rope.scaling.yarn_log_multiplier"] = function(v, _, config)
                config.rope_scaling = config.rope_scaling or {}
                config.rope_scaling.mscale, config.rope_scaling.mscale_all_dim = v * 10, v * 10
        end,
        leading_dense_block_count = "first_k_dense_replace", expert_count = "n_routed_experts",
        expert_used_count = "num_experts_per_tok", expert_shared_count = "n_shared_experts",
        expert_feed_forward_length = "moe_intermediate_size",
        expert_weights_scale = "routed_scaling_factor",
        expert_weights_norm = function(v, m, config, key)
                if config.model_type == "deepseek_v3" then
                        config.norm_topk_prob = v
                elseif v then
                        refuse(key, show(v) .. " is not supported beside softmax")
                end
        end,
        expert_gating_func = only(1, 2), expert_group_count = "n_group",
        expert_group_used_count = "topk_group",
}

return {
        deepseek2 = {
                words = true, prefix = "model.layers.%d.",
                type = function(m) return m.meta[m.arch .. ".expert_gating_func"] == 2
                        and "deepseek_v3" or "deepseek_v2" end,
                types = { "deepseek_v2", "deepseek_v3" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.kv_lora_rank",
                          "attention.key_length",
                          "attention.value_length", "rope.dimension_count",
                          "leading_dense_block_count", "expert_count",
                          "expert_used_count", "expert_shared_count", "expert_feed_forward_length",
                          "expert_weights_scale" },
                keys = keys,
                say = {
                        ["attention.head_count_kv"] = function(_, m, p) return p.kv_split and 1
                                or m.heads end,
                        ["attention.key_length"] = function(_, _, p) return p.head_dim
                                + (p.kv_split and p.kv_rank or p.nope_dim) end,
                        ["attention.value_length"] = function(_, _, p) return p.kv_split
                                and p.kv_rank or p.v_dim end,
                        ["attention.key_length_mla"] = function(_, _, p) return p.kv_split
                                and p.nope_dim + p.head_dim end,
                        ["attention.value_length_mla"] = function(_, _, p) return p.kv_split
                                and p.v_dim end,
                        ["rope.dimension_count"] = function(_, _, p) return p.head_dim end,
                        ["rope.scaling.yarn_log_multiplier"] = function(c, _, p)
                                local r = c[require("config").rope_key(c)]
                                return p.rope_scaling == "yarn" and r.mscale_all_dim
                                        and r.mscale_all_dim ~= 0 and r.mscale_all_dim / 10
                        end,
                        expert_weights_norm = function(_, _, p) return p.renorm end,
                        expert_gating_func = function(_, _, p) return p.sigmoid and 2 or 1 end,
                        expert_group_count = function(_, _, p) return p.n_group end,
                        expert_group_used_count = function(_, _, p) return p.top_group end,
                },
                config = function(m, config)
                        heads(m, config)
                        groups(m, config)
                        if config.q_lora_rank == nil then config.q_lora_rank = json_null end
                        config.attention_bias = rules.has(m, "attn_kv_a_mqa.bias")
                end,
                outer = { token_embd = "model.embed_tokens", output_norm = "model.norm",
                          output = "lm_head" },
                layer = set({
                        attn_norm = "input_layernorm", attn_q = "self_attn.q_proj",
                        attn_q_a = "self_attn.q_a_proj", attn_q_a_norm = "self_attn.q_a_layernorm",
                        attn_q_b = "self_attn.q_b_proj",
                        attn_kv_a_mqa = "self_attn.kv_a_proj_with_mqa",
                        attn_kv_a_norm = "self_attn.kv_a_layernorm",
                        attn_kv_b = "self_attn.kv_b_proj", attn_k_b = "self_attn.k_b_proj",
                        attn_v_b = "self_attn.v_b_proj", attn_output = "self_attn.o_proj",
                        ffn_norm = "post_attention_layernorm", ffn_gate = "mlp.gate_proj",
                        ffn_up = "mlp.up_proj", ffn_down = "mlp.down_proj",
                        ffn_gate_inp = "mlp.gate",
                        exp_probs_b = { bias = "mlp.gate.e_score_correction_bias" },
                        ffn_gate_shexp = "mlp.shared_experts.gate_proj",
                        ffn_up_shexp = "mlp.shared_experts.up_proj",
                        ffn_down_shexp = "mlp.shared_experts.down_proj",
                }, rules.experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
                                 "mlp.experts.%d.down_proj")),
        },
}
