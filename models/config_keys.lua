-- config_keys.lua: which keys a config.json may have, by family, with the defaults of
-- transformers' classes (5.23).  tests/e2e/families/variants.py compares every one of them.
local config = require "config"
local b = require "blocks"
local free, null, only, opt, maybe, same, object = config.free, config.null, config.only,
        config.opt, config.maybe,
                                                   config.same, config.object
local function act(default) return config.word(default, b.knows_activation) end

local function set(...)
        local out = {}
        for _, part in ipairs { ... } do config.with(out, part) end
        return out
end

-- Keys that say nothing about the logits, a list of words as a table.
local function none(...)
        local out = {}
        for _, key in ipairs { ... } do out[key] = free end
        return out
end

local common = set(none(
        "model_type", "architectures", "auto_map", "transformers_version", "transformers.js_config",
        "dtype", "torch_dtype", "name_or_path", "_name_or_path", "_commit_hash",
        "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
        "_num_labels", "tokenizer_class", "unsloth_version", "unsloth_fixed",
        -- ids: those of begin and end are read beside this
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
        -- training, other tasks, what a forward pass returns
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
        "task_specific_params", "prefix", "classifier_dropout", "neftune_noise_alpha",
        "gradient_checkpointing", "output_hidden_states", "output_attentions", "return_dict",
        "use_cache", "chunk_size_feed_forward", "tie_last_hidden_states", "tie_encoder_decoder",
        "is_decoder", "torchscript", "use_bfloat16", "tf_legacy_loss",
        -- generation
        "assistant_confidence_threshold", "bad_words_ids", "begin_suppress_tokens",
        "cache_implementation", "diversity_penalty", "do_sample", "early_stopping",
        "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff",
        "eta_cutoff", "exponential_decay_length_penalty", "forced_bos_token_id",
        "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
        "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
        "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
        "remove_invalid_values", "repetition_penalty",
        "return_dict_in_generate", "suppress_tokens", "target_lookbehind", "temperature", "top_k",
        "top_p", "typical_p"
), {
        is_encoder_decoder = only(false), add_cross_attention = only(false),
        cross_attention_hidden_size = only(null), is_causal = only(true),
        use_bidirectional_attention = only(null, false), per_layer_config = only(null),
        pruned_heads = only({}, null), quantization_config = require "quant_keys",
        quantization = only(null), attention_chunk_size = only(null),
})

local rope = config.rope_keys
local factor = config.of("factor", 1.0)
local function theta(v) return config.of("positive", v) end

-- What Llama and its relatives share; the numbers are Llama's.
local llama = set(rope, {
        vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32,
        num_attention_heads = 32, num_key_value_heads = maybe "count", head_dim = maybe "count",
        hidden_act = act "silu", max_position_embeddings = 2048, initializer_range = 0.02,
        rms_norm_eps = 1e-6, tie_word_embeddings = false, attention_dropout = free,
        layer_types = only(null),
})

-- Attention over a window in some layers.
local windows = {
        use_sliding_window = false, sliding_window = maybe("count", 4096),
        max_window_layers = config.of("whole", 28), layer_types = maybe "list",
}

-- Cohere's two families, and GLM-4's.
local cohere = set(rope, {
        vocab_size = 256000, hidden_size = 8192, intermediate_size = 22528, num_hidden_layers = 40,
        num_attention_heads = 64, num_key_value_heads = maybe "count", hidden_act = act "silu",
        max_position_embeddings = 8192, initializer_range = 0.02, layer_norm_eps = 1e-5,
        tie_word_embeddings = true, attention_bias = false,
        logit_scale = config.of("factor", 0.0625), attention_dropout = free,
})
local glm = set(rope, {
        vocab_size = 151552, hidden_size = 4096, intermediate_size = 13696, num_hidden_layers = 40,
        num_attention_heads = 32, num_key_value_heads = 2, head_dim = 128, hidden_act = act "silu",
        max_position_embeddings = 131072, initializer_range = 0.02, rms_norm_eps = 0.00000015625,
        tie_word_embeddings = false, attention_bias = true, attention_dropout = free,
        partial_rotary_factor = config.of("number", 0.5),
})

