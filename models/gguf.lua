-- gguf.lua: what a GGUF file says of its model, in the words of a Hugging Face folder: a config.json, which
-- families.lua and config_keys.lua then read, and for each tensor which of the folder's it makes, and how
-- (runtime/weights/weight_map.h).  A row of `architectures` for each general.architecture:
--
--      type      model_type: a word, or a function(m)
--      keys      GGUF's keys below the architecture's name: the word in config.json, `free` (changes no logit), or
--                a function(value, m, config, key)
--      needs     keys that must be there, besides those of all
--      config    function(m, config): what else the configuration has
--      outer     tensors outside of blocks: GGUF's name without .weight or .bias -> the folder's
--      layer     the same in blocks, below `prefix`; {expert = "experts.%d.w1"}: (E,N,K) is a tensor for each expert
--      steps     transforms by GGUF's name: a text, or a function(m, suffix)
--      words     the folder's configuration has Llama's words: num_key_value_heads, head_dim, rope_theta
--      types     model_types that become this architecture, where that is not `type` alone
--      say       what a file gets under a key, where `keys` has a function: function(c, m, p), of config.json's
--                keys with their defaults, sizes, and the model's parameters
--      ignore    tensors that the configuration has taken in
--
-- The table is read in both directions: gguf.read makes a folder's words of a file's, gguf.write a file's of a
-- folder's, which gguf.read must then understand as the folder was meant.
--
-- A key without a rule is refused, for the logits may depend on it; a tensor without a row, when weights are read.
local gguf = {}

local function refuse(key, what) config_error(key, what) end

local function show(v)
        if type(v) == "string" then return '"' .. v:sub(1, 60) .. '"' end
        return type(v) == "table" and "[...]" or tostring(v)
end

local function free() end

-- v must be one of these.
local function only(...)
        local values = { ... }
        return function(v, m, _, key)
                for _, want in ipairs(values) do
                        if v == want then return end
                end
                refuse(key, show(v) .. " is not supported for " .. m.arch .. ", only " .. show(values[1]) .. " is")
        end
end

-- One number for all layers; a list of equal ones is the same.
local function scalar(v, key)
        if type(v) ~= "table" then return v end
        for _, x in ipairs(v) do
                if x ~= v[1] then refuse(key, "differs from layer to layer, which is not supported") end
        end
        return v[1]
end

-- Rotary positions --------------------------------------------------------------------

local function scaling(config)
        config.rope_scaling = config.rope_scaling or {}
        return config.rope_scaling
end

local kinds = { none = "default", linear = "linear", yarn = "yarn", longrope = "longrope" }

local rope = {
        ["rope.freq_base"] = "rope_theta",
        ["rope.scaling.type"] = function(v, _, config, key)
                if not kinds[v] then refuse(key, show(v) .. " is a kind of scaling that is not known") end
                scaling(config).rope_type = kinds[v]
        end,
        ["rope.scaling.factor"] = function(v, _, config)
                if v ~= 0 then scaling(config).factor = v end
        end,
        ["rope.scale_linear"] = function(v, _, config)          -- older files
                if v ~= 0 then config.rope_scaling = { rope_type = "linear", factor = v } end
        end,
        ["rope.scaling.original_context_length"] = function(v, _, config)
                scaling(config).original_max_position_embeddings = v
        end,
        ["rope.scaling.attn_factor"] = function(v, _, config) scaling(config).attention_factor = v end,
        ["rope.scaling.yarn_beta_fast"] = function(v, _, config) scaling(config).beta_fast = v end,
        ["rope.scaling.yarn_beta_slow"] = function(v, _, config) scaling(config).beta_slow = v end,
        ["rope.scaling.yarn_ext_factor"] = only(1, -1),
        ["rope.scaling.finetuned"] = free,
        -- the part of a head that turns; rows with another rule allow less than all
        ["rope.dimension_count"] = function(v, m, _, key)
                if v ~= m.head_dim then
                        refuse(key, string.format("%s is not supported for %s, only the head's %d is", show(v), m.arch, m.head_dim))
                end
        end,
}

