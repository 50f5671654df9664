-- gguf_llama.lua: rows of architectures whose config.json has Llama's words (gguf.lua says what a
-- row holds).
local rules = require "gguf_rules"
local refuse, show, set, has, biases, experts = rules.refuse, rules.show, rules.set, rules.has,
        rules.biases, rules.experts
local rope_freqs, rotary_fraction, window_layers = rules.rope_freqs, rules.rotary_fraction,
        rules.window_layers

local llama_outer = { token_embd = "model.embed_tokens", output_norm = "model.norm",
                      output = "lm_head" }
local llama_layer = {
        attn_norm = "input_layernorm", attn_q = "self_attn.q_proj", attn_k = "self_attn.k_proj",
        attn_v = "self_attn.v_proj", attn_output = "self_attn.o_proj",
        ffn_norm = "post_attention_layernorm", ffn_gate = "mlp.gate_proj", ffn_up = "mlp.up_proj",
        ffn_down = "mlp.down_proj",
}
local qk_norms = { attn_q_norm = "self_attn.q_norm", attn_k_norm = "self_attn.k_norm" }

-- Norms behind attention and MLP, none before them.
local behind = { attn_norm = false, ffn_norm = false,
                 post_attention_norm = "post_attention_layernorm",
                 post_ffw_norm = "post_feedforward_layernorm" }

local function llama_like(t)
        return set({ words = true, prefix = "model.layers.%d.", outer = llama_outer,
                     layer = llama_layer,
                     needs = { "attention.layer_norm_rms_epsilon" } }, t)
end

-- Rotary pairs are neighbours here, and half a head apart in the folder.
local turned = { attn_q = function(m) return "unrope " .. m.heads end,
                 attn_k = function(m) return "unrope " .. m.kv_heads end }

-- longrope's two sets of factors are tensors, and the factor of cosines is a key.
local function longrope(m, config)
        local r, dims = config.rope_scaling or {}, (config.partial_rotary_factor or 1) * m.head_dim
        for _, which in ipairs { "short", "long" } do
                local name = "rope_factors_" .. which .. ".weight"
                local t = m.tensors[name]
                if t and #(t.values or {}) ~= math.floor(dims) // 2 then
                        refuse("tensor " .. name, "is not " .. math.floor(dims) // 2
                               .. " float32 numbers")
                end
                r[which .. "_factor"] = t and t.values
        end
        if not r.short_factor and not r.long_factor then return end
        if not r.short_factor or not r.long_factor or not r.attention_factor
                or not config.original_max_position_embeddings then
                refuse("tensor rope_factors_" .. (r.short_factor and "short" or "long")
                       .. ".weight",
                       "needs the other factors, rope.scaling.attn_factor and "
                       .. "rope.scaling.original_context_length")
        end
        r.rope_type = "longrope"
        config.rope_scaling = r
        if m.head_dim * m.heads == config.hidden_size then config.head_dim = nil end
end