-- DeepSeek's two.
local deepseek = set(llama, {
        num_key_value_heads = maybe "count", head_dim = free, qk_head_dim = free,
        attention_bias = false, mlp_bias = only(false), kv_lora_rank = 512,
        q_lora_rank = maybe("count", 1536), qk_nope_head_dim = 128, qk_rope_head_dim = 64,
        v_head_dim = 128, moe_layer_freq = only(1),
        tgc_kv_b_split = false,         -- kv_b_proj is k_b_proj and v_b_proj, as some GGUF files
                                        -- have it
}, none("pretraining_tp", "output_router_logits", "aux_loss_alpha", "seq_aux", "ep_size"))

-- BERT and what is built like it.
local bert = set({
        vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12,
        intermediate_size = 3072, hidden_act = act "gelu", max_position_embeddings = 512,
        type_vocab_size = 2, initializer_range = 0.02, layer_norm_eps = 1e-12,
        position_embedding_type = only("absolute"), is_decoder = only(false),
        is_causal = only(false), tie_word_embeddings = free,
}, none("hidden_dropout_prob", "attention_probs_dropout_prob", "directionality", "pooler_fc_size",
        "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
        "gradient_checkpointing"))
local roberta = set(bert, {
        vocab_size = 50265, pad_token_id = config.of("whole", 1),
}, none("output_past"))

-- Published files have GPT-2's names, transformers' own have BERT's.
local nomic = set({
        vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12,
        n_embd = same "hidden_size", n_layer = same "num_hidden_layers",
        n_head = same "num_attention_heads", n_inner = opt "count", intermediate_size = opt "count",
        n_positions = opt "count", max_position_embeddings = 2048, layer_norm_eps = opt "number",
        layer_norm_epsilon = same "layer_norm_eps", initializer_range = 0.02,
        type_vocab_size = config.of("whole", 2), pad_vocab_size_multiple = 1,
        tie_word_embeddings = free,
        activation_function = config.word(nil, function(v) return v == "swiglu" or v == "geglu"
                                          or v == "glu" end),
        hidden_act = only("silu"), qkv_proj_bias = false, mlp_fc1_bias = false,
        mlp_fc2_bias = false,
        rotary_emb_base = opt "positive", rotary_emb_fraction = only(1),
        rotary_emb_interleaved = only(false),
        rotary_emb_scale_base = only(null), rotary_scaling_factor = only(null),
        rope_parameters = object { rope_theta = opt "positive", rope_type = only("default"),
                                   partial_rotary_factor = only(1) },
        prenorm = only(false), parallel_block = only(false), parallel_block_tied_norm = only(false),
        causal = only(false), is_causal = only(false), use_rms_norm = only(false, null),
        moe_every_n_layers = only(0, null), num_experts = only(0, null), head_dim = opt "count",
}, none("attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy",
        "dense_seq_output", "last_layer_subset", "max_trained_positions", "reorder_and_upcast_attn",
        "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type",
        "summary_use_proj", "position_embedding_type"))