-- A file gives the factors of Llama 3's scaling, not what they were made of.  Of its numbers two are the same in
-- all published models, low 1 and high 4; the others follow, and must give the file's factors.
local function llama3_scaling(values, theta, dims)
        local factor, original = 1, nil
        for _, v in ipairs(values) do factor = math.max(factor, v) end
        local function turns_of(i, context) return context * theta ^ (-2 * i / dims) / (2 * math.pi) end
        for i, v in ipairs(values) do
                if v > 1 and v < factor and not original then
                        local keep = (1 / v - 1 / factor) / (1 - 1 / factor)
                        original = (1 + 3 * keep) / turns_of(i - 1, 1)
                        original = math.floor(original + 0.5)
                end
        end
        if not original then return nil end
        for i, v in ipairs(values) do
                local keep = math.min(math.max((turns_of(i - 1, original) - 1) / 3, 0), 1)
                if math.abs(1 / ((1 - keep) / factor + keep) / v - 1) > 1e-5 then return nil end
        end
        return { rope_type = "llama3", factor = factor, low_freq_factor = 1.0, high_freq_factor = 4.0,
                 original_max_position_embeddings = original }
end

local function rope_freqs(m, config)
        local t, dims = m.tensors["rope_freqs.weight"], m.head_dim
        if not t then return end
        local values, plain = t.values or {}, true
        for _, v in ipairs(values) do plain = plain and v == 1 end
        if #values ~= dims // 2 then refuse("tensor rope_freqs.weight", "is not " .. dims // 2 .. " float32 numbers") end
        if plain then return end
        if config.rope_scaling then refuse("tensor rope_freqs.weight", "is not supported beside keys of rope.scaling") end
        config.rope_scaling = llama3_scaling(values, config.rope_theta, dims)
                or refuse("tensor rope_freqs.weight", "does not hold the factors of Llama 3's scaling of positions, "
                          .. "with frequencies from a quarter of the context on scaled; others are not supported")
end

-- Rows --------------------------------------------------------------------------------

-- One table of several; what is false is not there.
local function set(...)
        local out = {}
        for _, part in ipairs { ... } do
                for key, v in pairs(part) do out[key] = v or nil end
        end
        return out
end

-- What most keys say, in words of Llama's config.json.
local common = set(rope, {
        vocab_size = free, context_length = "max_position_embeddings", embedding_length = "hidden_size",
        block_count = "num_hidden_layers", feed_forward_length = "intermediate_size",
        ["attention.head_count"] = "num_attention_heads", ["attention.head_count_kv"] = "num_key_value_heads",
        ["attention.key_length"] = "head_dim",
        ["attention.value_length"] = function(v, m, _, key)
                if v ~= m.head_dim then refuse(key, show(v) .. " is not supported where keys have " .. m.head_dim) end
        end,
        ["attention.layer_norm_rms_epsilon"] = "rms_norm_eps", ["attention.layer_norm_epsilon"] = "layer_norm_eps",
        ["attention.causal"] = only(true), tensor_data_layout = free, ["attention.group_norm_groups"] = free,
        expert_count = only(0), expert_used_count = only(0),
})
local needed = { "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count" }

local llama_outer = { token_embd = "model.embed_tokens", output_norm = "model.norm", output = "lm_head" }
local llama_layer = {
        attn_norm = "input_layernorm", attn_q = "self_attn.q_proj", attn_k = "self_attn.k_proj",
        attn_v = "self_attn.v_proj", attn_output = "self_attn.o_proj", ffn_norm = "post_attention_layernorm",
        ffn_gate = "mlp.gate_proj", ffn_up = "mlp.up_proj", ffn_down = "mlp.down_proj",
}
local qk_norms = { attn_q_norm = "self_attn.q_norm", attn_k_norm = "self_attn.k_norm" }

-- Norms behind attention and MLP, none before them.
local behind = { attn_norm = false, ffn_norm = false, post_attention_norm = "post_attention_layernorm",
                 post_ffw_norm = "post_feedforward_layernorm" }

local function experts(gate, up, down)
        return { ffn_gate_exps = { expert = gate }, ffn_up_exps = { expert = up }, ffn_down_exps = { expert = down } }
end

local function llama_like(t)
        return set({ words = true, prefix = "model.layers.%d.", outer = llama_outer, layer = llama_layer,
                     needs = { "attention.layer_norm_rms_epsilon" } }, t)
end

-- Rotary pairs are neighbours here, and half a head apart in the folder.
local turned = { attn_q = function(m) return "unrope " .. m.heads end,
                 attn_k = function(m) return "unrope " .. m.kv_heads end }

-- Linears of gpt2's folder are (K,N).
local function transposed(_, suffix) return suffix == ".weight" and "t" end

-- q, k and v lie one behind the other here, and in the folder those of a group of heads together.
local function grouped(m) return "group " .. m.heads .. " " .. m.kv_heads end

local function has(m, name) return m.tensors["blk.0." .. name] ~= nil end

local function biases(m, config)
        config.attention_bias = has(m, "attn_q.bias") or has(m, "attn_output.bias")