return {
        llama = llama_like {
                type = function(m) return (m.meta["llama.expert_count"] or 0) > 0 and "mixtral"
                        or "llama" end,
                types = { "llama", "mistral", "mixtral" },
                say = { expert_count = function(c) return c.num_local_experts end,
                        expert_used_count = function(c) return c.num_local_experts
                                and c.num_experts_per_tok end },
                keys = {
                        expert_count = function(v, _, config)
                                if v > 0 then config.num_local_experts = v end
                        end,
                        expert_used_count = function(v, _, config)
                                if v > 0 then config.num_experts_per_tok = v end
                        end,
                },
                config = function(m, config)
                        rope_freqs(m, config)
                        if config.model_type == "llama" then
                                biases(m, config)
                                config.mlp_bias = has(m, "ffn_up.bias")
                        end
                end,
                layer = set(llama_layer, { ffn_gate_inp = "block_sparse_moe.gate" },
                            experts("block_sparse_moe.experts.%d.w1",
                                    "block_sparse_moe.experts.%d.w3",
                                    "block_sparse_moe.experts.%d.w2")),
                steps = turned,
                ignore = { "rope_freqs.weight" },
        },
        qwen2 = llama_like { type = "qwen2" },
        qwen3 = llama_like { type = "qwen3", config = biases, layer = set(llama_layer, qk_norms) },
        qwen3moe = llama_like {
                type = "qwen3_moe",
                keys = { expert_count = "num_experts", expert_used_count = "num_experts_per_tok",
                         expert_feed_forward_length = "moe_intermediate_size" },
                needs = { "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count",
                          "expert_feed_forward_length" },
                config = function(m, config)
                        biases(m, config)
                        config.norm_topk_prob = true  -- GGUF has no key; all published models do
                end,
                layer = set(llama_layer, qk_norms, { ffn_gate_inp = "mlp.gate" },
                            experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
                                    "mlp.experts.%d.down_proj")),
        },
        qwen2moe = llama_like {  -- every layer has experts, and a shared one
                type = "qwen2_moe",
                keys = { expert_count = "num_experts", expert_used_count = "num_experts_per_tok",
                         expert_feed_forward_length = "moe_intermediate_size",
                         expert_shared_feed_forward_length = "shared_expert_intermediate_size" },
                needs = { "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count",
                          "expert_feed_forward_length" },
                config = function(m, config)
                        config.norm_topk_prob = false  -- GGUF has no key; llama.cpp does not scale
                                                       -- them
                        config.qkv_bias = has(m, "attn_q.bias")
                        local up = m.tensors["blk.0.ffn_up_shexp.weight"]
                                or refuse("tensor blk.0.ffn_up_shexp.weight",
                                          "is missing: qwen2moe has a shared expert")
                        config.shared_expert_intermediate_size =
                                config.shared_expert_intermediate_size or up.shape[1]
                end,
                layer = set(llama_layer, { ffn_gate = false, ffn_up = false, ffn_down = false,
                                           ffn_gate_inp = "mlp.gate",
                                           ffn_gate_inp_shexp = "mlp.shared_expert_gate",
                                           ffn_gate_shexp = "mlp.shared_expert.gate_proj",
                                           ffn_up_shexp = "mlp.shared_expert.up_proj",
                                           ffn_down_shexp = "mlp.shared_expert.down_proj" },
                            experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
                                    "mlp.experts.%d.down_proj")),
                -- some files have the gate of one row as a vector
                steps = { ffn_gate_inp_shexp = function(m)
                        local t = m.tensors["blk.0.ffn_gate_inp_shexp.weight"]
                        return t and #t.shape == 1 and "reshape 1 " .. t.shape[1]
                end },
        },
        -- Gate and up lie in two tensors here, and their rows in turn in the folder's one: a folder
        -- of a file says it in a key that is tgc's own, tgc_gate_up_split.
        ["gpt-oss"] = llama_like {
                type = "gpt_oss",
                keys = { expert_count = "num_local_experts",
                         expert_used_count = "num_experts_per_tok",
                         expert_feed_forward_length = "intermediate_size",
                         ["attention.sliding_window"] = "sliding_window" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.key_length",
                          "attention.sliding_window",
                          "expert_count", "expert_used_count", "expert_feed_forward_length",
                          "rope.freq_base",
                          "rope.scaling.type" },
                config = function(_, config)
                        config.tgc_gate_up_split = true
                        -- GGUF has no key; all published models do not round where YaRN begins and
                        -- ends
                        config.rope_scaling.truncate = false
                        config.rope_scaling.beta_fast = config.rope_scaling.beta_fast or 32.0
                        config.rope_scaling.beta_slow = config.rope_scaling.beta_slow or 1.0
                        config.rope_parameters = set(config.rope_scaling,
                                                     { rope_theta = config.rope_theta })
                        config.rope_scaling, config.rope_theta = nil, nil
                end,
                layer = set(llama_layer, {
                        ffn_norm = false, ffn_gate = false, ffn_up = false, ffn_down = false,
                        attn_sinks = { weight = "self_attn.sinks" },
                        post_attention_norm = "post_attention_layernorm",
                        ffn_gate_inp = "mlp.router",
                        ffn_gate_exps = { weight = "mlp.experts.gate_proj",
                                          bias = "mlp.experts.gate_proj_bias" },
                        ffn_up_exps = { weight = "mlp.experts.up_proj",
                                        bias = "mlp.experts.up_proj_bias" },
                        ffn_down_exps = { weight = "mlp.experts.down_proj",
                                          bias = "mlp.experts.down_proj_bias" },
                }),
        },
        gemma2 = llama_like {
                type = "gemma2",
                keys = {
                        ["attention.sliding_window"] = "sliding_window",
                        attn_logit_softcapping = "attn_logit_softcapping",
                        final_logit_softcapping = "final_logit_softcapping",
                },
                config = function(m, config)
                        -- GGUF has no key: of the published models one, of 27B, scales by the mean
                        -- width of a head
                        config.query_pre_attn_scalar = config.num_hidden_layers == 46
                                and config.hidden_size // config.num_attention_heads or m.head_dim
                        config.attention_bias = has(m, "attn_q.bias")
                end,
                layer = set(llama_layer, {
                        post_attention_norm = "post_attention_layernorm",
                        ffn_norm = "pre_feedforward_layernorm",
                        post_ffw_norm = "post_feedforward_layernorm",
                }),
                -- gains are stored plus 1
                steps = { attn_norm = "add -1", post_attention_norm = "add -1", ffn_norm = "add -1",
                          post_ffw_norm = "add -1", output_norm = "add -1" },
        },
        gemma = llama_like {
                type = "gemma",
                steps = { attn_norm = "add -1", ffn_norm = "add -1", output_norm = "add -1" },
        },
        gemma3 = llama_like {
                type = "gemma3_text",
                keys = { ["attention.sliding_window"] = "sliding_window",
                         final_logit_softcapping = "final_logit_softcapping" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.sliding_window",
                          "rope.freq_base" },
                config = function(m, config)
                        -- as for gemma2; here the model of 27B has 62 layers
                        config.query_pre_attn_scalar = config.num_hidden_layers == 62
                                and config.hidden_size // config.num_attention_heads or m.head_dim
                end,
                layer = set(llama_layer, qk_norms, {
                        post_attention_norm = "post_attention_layernorm",
                        ffn_norm = "pre_feedforward_layernorm",
                        post_ffw_norm = "post_feedforward_layernorm",
                }),
                steps = { attn_norm = "add -1", post_attention_norm = "add -1", ffn_norm = "add -1",
                          post_ffw_norm = "add -1",
                          output_norm = "add -1", attn_q_norm = "add -1", attn_k_norm = "add -1" },
        },
        olmo2 = llama_like {  -- with windows it is OLMo 3, whose near layers do not scale theirs
                type = function(m) return m.meta["olmo2.attention.sliding_window"] and "olmo3"
                        or "olmo2" end,
                types = { "olmo2", "olmo3" },
                say = { ["attention.sliding_window_pattern"] = rules.say_windows },
                keys = { ["attention.sliding_window"] = "sliding_window",
                         ["attention.sliding_window_pattern"] = rules.free },
                config = function(m, config)
                        biases(m, config)
                        if not config.sliding_window then return end
                        config.layer_types = window_layers(m, config, 4)
                        config.rope_parameters = {
                                full_attention = set({ rope_type = "default" }, config.rope_scaling
                                                     or {}, { rope_theta = config.rope_theta }),
                                sliding_attention = { rope_type = "default",
                                                      rope_theta = config.rope_theta },
                        }
                        config.rope_scaling, config.rope_theta = nil, nil
                end,
                layer = set(llama_layer, qk_norms, behind),
        },
        smollm3 = llama_like {  -- every fourth layer has no rotary positions, in both
                type = "smollm3", config = biases, steps = turned,
        },
        granite = llama_like {
                type = "granite",
                keys = { ["attention.scale"] = "attention_multiplier",
                         embedding_scale = "embedding_multiplier",
                         residual_scale = "residual_multiplier", logit_scale = "logits_scaling" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.scale", "embedding_scale",
                          "residual_scale",
                          "logit_scale" },
                config = function(m, config)
                        biases(m, config)
                        config.mlp_bias = has(m, "ffn_up.bias")
                end,
                steps = turned,
        },
        phi3 = llama_like {
                type = "phi3",
                say = { ["attention.sliding_window"] = function(c) return c.sliding_window or 0 end,
                        ["rope.scaling.original_context_length"] = function(c)
                                return c.original_max_position_embeddings end },
                keys = {
                        ["attention.sliding_window"] = function(v, _, config)
                                if v > 0 then config.sliding_window = v end
                        end,
                        ["rope.dimension_count"] = rotary_fraction "partial_rotary_factor",
                        ["rope.scaling.original_context_length"] = function(v, _, config)
                                config.original_max_position_embeddings = v
                        end,
                },
                config = longrope,
                ignore = { "rope_factors_long.weight", "rope_factors_short.weight" },
                layer = set(llama_layer,
                            { attn_qkv = "self_attn.qkv_proj", ffn_up = "mlp.gate_up_proj" }),
        },
        olmoe = llama_like {
                type = "olmoe",
                keys = { expert_count = "num_experts", expert_used_count = "num_experts_per_tok" },
                needs = { "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count" },
                config = function(m, config)
                        biases(m, config)
                        -- as all published models
                        config.norm_topk_prob, config.head_dim = false, nil
                end,
                layer = set(llama_layer, qk_norms, { ffn_gate_inp = "mlp.gate" },
                            experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
                                    "mlp.experts.%d.down_proj")),
        },
        starcoder2 = llama_like {
                type = "starcoder2",
                keys = { ["attention.layer_norm_epsilon"] = "norm_epsilon" },
                needs = { "attention.layer_norm_epsilon" },
                config = function(m, config)
                        config.use_bias = has(m, "attn_q.bias")
                        -- the converter leaves the window out, and llama.cpp attends to everything
                        config.sliding_window, config.head_dim = nil, nil
                end,
                layer = set(llama_layer, { ffn_up = "mlp.c_fc", ffn_down = "mlp.c_proj" }),
        },
        stablelm = llama_like {
                type = "stablelm",
                keys = { use_parallel_residual = "use_parallel_residual",
                         ["rope.dimension_count"] = rotary_fraction "partial_rotary_factor" },
                needs = { "attention.layer_norm_epsilon", "use_parallel_residual",
                          "rope.dimension_count" },
                config = function(m, config)
                        config.use_qkv_bias, config.qk_layernorm = has(m, "attn_q.bias"),
                        has(m, "attn_q_norm.weight")
                        config.head_dim = nil
                end,
                -- a gain for each head, one behind the other
                layer = set(llama_layer,
                            { attn_q_norm = { expert = "self_attn.q_layernorm.norms.%d" },
                                           attn_k_norm =
                                                   { expert = "self_attn.k_layernorm.norms.%d" } }),
        },
        phi2 = llama_like {
                type = "phi",
                keys = { ["rope.dimension_count"] = rotary_fraction "partial_rotary_factor" },
                needs = { "attention.layer_norm_epsilon", "rope.dimension_count" },
                config = function(_, config) config.head_dim = nil end,
                outer = { token_embd = "model.embed_tokens", output_norm = "model.final_layernorm",
                          output = "lm_head" },
                layer = { attn_norm = "input_layernorm", attn_q = "self_attn.q_proj",
                          attn_k = "self_attn.k_proj",
                          attn_v = "self_attn.v_proj", attn_output = "self_attn.dense",
                          ffn_up = "mlp.fc1",
                          ffn_down = "mlp.fc2" },
        },
        olmo = llama_like {
                type = "olmo",
                say = { ["attention.layer_norm_epsilon"] = function() return 1e-5 end },
                keys = {
                        ["attention.clamp_kqv"] = "clip_qkv",
                        ["attention.layer_norm_epsilon"] = function(v, _, _, key)
                                if math.abs(v - 1e-5) > 1e-10 then
                                        refuse(key, show(v) .. " is not supported for olmo, only "
                                        .. "1e-5 is")
                                end
                        end,
                },
                needs = { "attention.layer_norm_epsilon" },
                config = function(m, config)
                        biases(m, config)
                        config.head_dim = nil
                end,
                steps = turned,
        },
        exaone4 = llama_like {
                type = "exaone4",
                say = { ["attention.sliding_window"] = function(_, _, p) return p.window > 0
                        and p.window < p.ctx and p.window end,
                        ["attention.sliding_window_pattern"] = function(c, m, p)
                                return p.window < p.ctx and rules.say_windows(c, m, p)
                        end },
                keys = { ["attention.sliding_window"] = "sliding_window",
                         ["attention.sliding_window_pattern"] = rules.free },
                config = function(m, config)
                        rope_freqs(m, config)
                        if config.sliding_window then
                                config.layer_types = window_layers(m, config, 4)
                                return
                        end
                        -- the model of 1.2B: every layer turns, and sees a window that nothing lies
                        -- outside of
                        config.sliding_window, config.layer_types = config.max_position_embeddings,
                        {}
                        for i = 1, config.num_hidden_layers do
                                config.layer_types[i] = "sliding_attention"
                        end
                end,
                layer = set(llama_layer, qk_norms, behind),
                ignore = { "rope_freqs.weight" },
        },
        glm4 = llama_like {  -- rotary pairs are neighbours, in both
                type = "glm4",
                keys = { ["rope.dimension_count"] = rotary_fraction "partial_rotary_factor" },
                needs = { "attention.layer_norm_rms_epsilon", "rope.dimension_count" },
                config = biases,
                layer = set(llama_layer, {
                        post_attention_norm = "post_self_attn_layernorm",
                        post_ffw_norm = "post_mlp_layernorm", ffn_up = "mlp.gate_up_proj",
                }),
        },
        chatglm = llama_like {  -- rotary pairs are neighbours, in both; q, k and v may be one
                                -- tensor
                type = "glm",
                keys = { ["rope.dimension_count"] = rotary_fraction "partial_rotary_factor" },
                needs = { "attention.layer_norm_rms_epsilon", "rope.dimension_count" },
                config = function(m, config) config.attention_bias = has(m, "attn_q.bias")
                        or has(m, "attn_qkv.bias") end,
                layer = function(m)
                        local q, k = m.heads * m.head_dim, m.kv_heads * m.head_dim
                        return set(llama_layer, { ffn_up = "mlp.gate_up_proj", attn_qkv = { rows = {
                                { "self_attn.q_proj", 0, q }, { "self_attn.k_proj", q, q + k },
                                { "self_attn.v_proj", q + k, q + 2 * k },
                        } } })
                end,
        },
        ernie4_5 = llama_like {  -- rotary pairs are neighbours, in both
                type = "ernie4_5",
                config = function(m, config) config.use_bias = has(m, "attn_q.bias") end,
        },
        ["hunyuan-dense"] = llama_like {
                type = "hunyuan_v1_dense", config = biases,
                layer = set(llama_layer,
                            { attn_q_norm = "self_attn.query_layernorm",
                              attn_k_norm = "self_attn.key_layernorm" }),
        },
        cohere2 = llama_like {  -- rotary pairs are neighbours, in both
                type = "cohere2",
                say = { ["rope.scaling.type"] = function() return "none" end },
                keys = { logit_scale = "logit_scale",
                         ["attention.sliding_window"] = "sliding_window" },
                needs = { "attention.layer_norm_epsilon", "logit_scale",
                          "attention.sliding_window" },
                config = function(m, config)
                        config.layer_types, config.attention_bias = window_layers(m, config, 4),
                        has(m, "attn_q.bias")
                        config.head_dim = nil
                end,
        },
        ["command-r"] = llama_like {  -- rotary pairs are neighbours, in both
                type = "cohere",
                say = { ["rope.scaling.type"] = function() return "none" end },
                keys = { logit_scale = "logit_scale" },
                needs = { "attention.layer_norm_epsilon", "logit_scale" },
                config = function(m, config)
                        biases(m, config)
                        config.use_qk_norm, config.head_dim = has(m, "attn_q_norm.weight"), nil
                end,
                layer = set(llama_layer, qk_norms),
        },
}