return { read = config.reader(common, {
        nomic_bert = { architecture = "NomicBertModel", keys = nomic },
        bert = { architecture = "BertModel", older = "BertForMaskedLM", keys = bert },
        roberta = { architecture = "RobertaModel", keys = roberta },
        ["xlm-roberta"] = { architecture = "XLMRobertaModel",
                            keys = set(roberta, { vocab_size = 250002 }) },
        llama2c = { keys = {
                vocab_size = opt "count", seq_len = opt "count", n_layers = opt "count",
                n_heads = opt "count", n_kv_heads = opt "count", dim = opt "count",
                hidden_dim = opt "count", shared = false,
        } },
        gpt2 = { architecture = "GPT2LMHeadModel", default_end = 50256, keys = set({
                vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12,
                n_inner = maybe "count", activation_function = act "gelu_new", resid_pdrop = 0.1,
                layer_norm_epsilon = 1e-5, initializer_range = 0.02, scale_attn_weights = true,
                scale_attn_by_inverse_layer_idx = false, tie_word_embeddings = true,
                hidden_size = same "n_embd", max_position_embeddings = same "n_positions",
                num_attention_heads = same "n_head", num_hidden_layers = same "n_layer",
                quantization_config = only(null),       -- its weights are transposed, and quantised
                                                        -- ones are not
        }, none("n_ctx", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj",
                "summary_activation",
                "summary_proj_to_labels", "summary_first_dropout", "reorder_and_upcast_attn")) },
        llama = { architecture = "LlamaForCausalLM", keys = set(llama, {
                attention_bias = false, mlp_bias = false,
                rope_interleaved = only(false),
        }, none("pretraining_tp", "sliding_window", "is_llama_config", "max_sequence_length")) },
        mistral = { architecture = "MistralForCausalLM", keys = set(llama, {
                intermediate_size = 14336, num_key_value_heads = 8,
                max_position_embeddings = 131072, sliding_window = maybe("count", 4096),
                attention_bias = only(false), mlp_bias = only(false),
        }) },
        qwen2 = { architecture = "Qwen2ForCausalLM", keys = set(llama, windows, {
                vocab_size = 151936, intermediate_size = 22016,
                num_key_value_heads = maybe("count", 32), head_dim = opt "count",
                max_position_embeddings = 32768, mlp_bias = only(false), use_mrope = only(false),
        }) },
        qwen3 = { architecture = "Qwen3ForCausalLM", keys = set(llama, windows, {
                vocab_size = 151936, intermediate_size = 22016,
                num_key_value_heads = maybe("count", 32), head_dim = 128,
                max_position_embeddings = 32768, attention_bias = false, mlp_bias = only(false),
        }) },
        phi3 = { architecture = "Phi3ForCausalLM", keys = set(llama, {
                vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192,
                head_dim = opt "count", max_position_embeddings = 4096, rms_norm_eps = 1e-5,
                sliding_window = maybe "count", attention_bias = only(false),
                mlp_bias = only(false), full_attn_mod = only(1), interpolate_factor = only(1),
                original_max_position_embeddings = 4096,
        }, none("resid_pdrop", "embd_pdrop")) },
        gemma2 = { architecture = "Gemma2ForCausalLM", keys = set(llama, {
                vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216,
                num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4,
                head_dim = 256, max_position_embeddings = 8192, hidden_act = free,
                sliding_window_size = free, hidden_activation = act "gelu_pytorch_tanh",
                tie_word_embeddings = true, attention_bias = false, query_pre_attn_scalar = 256,
                sliding_window = 4096, layer_types = maybe "list",
                attn_logit_softcapping = maybe("positive", 50.0),
                final_logit_softcapping = maybe("positive", 30.0),
        }) },
        smollm3 = { architecture = "SmolLM3ForCausalLM", keys = set(llama, {
                vocab_size = 128256, hidden_size = 2048, num_hidden_layers = 36,
                num_attention_heads = 16, num_key_value_heads = maybe("count", 4),
                head_dim = opt "count", max_position_embeddings = 32768, tie_word_embeddings = true,
                attention_bias = false, mlp_bias = false, use_sliding_window = false,
                rope_theta = theta(2e6), sliding_window = maybe "count", layer_types = maybe "list",
                no_rope_layers = maybe "list", no_rope_layer_interval = 4,
        }, none("max_window_layers", "pretraining_tp")) },
        olmo = { architecture = "OlmoForCausalLM", keys = set(llama, {
                vocab_size = 50304, attention_bias = false, clip_qkv = maybe "positive",
                head_dim = opt "count", mlp_bias = only(false), rms_norm_eps = free,
        }, none("pretraining_tp")) },
        olmo2 = { architecture = "Olmo2ForCausalLM", keys = set(llama, {
                vocab_size = 50304, attention_bias = false, rms_norm_eps = 1e-5,
                head_dim = opt "count", mlp_bias = only(false), clip_qkv = only(null),
        }) },
        olmo3 = { architecture = "Olmo3ForCausalLM", keys = set(llama, config.layer_rope_keys, {
                vocab_size = 50304, attention_bias = false, rms_norm_eps = 1e-5,
                head_dim = opt "count", mlp_bias = only(false), clip_qkv = only(null),
                sliding_window = 4096, layer_types = maybe "list", rope_theta = theta(5e5),
        }) },
        stablelm = { architecture = "StableLmForCausalLM", keys = set(rope, {
                vocab_size = 50304, hidden_size = 2560, intermediate_size = 6912,
                num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32,
                hidden_act = act "silu", max_position_embeddings = 4096, initializer_range = 0.02,
                layer_norm_eps = 1e-5, tie_word_embeddings = false, use_qkv_bias = false,
                qk_layernorm = false, use_parallel_residual = false,
                partial_rotary_factor = config.of("number", 0.25),
        }, none("hidden_dropout", "attention_dropout")) },
        granite = { architecture = "GraniteForCausalLM", keys = set(llama, {
                attention_bias = false, mlp_bias = false,
                embedding_multiplier = config.of("positive", 1.0),
                logits_scaling = config.of("positive", 1.0), residual_multiplier = factor,
                attention_multiplier = config.of("positive", 1.0), head_dim = opt "count",
        }) },
        phi = { architecture = "PhiForCausalLM", keys = set(rope, {
                vocab_size = 51200, hidden_size = 2048, intermediate_size = 8192,
                num_hidden_layers = 24, num_attention_heads = 32,
                num_key_value_heads = maybe "count", hidden_act = act "gelu_new",
                max_position_embeddings = 2048, initializer_range = 0.02, layer_norm_eps = 1e-5,
                tie_word_embeddings = false, qk_layernorm = false,
                partial_rotary_factor = config.of("number", 0.5),
        }, none("resid_pdrop", "embd_pdrop", "attention_dropout")) },
        starcoder2 = { architecture = "Starcoder2ForCausalLM", keys = set(rope, {
                vocab_size = 49152, hidden_size = 3072, intermediate_size = 12288,
                num_hidden_layers = 30, num_attention_heads = 24, num_key_value_heads = 2,
                hidden_act = act "gelu_pytorch_tanh", max_position_embeddings = 4096,
                initializer_range = 0.018042, norm_epsilon = 1e-5, sliding_window = maybe "count",
                use_bias = true, tie_word_embeddings = true, mlp_type = only("default"),
                norm_type = only("layer_norm"), layer_types = only(null),
        }, none("attention_dropout", "residual_dropout", "embedding_dropout")) },
        gemma = { architecture = "GemmaForCausalLM", keys = set(llama, {
                vocab_size = 256000, hidden_size = 3072, intermediate_size = 24576,
                num_hidden_layers = 28, num_attention_heads = 16, num_key_value_heads = 16,
                head_dim = 256, hidden_act = act "gelu_pytorch_tanh",
                max_position_embeddings = 8192, tie_word_embeddings = true, attention_bias = false,
        }, none("hidden_activation")) },
        gemma3_text = { architecture = "Gemma3ForCausalLM",
                        keys = set(llama, config.layer_rope_keys, {
                vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216,
                num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4,
                head_dim = 256, max_position_embeddings = 131072, hidden_act = free,
                hidden_activation = act "gelu_pytorch_tanh", tie_word_embeddings = true,
                attention_bias = false, query_pre_attn_scalar = 256, sliding_window = 4096,
                sliding_window_pattern = 6, layer_types = maybe "list",
                attn_logit_softcapping = only(null), final_logit_softcapping = maybe "positive",
                rope_theta = theta(1e6), rope_local_base_freq = theta(1e4),
                use_bidirectional_attention = only(false, null),
        }, none("_sliding_window_pattern")) },
        cohere = { architecture = "CohereForCausalLM", keys = set(cohere, {
                use_qk_norm = maybe("boolean", false), rope_theta = theta(5e5),
        }, none("model_max_length", "pretraining_tp")) },
        cohere2 = { architecture = "Cohere2ForCausalLM", keys = set(cohere, {
                use_qk_norm = only(false), sliding_window = 4096, sliding_window_pattern = 4,
                layer_types = maybe "list", layer_switch = same "sliding_window_pattern",
                order_of_interleaved_layers = only("local_attn_first"),
                position_embedding_type = only("rope_gptj"), rotary_pct = only(1),
                use_embedding_sharing = only(true), use_gated_activation = only(true),
                use_parallel_block = only(true), head_dim = opt "count",
        }, none("use_parallel_embedding", "_sliding_window_pattern")) },
        opt = { architecture = "OPTForCausalLM", keys = set({
                vocab_size = 50272, hidden_size = 768, num_hidden_layers = 12, ffn_dim = 3072,
                max_position_embeddings = 2048, do_layer_norm_before = true,
                _remove_final_layer_norm = false, word_embed_proj_dim = maybe "count",
                dropout = config.of("number", 0.1), num_attention_heads = 12,
                activation_function = act "relu", init_std = 0.02, enable_bias = true,
                layer_norm_elementwise_affine = true, tie_word_embeddings = true,
        }, none("attention_dropout", "layerdrop", "activation_dropout")) },
        bloom = { architecture = "BloomForCausalLM", keys = set({
                vocab_size = 250880, hidden_size = 64, n_embed = same "hidden_size", n_layer = 2,
                n_head = 8, num_hidden_layers = same "n_layer", num_attention_heads = same "n_head",
                layer_norm_epsilon = 1e-5, initializer_range = 0.02,
                apply_residual_connection_post_layernorm = only(false), seq_length = 2048,
                tie_word_embeddings = true,
        }, none("hidden_dropout", "attention_dropout", "pretraining_tp", "slow_but_exact",
                "n_inner", "offset_alibi",
                "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
                "skip_bias_add",
                "skip_bias_add_qkv", "unk_token_id")) },
        gptj = { architecture = "GPTJForCausalLM", keys = set({
                vocab_size = 50400, n_positions = 2048, n_embd = 4096, n_layer = 28, n_head = 16,
                rotary_dim = 64, n_inner = maybe "count", activation_function = act "gelu_new",
                layer_norm_epsilon = 1e-5, initializer_range = 0.02, tie_word_embeddings = false,
                hidden_size = same "n_embd", max_position_embeddings = same "n_positions",
                num_attention_heads = same "n_head", num_hidden_layers = same "n_layer",
                rotary = only(true), scale_attn_weights = only(true),
        }, none("resid_pdrop", "embd_pdrop", "attn_pdrop", "n_ctx", "summary_type",
                "summary_use_proj",
                "summary_activation", "summary_proj_to_labels", "summary_first_dropout")) },
        exaone4 = { architecture = "Exaone4ForCausalLM", keys = set(llama, {
                vocab_size = 102400, intermediate_size = 16384, num_key_value_heads = 32,
                rms_norm_eps = 1e-5, sliding_window = maybe("count", 4096),
                sliding_window_pattern = maybe("scalar", 4), layer_types = maybe "list",
                head_dim = opt "count", attention_bias = only(false), mlp_bias = only(false),
        }) },
        glm = { architecture = "GlmForCausalLM", keys = glm },
        glm4 = { architecture = "Glm4ForCausalLM", keys = glm },
        ernie4_5 = { architecture = "Ernie4_5ForCausalLM", keys = set(llama, {
                vocab_size = 103424, hidden_size = 1024, intermediate_size = 3072,
                num_hidden_layers = 18, num_attention_heads = 16,
                num_key_value_heads = maybe("count", 2), head_dim = maybe("count", 128),
                max_position_embeddings = 131072, rms_norm_eps = 1e-5, tie_word_embeddings = true,
                use_bias = maybe("boolean", false), rope_theta = theta(5e5),
        }) },
        hunyuan_v1_dense = { architecture = "HunYuanDenseV1ForCausalLM",
                             keys = set(llama, config.rope_keys_with {
                alpha = maybe "positive",
        }, {
                vocab_size = 290943, rms_norm_eps = 1e-5, attention_bias = false,
                mlp_bias = only(false),
        }, none("pretraining_tp", "eod_token_id")) },
        olmoe = { architecture = "OlmoeForCausalLM", keys = set(llama, {
                vocab_size = 50304, hidden_size = 2048, intermediate_size = 2048,
                num_hidden_layers = 16, num_attention_heads = 16, max_position_embeddings = 4096,
                rms_norm_eps = 1e-5, attention_bias = false, head_dim = opt "count",
                mlp_bias = only(false), clip_qkv = maybe "positive", num_experts_per_tok = 8,
                num_experts = 64, num_local_experts = same "num_experts",
                router_aux_loss_coef = 0.01, norm_topk_prob = false,
        }, none("output_router_logits")) },
        qwen2_moe = { architecture = "Qwen2MoeForCausalLM", keys = set(llama, {
                vocab_size = 151936, hidden_size = 2048, intermediate_size = 5632,
                num_hidden_layers = 24, num_attention_heads = 16, num_key_value_heads = 16,
                head_dim = opt "count", max_position_embeddings = 32768,
                attention_bias = only(false), mlp_bias = only(false), use_sliding_window = false,
                sliding_window = maybe("whole", 4096), max_window_layers = config.of("whole", 28),
                layer_types = maybe "list", decoder_sparse_step = 1, mlp_only_layers = maybe "list",
                moe_intermediate_size = 1408, shared_expert_intermediate_size = 5632,
                num_experts_per_tok = 4, num_experts = 60, norm_topk_prob = false,
                router_aux_loss_coef = 0.001, qkv_bias = true,
        }, none("output_router_logits")) },
        deepseek_v2 = { architecture = "DeepseekV2ForCausalLM", keys = set(deepseek, {
                vocab_size = 102400, n_routed_experts = 64, n_shared_experts = 2,
                num_experts_per_tok = maybe "count", num_experts = same "n_routed_experts",
                moe_intermediate_size = 1407, first_k_dense_replace = config.of("whole", 0),
                n_group = maybe "count", topk_group = maybe "count",
                routed_scaling_factor = config.of("number", 1.0),
                norm_topk_prob = free,
                topk_method = config.word("greedy", function(v) return v == "greedy"
                                          or v == "group_limited_greedy" end),
                scoring_func = only("softmax"),
        }) },
        deepseek_v3 = { architecture = "DeepseekV3ForCausalLM", keys = set(deepseek, {
                vocab_size = 129280, hidden_size = 7168, intermediate_size = 18432,
                num_hidden_layers = 61, num_attention_heads = 128,
                num_key_value_heads = maybe("count", 128), max_position_embeddings = 4096,
                n_routed_experts = 256, num_local_experts = same "n_routed_experts",
                n_shared_experts = 1, num_experts_per_tok = maybe("count", 8),
                moe_intermediate_size = 2048, first_k_dense_replace = config.of("whole", 3),
                n_group = config.of("count", 8), topk_group = 4,
                routed_scaling_factor = config.of("number", 2.5),
                norm_topk_prob = maybe("boolean", true), rope_interleave = maybe("boolean", true),
                head_dim = opt "count", topk_method = only("noaux_tc"),
                scoring_func = only("sigmoid"),
        }, none("num_mtp_layers", "num_nextn_predict_layers")) },
        gpt_oss = { architecture = "GptOssForCausalLM", keys = set(llama, {
                num_hidden_layers = 36, num_local_experts = 128,
                num_experts = same "num_local_experts", vocab_size = 201088, hidden_size = 2880,
                intermediate_size = 2880, head_dim = 64, num_attention_heads = 64,
                num_key_value_heads = 8, sliding_window = maybe("count", 128), hidden_act = free,
                max_position_embeddings = 131072, rms_norm_eps = 1e-5, num_experts_per_tok = 4,
                tgc_gate_up_split = false,      -- experts as GGUF files have them
                swiglu_alpha = config.of("number", 1.702), swiglu_limit = theta(7.0),
                layer_types = maybe "list", attention_bias = true, mlp_bias = only(false),
                rope_theta = theta(150000.0),
        }, none("router_aux_loss_coef", "output_router_logits", "experts_per_token",
                "initial_context_length")) },
        gpt_neox = { architecture = "GPTNeoXForCausalLM", keys = set(rope, {
                vocab_size = 50432, hidden_size = 6144, num_hidden_layers = 44,
                num_attention_heads = 64, intermediate_size = 24576, hidden_act = act "gelu",
                max_position_embeddings = 2048, initializer_range = 0.02, layer_norm_eps = 1e-5,
                tie_word_embeddings = false, use_parallel_residual = true, attention_bias = true,
                rotary_pct = 0.25, rotary_emb_base = config.of("positive", 10000.0),
        }, none("rope_theta", "partial_rotary_factor", "attention_dropout", "hidden_dropout",
                "attention_probs_dropout_prob", "hidden_dropout_prob")) },
        falcon = { architecture = "FalconForCausalLM", keys = set(rope, {
                vocab_size = 65024, hidden_size = 4544, num_hidden_layers = 32,
                num_attention_heads = 71, num_ln_in_parallel_attn = maybe "count",
                layer_norm_epsilon = 1e-5, initializer_range = 0.02, num_kv_heads = maybe "count",
                alibi = maybe("boolean", false), bias = maybe("boolean", false),
                new_decoder_architecture = maybe("boolean", false),
                multi_query = maybe("boolean", true), parallel_attn = maybe("boolean", true),
                max_position_embeddings = 2048, ffn_hidden_size = maybe "count",
                activation = act "gelu", tie_word_embeddings = true, n_embed = same "hidden_size",
                apply_residual_connection_post_layernorm = only(false),
        }, none("hidden_dropout", "attention_dropout")) },
        mpt = { architecture = "MptForCausalLM", older = "MPTForCausalLM", keys = set({
                d_model = 2048, n_heads = 16, n_layers = 24, max_seq_len = 2048, vocab_size = 50368,
                layer_norm_epsilon = 1e-5, initializer_range = 0.02, tie_word_embeddings = true,
                no_bias = only(true), norm_type = only("low_precision_layernorm", "layernorm"),
                logit_scale = only(null), hidden_size = same "d_model",
                num_attention_heads = same "n_heads", num_hidden_layers = same "n_layers",
                attn_config = object(set({
                        softmax_scale = maybe "positive", attn_type = only("multihead_attention"),
                        clip_qkv = only(null), prefix_lm = only(false), qk_ln = only(false),
                        alibi = only(true), alibi_bias_max = only(8),
                }, none("attn_pdrop", "attn_impl", "attn_uses_sequence_id"))),
        }, none("expansion_ratio", "resid_pdrop", "emb_pdrop", "learned_pos_emb", "init_device",
                "init_config",
                "embedding_fraction", "tokenizer_name", "verbose")) },
        mixtral = { architecture = "MixtralForCausalLM", keys = set(llama, {
                intermediate_size = 14336, num_key_value_heads = 8,
                max_position_embeddings = 131072, rms_norm_eps = 1e-5,
                rope_theta = config.of("positive", 1e6), sliding_window = maybe "count",
                num_experts_per_tok = 2, num_local_experts = 8,
                num_experts = same "num_local_experts", router_aux_loss_coef = 0.001,
                attention_bias = only(false), mlp_bias = only(false),
        }, none("output_router_logits", "router_jitter_noise")) },
        qwen3_moe = { architecture = "Qwen3MoeForCausalLM", keys = set(llama, {
                vocab_size = 151936, hidden_size = 2048, intermediate_size = 6144,
                num_hidden_layers = 24, num_key_value_heads = 4, max_position_embeddings = 32768,
                attention_bias = false, use_sliding_window = false,
                sliding_window = maybe("count", 4096), decoder_sparse_step = only(1),
                mlp_only_layers = only({}, null), moe_intermediate_size = 768,
                num_experts_per_tok = 8, num_experts = 128, num_local_experts = same "num_experts",
                norm_topk_prob = false, router_aux_loss_coef = 0.001, mlp_bias = only(false),
                head_dim = opt "count",
        }, none("output_router_logits", "max_window_layers", "shared_expert_intermediate_size")) },
}) }