end

local architectures = {
        llama = llama_like {
                type = function(m) return (m.meta["llama.expert_count"] or 0) > 0 and "mixtral" or "llama" end,
                types = { "llama", "mistral", "mixtral" },
                say = { expert_count = function(c) return c.num_local_experts end,
                        expert_used_count = function(c) return c.num_local_experts and c.num_experts_per_tok end },
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
                            experts("block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",
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
                        config.norm_topk_prob = true            -- GGUF has no key; all published models do
                end,
                layer = set(llama_layer, qk_norms, { ffn_gate_inp = "mlp.gate" },
                            experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj")),
        },
        gemma2 = llama_like {
                type = "gemma2",
                keys = {
                        ["attention.sliding_window"] = "sliding_window", attn_logit_softcapping = "attn_logit_softcapping",
                        final_logit_softcapping = "final_logit_softcapping",
                },
                config = function(m, config)
                        -- GGUF has no key: of the published models one, of 27B, scales by the mean width of a head
                        config.query_pre_attn_scalar = config.num_hidden_layers == 46
                                and config.hidden_size // config.num_attention_heads or m.head_dim
                        config.attention_bias = has(m, "attn_q.bias")
                end,
                layer = set(llama_layer, {
                        post_attention_norm = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
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
                keys = { ["attention.sliding_window"] = "sliding_window", final_logit_softcapping = "final_logit_softcapping" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.sliding_window", "rope.freq_base" },
                config = function(m, config)
                        -- as for gemma2; here the model of 27B has 62 layers
                        config.query_pre_attn_scalar = config.num_hidden_layers == 62
                                and config.hidden_size // config.num_attention_heads or m.head_dim
                end,
                layer = set(llama_layer, qk_norms, {
                        post_attention_norm = "post_attention_layernorm", ffn_norm = "pre_feedforward_layernorm",
                        post_ffw_norm = "post_feedforward_layernorm",
                }),
                steps = { attn_norm = "add -1", post_attention_norm = "add -1", ffn_norm = "add -1", post_ffw_norm = "add -1",
                          output_norm = "add -1", attn_q_norm = "add -1", attn_k_norm = "add -1" },
        },
        olmo2 = llama_like {
                type = "olmo2", config = biases,
                layer = set(llama_layer, qk_norms, behind),
        },
        smollm3 = llama_like {                                  -- every fourth layer has no rotary positions, in both
                type = "smollm3", config = biases, steps = turned,
        },
        granite = llama_like {
                type = "granite",
                keys = { ["attention.scale"] = "attention_multiplier", embedding_scale = "embedding_multiplier",
                         residual_scale = "residual_multiplier", logit_scale = "logits_scaling" },
                needs = { "attention.layer_norm_rms_epsilon", "attention.scale", "embedding_scale", "residual_scale",
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
                        ["rope.scaling.original_context_length"] = function(c) return c.original_max_position_embeddings end },
                keys = {
                        ["attention.sliding_window"] = function(v, _, config)
                                if v > 0 then config.sliding_window = v end
                        end,
                        ["rope.dimension_count"] = function(v, m, config) config.partial_rotary_factor = v / m.head_dim end,
                        ["rope.scaling.original_context_length"] = function(v, _, config)
                                config.original_max_position_embeddings = v
                        end,
                },
                config = function(m)
                        for _, name in ipairs { "rope_factors_long.weight", "rope_factors_short.weight" } do
                                if m.tensors[name] then
                                        refuse("tensor " .. name, "scaling of positions by factors (longrope) is not supported")
                                end
                        end
                end,
                layer = set(llama_layer, { attn_qkv = "self_attn.qkv_proj", ffn_up = "mlp.gate_up_proj" }),
        },
        olmoe = llama_like {
                type = "olmoe",
                keys = { expert_count = "num_experts", expert_used_count = "num_experts_per_tok" },
                needs = { "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count" },
                config = function(m, config)
                        biases(m, config)
                        config.norm_topk_prob, config.head_dim = false, nil     -- as all published models
                end,
                layer = set(llama_layer, qk_norms, { ffn_gate_inp = "mlp.gate" },
                            experts("mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj")),
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
                         ["rope.dimension_count"] = function(v, m, config) config.partial_rotary_factor = v / m.head_dim end },
                needs = { "attention.layer_norm_epsilon", "use_parallel_residual", "rope.dimension_count" },
                config = function(m, config)
                        config.use_qkv_bias, config.qk_layernorm = has(m, "attn_q.bias"), has(m, "attn_q_norm.weight")
                        config.head_dim = nil
                end,
                -- a gain for each head, one behind the other
                layer = set(llama_layer, { attn_q_norm = { expert = "self_attn.q_layernorm.norms.%d" },
                                           attn_k_norm = { expert = "self_attn.k_layernorm.norms.%d" } }),
        },
        phi2 = llama_like {
                type = "phi",
                keys = { ["rope.dimension_count"] = function(v, m, config) config.partial_rotary_factor = v / m.head_dim end },
                needs = { "attention.layer_norm_epsilon", "rope.dimension_count" },
                config = function(_, config) config.head_dim = nil end,
                outer = { token_embd = "model.embed_tokens", output_norm = "model.final_layernorm", output = "lm_head" },
                layer = { attn_norm = "input_layernorm", attn_q = "self_attn.q_proj", attn_k = "self_attn.k_proj",
                          attn_v = "self_attn.v_proj", attn_output = "self_attn.dense", ffn_up = "mlp.fc1",
                          ffn_down = "mlp.fc2" },
        },
        olmo = llama_like {
                type = "olmo",
                say = { ["attention.layer_norm_epsilon"] = function() return 1e-5 end },
                keys = {
                        ["attention.clamp_kqv"] = "clip_qkv",
                        ["attention.layer_norm_epsilon"] = function(v, _, _, key)
                                if math.abs(v - 1e-5) > 1e-10 then refuse(key, show(v) .. " is not supported for olmo, only 1e-5 is") end
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
                -- the model without windows, of 1.2B (the key that tells windows is refused): every layer turns, and sees
                -- a window that nothing lies outside of
                config = function(m, config)
                        rope_freqs(m, config)
                        config.sliding_window, config.layer_types = config.max_position_embeddings, {}
                        for i = 1, config.num_hidden_layers do config.layer_types[i] = "sliding_attention" end
                end,
                layer = set(llama_layer, qk_norms, behind),
                ignore = { "rope_freqs.weight" },
        },
        glm4 = llama_like {                                     -- rotary pairs are neighbours, in both
                type = "glm4",
                keys = { ["rope.dimension_count"] = function(v, m, config) config.partial_rotary_factor = v / m.head_dim end },
                needs = { "attention.layer_norm_rms_epsilon", "rope.dimension_count" },
                config = biases,
                layer = set(llama_layer, {
                        post_attention_norm = "post_self_attn_layernorm", post_ffw_norm = "post_mlp_layernorm",
                        ffn_up = "mlp.gate_up_proj",
                }),
        },
        ["command-r"] = llama_like {                            -- rotary pairs are neighbours, in both
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
        bloom = {
                type = "bloom",
                keys = { context_length = "seq_length", block_count = "n_layer", ["attention.head_count"] = "n_head",
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         ["attention.head_count_kv"] = function(v, m, _, key)
                                if v ~= m.heads then refuse(key, show(v) .. " is not supported for bloom") end
                         end,
                         feed_forward_length = function(v, m, _, key)
                                if v ~= 4 * m.meta["bloom.embedding_length"] then refuse(key, show(v) .. " is not supported") end
                         end },
                needs = { "attention.layer_norm_epsilon" },
                outer = { token_embd = "transformer.word_embeddings", token_embd_norm = "transformer.word_embeddings_layernorm",
                          output_norm = "transformer.ln_f", output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = { attn_norm = "input_layernorm", attn_qkv = "self_attention.query_key_value",
                          attn_output = "self_attention.dense", ffn_norm = "post_attention_layernorm",
                          ffn_up = "mlp.dense_h_to_4h", ffn_down = "mlp.dense_4h_to_h" },
                steps = { attn_qkv = grouped },
        },
        gpt2 = {
                type = "gpt2",
                keys = { context_length = "n_positions", embedding_length = "n_embd", block_count = "n_layer",
                         feed_forward_length = "n_inner", ["attention.head_count"] = "n_head",
                         ["attention.head_count_kv"] = function(v, m, _, key)
                                if v ~= m.heads then refuse(key, show(v) .. " is not supported for gpt2") end
                         end,
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon" },
                needs = { "attention.layer_norm_epsilon" },
                outer = { token_embd = "transformer.wte", position_embd = "transformer.wpe", output_norm = "transformer.ln_f",
                          output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = { attn_norm = "ln_1", attn_qkv = "attn.c_attn", attn_output = "attn.c_proj", ffn_norm = "ln_2",
                          ffn_up = "mlp.c_fc", ffn_down = "mlp.c_proj" },
                -- the folder has its linears transposed
                steps = { attn_qkv = transposed, attn_output = transposed, ffn_up = transposed, ffn_down = transposed },
        },
        gptneox = {
                type = "gpt_neox",
                keys = { use_parallel_residual = "use_parallel_residual",
                         ["rope.dimension_count"] = function(v, m, config) config.rotary_pct = v / m.head_dim end,
                         ["rope.freq_base"] = "rotary_emb_base",
                         ["attention.head_count_kv"] = function(v, m, _, key)
                                if v ~= m.heads then refuse(key, show(v) .. " is not supported for gptneox") end
                         end },
                needs = { "attention.layer_norm_epsilon", "rope.dimension_count", "use_parallel_residual" },
                outer = { token_embd = "gpt_neox.embed_in", output_norm = "gpt_neox.final_layer_norm", output = "embed_out" },
                prefix = "gpt_neox.layers.%d.",
                layer = { attn_norm = "input_layernorm", attn_qkv = "attention.query_key_value",
                          attn_output = "attention.dense", ffn_norm = "post_attention_layernorm",
                          ffn_up = "mlp.dense_h_to_4h", ffn_down = "mlp.dense_4h_to_h" },
                steps = { attn_qkv = grouped },
        },
        falcon = {
                type = "falcon",
                say = { ["attention.head_count_kv"] = function(_, m) return m.kv_heads end,
                        tensor_data_layout = function() return "jploski" end },
                keys = { feed_forward_length = "ffn_hidden_size", ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         ["attention.head_count_kv"] = "num_kv_heads" },
                needs = { "attention.layer_norm_epsilon" },
                config = function(m, config)
                        local K = config.num_kv_heads or 1
                        config.num_kv_heads = K
                        config.multi_query = K == 1
                        config.new_decoder_architecture = has(m, "attn_norm_2.weight") or K > 1 and K < m.heads
                        if config.new_decoder_architecture then
                                config.num_ln_in_parallel_attn = has(m, "attn_norm_2.weight") and 2 or 1
                        end
                        config.bias = has(m, "attn_qkv.bias")
                end,
                outer = { token_embd = "transformer.word_embeddings", output_norm = "transformer.ln_f", output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = function(m)
                        local two = has(m, "attn_norm_2.weight")
                        return { attn_norm = two and "ln_mlp" or "input_layernorm", attn_norm_2 = "ln_attn",
                                 attn_qkv = "self_attention.query_key_value", attn_output = "self_attention.dense",
                                 ffn_up = "mlp.dense_h_to_4h", ffn_down = "mlp.dense_4h_to_h" }
                end,
                steps = { attn_qkv = grouped },
        },
        mpt = {
                type = "mpt",
                say = { ["attention.max_alibi_bias"] = function() return 8.0 end },
                keys = { context_length = "max_seq_len", embedding_length = "d_model", block_count = "n_layers",
                         ["attention.head_count"] = "n_heads", ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         feed_forward_length = function(v, m, _, key)
                                if v ~= 4 * m.meta["mpt.embedding_length"] then refuse(key, show(v) .. " is not supported") end
                         end,
                         ["attention.head_count_kv"] = function(v, m, _, key)
                                if v ~= m.heads then refuse(key, show(v) .. " is not supported for mpt") end
                         end,
                         ["attention.max_alibi_bias"] = only(8), ["attention.clamp_kqv"] = only(0) },
                needs = { "attention.layer_norm_epsilon", "attention.max_alibi_bias" },
                outer = { token_embd = "transformer.wte", output_norm = "transformer.norm_f", output = "lm_head" },
                prefix = "transformer.blocks.%d.",
                layer = { attn_norm = "norm_1", attn_qkv = "attn.Wqkv", attn_output = "attn.out_proj", ffn_norm = "norm_2",
                          ffn_up = "ffn.up_proj", ffn_down = "ffn.down_proj" },
        },
}

-- Names -------------------------------------------------------------------------------

-- The lines of the tensors base.weight and base.bias, where they are: what they make of the folder's.
local function map_of(m, row, base, entry, head, step, lines)
        for _, suffix in ipairs { ".weight", ".bias" } do
                local name, steps = base .. suffix, step
                local t = m.tensors[name]
                if type(steps) == "function" then steps = steps(m, suffix) end
                steps = steps and " | " .. steps or ""
                if t and type(entry) == "string" then
                        lines[#lines + 1] = "map " .. head .. entry .. suffix .. " = " .. name .. steps
                elseif t then
                        for e = 0, t.shape[1] - 1 do
                                lines[#lines + 1] = string.format("map %s%s%s = %s: %s | index %d%s", head, entry.expert:format(e),
                                                                  suffix, name, table.concat(t.shape, "x"), e, steps)
                        end
                end
        end
end

local function names_of(m, row, n_layer)
        local lines, steps = {}, row.steps or {}
        local layer = type(row.layer) == "function" and row.layer(m) or row.layer
        for base, entry in pairs(row.outer) do map_of(m, row, base, entry, "", steps[base], lines) end
        for i = 0, n_layer - 1 do
                local before = #lines
                for base, entry in pairs(layer) do
                        map_of(m, row, "blk." .. i .. "." .. base, entry, row.prefix:format(i), steps[base], lines)
                end
                if #lines == before then
                        refuse(m.arch .. ".block_count", n_layer .. ", and the file has no tensor of block " .. i)
                end
        end
        for _, name in ipairs(row.ignore or {}) do lines[#lines + 1] = "map ignore " .. name end
        return lines
end

-- Configuration -----------------------------------------------------------------------

local function ids(meta, config)
        config.bos_token_id = meta["tokenizer.ggml.bos_token_id"]
        config.eos_token_id = meta["tokenizer.ggml.eos_token_id"]
end

local function apply_keys(m, row, config)
        local sorted = {}
        for key in pairs(m.meta) do
                if key:sub(1, #m.arch + 1) == m.arch .. "." then sorted[#sorted + 1] = key end
        end
        table.sort(sorted)
        for _, key in ipairs(sorted) do
                local name, v = key:sub(#m.arch + 2), scalar(m.meta[key], key)
                local rule = row.keys and row.keys[name] or common[name]
                if not rule then
                        refuse(key, show(v) .. " is of no key that tgc knows of " .. m.arch .. ", so the logits may depend on it")
                elseif type(rule) == "string" then
                        config[rule] = v
                else
                        rule(v, m, config, key)
                end
        end
end

local function known()
        local out = {}
        for name in pairs(architectures) do out[#out + 1] = name end
        table.sort(out)
        return table.concat(out, ", ")
end

-- meta: what gguf_json wrote.  The configuration and the lines of the names' map; both nil where a model of the
-- user's own is to read the file as it is (own) and no row is there.
function gguf.read(meta, own)
        local arch, tensors = meta["general.architecture"], meta.tensors
        if type(arch) ~= "string" then refuse("general.architecture", "is missing") end
        local row = architectures[arch]
        if not row and own then return nil, nil end
        if not row then
                refuse("general.architecture", "no model is known for '" .. arch .. "'; known are " .. known()
                       .. ".  With a model of your own: tgc compile FILE.gguf --model FILE.lua, whose function `config` gets the "
                       .. "metadata and whose weight maps name the file's tensors (docs/graph-language.md)")
        end
        local m = { arch = arch, meta = meta, tensors = tensors }
        for _, list in ipairs { needed, row.needs or {} } do
                for _, name in ipairs(list) do
                        if meta[arch .. "." .. name] == nil then refuse(arch .. "." .. name, "is missing") end
                end
        end
        local function number(name, default)
                local key = arch .. "." .. name
                local v = scalar(meta[key], key)
                if v == nil then v = default end
                if math.type(v) ~= "integer" or v < 1 then refuse(key, show(v) .. " should be a whole number of at least 1") end
                return v
        end
        m.heads = number "attention.head_count"
        m.kv_heads = number("attention.head_count_kv", m.heads)
        m.head_dim = number("attention.key_length", number "embedding_length" // m.heads)
        local embed = tensors["token_embd.weight"]
        if not embed then refuse("tensor token_embd.weight", "is missing") end
        local config = { model_type = type(row.type) == "function" and row.type(m) or row.type, vocab_size = embed.shape[1],
                         tie_word_embeddings = tensors["output.weight"] == nil }
        if row.words then
                config.num_key_value_heads, config.head_dim, config.rope_theta = m.kv_heads, m.head_dim, 10000.0
        end
        apply_keys(m, row, config)
        if row.config then row.config(m, config) end
        ids(meta, config)
        return config, names_of(m, row, number "block_count")
end

-- The other direction -------------------------------------------------------------------

-- Where a rule does not say it, or config.json may leave it out.
local common_say = {
        vocab_size = function(c, m) return m.words and c.vocab_size end,
        feed_forward_length = function(c, m, p)
                return c.intermediate_size or p.n_ff and p.n_ff > 0 and p.n_ff or 4 * m.width
        end,
        ["attention.head_count_kv"] = function(_, m) return m.arch ~= "gpt2" and m.kv_heads end,
        ["attention.key_length"] = function(_, m) return m.own_width and m.head_dim end,
        ["attention.value_length"] = function(_, m) return m.own_width and m.head_dim end,
        ["rope.freq_base"] = function(_, _, p) return p.rotary ~= 0 and p.rope_theta end,
        ["rope.dimension_count"] = function(_, m, p)
                return p.rope_theta and p.rotary ~= 0 and math.floor(m.head_dim * (p.rotary or 1))
        end,
        ["rope.scaling.type"] = function(_, _, p)
                return (p.rope_scaling == "linear" or p.rope_scaling == "yarn") and p.rope_scaling
        end,
        ["rope.scaling.factor"] = function(_, _, p)
                return (p.rope_scaling == "linear" or p.rope_scaling == "yarn") and p.rope_factor
        end,
        ["rope.scaling.original_context_length"] = function(_, _, p)
                return p.rope_scaling == "yarn" and p.rope_original
        end,
}

-- Keys that are float32, however the number is written in config.json.
local floats = {}
for _, key in ipairs { "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base", "rope.scaling.factor",
                       "attn_logit_softcapping", "final_logit_softcapping", "attention.scale", "embedding_scale",
                       "residual_scale", "logit_scale", "attention.clamp_kqv", "attention.max_alibi_bias" } do
        floats[key] = true
end

-- Tensors of folders that are no weights.
local buffers = { "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias" }

local function row_for(model_type)
        local names = {}
        for arch in pairs(architectures) do names[#names + 1] = arch end
        table.sort(names)
        local all = {}
        for _, arch in ipairs(names) do
                local row = architectures[arch]
                for _, name in ipairs(row.types or { row.type }) do
                        if name == model_type then return arch, row end
                        all[#all + 1] = name
                end
        end
        table.sort(all)
        refuse("config.json: model_type", show(model_type) .. " has no architecture in GGUF files that tgc writes; these have: "
               .. table.concat(all, ", "))
end

-- The file's tensors as far as their names and shapes go, of the folder's; used[NAME] of those.
local function tensors_for(m, row, folder, tied, used)
        local out = {}
        local function put(base, entry, head, step)
                for _, suffix in ipairs { ".weight", ".bias" } do
                        local steps = type(step) == "function" and step(m, suffix) or step
                        if type(entry) == "string" then
                                local t = folder[head .. entry .. suffix]
                                if t then
                                        used[head .. entry .. suffix] = true
                                        out[base .. suffix] = { shape = steps == "t" and { t.shape[2], t.shape[1] } or t.shape }
                                end
                        else
                                local e, shape = 0, nil
                                while folder[head .. entry.expert:format(e) .. suffix] do
                                        local name = head .. entry.expert:format(e) .. suffix
                                        used[name], shape, e = true, folder[name].shape, e + 1
                                end
                                if shape then out[base .. suffix] = { shape = { e, table.unpack(shape) } } end
                        end
                end
        end
        local steps = row.steps or {}
        for base, entry in pairs(row.outer) do
                if not (tied and base == "output") then put(base, entry, "", steps[base]) end
        end
        m.tensors = out
        for _ = 1, type(row.layer) == "function" and 2 or 1 do  -- names may depend on what there is
                local layer = type(row.layer) == "function" and row.layer(m) or row.layer
                for i = 0, m.layers - 1 do
                        for base, entry in pairs(layer) do
                                local name = "blk." .. i .. "." .. base
                                out[name .. ".weight"], out[name .. ".bias"] = nil, nil
                                put(name, entry, row.prefix:format(i), steps[base])
                        end
                end
        end
        return out
end

local function rest_of(row, folder, used, tied)
        local out = {}
        for name in pairs(folder) do
                local free = used[name] or tied and name == row.outer.output .. ".weight"
                for _, pattern in ipairs(buffers) do free = free or name:sub(-#pattern) == pattern end
                if not free then out[#out + 1] = name end
        end
        table.sort(out)
        return out
end

-- Llama 3's factors, as the file has them: what each frequency is divided by.
local function llama3_factors(p, dims)
        local out = {}
        for i = 0, dims // 2 - 1 do
                local turns = p.rope_original * p.rope_theta ^ (-2 * i / dims) / (2 * math.pi)
                local keep = math.min(math.max((turns - p.rope_low) / (p.rope_high - p.rope_low), 0), 1)
                out[#out + 1] = 1 / ((1 - keep) / p.rope_factor + keep)
        end
        return out
end

-- Parameters that change logits, and differ.
local function differs(a, b)
        local names, out = {}, {}
        for _, p in ipairs { a, b } do
                for key in pairs(p) do names[key] = true end
        end
        local plain = a.rope_scaling == "none" and b.rope_scaling == "none"
        for key in pairs(names) do
                local x, y = a[key], b[key]
                if key == "n_ff" then x, y = x == 0 and 4 * a.n_embd or x, y == 0 and 4 * b.n_embd or y end
                local same = x == y or type(x) == "number" and type(y) == "number" and math.abs(x - y) <= 1e-6 * math.abs(x)
                local free = key == "std" or key == "dropout" or key:sub(1, 3) == "aux"
                             or plain and key:sub(1, 5) == "rope_" and key ~= "rope_theta" and key ~= "rope_scaling"
                if not same and not free then out[#out + 1] = key end
        end
        table.sort(out)
        return out[1]
end

local function model_of(config)
        local name = require "families"[config.model_type]
        return require(name).config(config, config.model_type)
end

-- folder: { config = config.json, tensors = { NAME = { shape = {...} } } }.  Returns the keys, a list of
-- { NAME, "u32" | "f32" | "bool" | "string", VALUE }, tensors of float32 that the folder has not, by name, the lines of the
-- map, as gguf.read makes them, and the sizes that mixtures ask for.
function gguf.write(folder)
        local raw = folder.config
        local family = require "families"[raw.model_type]
        if not family then refuse("config.json: model_type", show(raw.model_type) .. " is not known") end
        local arch, row = row_for(raw.model_type)
        local c, p = require("config_keys").read(raw, raw.model_type), model_of(raw)
        local function word(key) return c[row.keys and row.keys[key] or common[key]] end
        local m = { arch = arch, words = row.words, heads = word "attention.head_count", layers = word "block_count" }
        m.kv_heads = p.n_kv_head or m.heads
        m.width = word "embedding_length"
        m.head_dim = p.head_dim or m.width // m.heads
        m.own_width = m.words and (c.head_dim ~= nil or m.head_dim * m.heads ~= m.width)
        m.meta = {}                             -- a row's functions may ask, and nothing is there yet
        local tied, used = c.tie_word_embeddings, {}
        local tensors = tensors_for(m, row, folder.tensors, tied, used)
        local rest = rest_of(row, folder.tensors, used, tied)
        if rest[1] then
                refuse("tensor " .. rest[1], "has no name in GGUF files of " .. arch
                       .. (rest[2] and " (nor have " .. #rest - 1 .. " others)" or ""))
        end
        local keys, meta, extra, names = {}, { ["general.architecture"] = arch, tensors = tensors }, {}, {}
        for _, part in ipairs { common, row.keys or {} } do
                for key in pairs(part) do names[key] = true end
        end
        local sorted = {}
        for key in pairs(names) do sorted[#sorted + 1] = key end
        table.sort(sorted)
        for _, key in ipairs(sorted) do
                local say = row.say and row.say[key]
                local rule = row.keys and row.keys[key] or common[key]
                local v
                if say then v = say(c, m, p)
                elseif row.keys and type(row.keys[key]) == "string" and c[rule] ~= nil then v = c[rule]
                elseif common_say[key] then v = common_say[key](c, m, p)
                elseif type(rule) == "string" then v = c[rule] end
                if v ~= nil and v ~= false or type(v) == "boolean" and type(rule) == "string" and c[rule] == false then
                        local kind = floats[key] and "f32" or type(v) == "boolean" and "bool" or type(v) == "string" and "string" or "u32"
                        if kind == "u32" and math.type(v) ~= "integer" then v = math.tointeger(v) or refuse(key, show(v)) end
                        keys[#keys + 1] = { arch .. "." .. key, kind, v }
                        meta[arch .. "." .. key] = v
                end
        end
        if p.rope_scaling == "llama3" then
                extra["rope_freqs.weight"] = llama3_factors(p, m.head_dim)
                tensors["rope_freqs.weight"] = { shape = { m.head_dim // 2 }, values = extra["rope_freqs.weight"] }
        end
        meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"] = nil, nil
        local config, lines = gguf.read(meta, false)
        local key = differs(p, model_of(config))
        if key then
                refuse("config.json", "a GGUF file of " .. arch .. " cannot say what the folder does: " .. key .. " is "
                       .. show(p[key]) .. ", and would be " .. show(model_of(config)[key]))
        end
        return keys, extra, lines, { n_layers = m.layers, heads = m.heads, kv_heads = m.kv_heads, tied = tied,
                                     experts = meta[arch .. ".expert_count"] or 0 }
end

return gguf
