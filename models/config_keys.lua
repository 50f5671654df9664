-- config_keys.lua: which keys a config.json may have, by family, with the defaults of
-- transformers' classes (5.23).  tests/e2e/families/variants.py compares every one of them.
local config = require "config"
local b = require "blocks"
local free, null, only, opt, maybe, same, object = config.free, config.null, config.only, config.opt, config.maybe,
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
        "model_type", "architectures", "auto_map", "transformers_version", "transformers.js_config", "dtype",
        "torch_dtype", "name_or_path", "_name_or_path", "_commit_hash", "_attn_implementation",
        "_attn_implementation_autoset", "attn_implementation", "_num_labels", "tokenizer_class", "unsloth_version", "unsloth_fixed",
        -- ids: those of begin and end are read beside this
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
        -- training, other tasks, what a forward pass returns
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "prefix",
        "classifier_dropout", "neftune_noise_alpha", "gradient_checkpointing", "output_hidden_states",
        "output_attentions", "return_dict", "use_cache", "chunk_size_feed_forward", "tie_last_hidden_states",
        "tie_encoder_decoder", "is_decoder", "torchscript", "use_bfloat16", "tf_legacy_loss",
        -- generation
        "assistant_confidence_threshold", "bad_words_ids", "begin_suppress_tokens", "cache_implementation",
        "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty",
        "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
        "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule", "num_beam_groups",
        "num_beams", "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty",
        "return_dict_in_generate", "suppress_tokens", "target_lookbehind", "temperature", "top_k", "top_p", "typical_p"
), {
        is_encoder_decoder = only(false), add_cross_attention = only(false), cross_attention_hidden_size = only(null),
        is_causal = only(true), use_bidirectional_attention = only(null, false), per_layer_config = only(null),
        pruned_heads = only({}, null), quantization_config = only(null), quantization = only(null), attention_chunk_size = only(null),
})

local rope = config.rope_keys

-- What Llama and its relatives share; the numbers are Llama's.
local llama = set(rope, {
        vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32,
        num_attention_heads = 32, num_key_value_heads = maybe "count", head_dim = maybe "count",
        hidden_act = act "silu", max_position_embeddings = 2048, initializer_range = 0.02, rms_norm_eps = 1e-6,
        tie_word_embeddings = false, attention_dropout = free, layer_types = only(null),
})

-- Attention over a window in some layers.
local windows = {
        use_sliding_window = false, sliding_window = maybe("count", 4096), max_window_layers = config.of("whole", 28),
        layer_types = maybe "list",
}

return { read = config.reader(common, {
        llama2c = { keys = {
                vocab_size = opt "count", seq_len = opt "count", n_layers = opt "count", n_heads = opt "count",
                n_kv_heads = opt "count", dim = opt "count", hidden_dim = opt "count", shared = false,
        } },
        gpt2 = { architecture = "GPT2LMHeadModel", keys = set({
                vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12, n_inner = maybe "count",
                activation_function = act "gelu_new", resid_pdrop = 0.1, layer_norm_epsilon = 1e-5,
                initializer_range = 0.02, scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false,
                tie_word_embeddings = true, hidden_size = same "n_embd", max_position_embeddings = same "n_positions",
                num_attention_heads = same "n_head", num_hidden_layers = same "n_layer",
        }, none("n_ctx", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj", "summary_activation",
                "summary_proj_to_labels", "summary_first_dropout", "reorder_and_upcast_attn")) },
        llama = { architecture = "LlamaForCausalLM", keys = set(llama, {
                attention_bias = false, mlp_bias = false,
                rope_interleaved = only(false),
        }, none("pretraining_tp", "sliding_window", "is_llama_config", "max_sequence_length")) },
        mistral = { architecture = "MistralForCausalLM", keys = set(llama, {
                intermediate_size = 14336, num_key_value_heads = 8, max_position_embeddings = 131072,
                sliding_window = maybe("count", 4096), attention_bias = only(false), mlp_bias = only(false),
        }) },
        qwen2 = { architecture = "Qwen2ForCausalLM", keys = set(llama, windows, {
                vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = maybe("count", 32),
                head_dim = opt "count", max_position_embeddings = 32768, mlp_bias = only(false), use_mrope = only(false),
        }) },
        qwen3 = { architecture = "Qwen3ForCausalLM", keys = set(llama, windows, {
                vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = maybe("count", 32), head_dim = 128,
                max_position_embeddings = 32768, attention_bias = false, mlp_bias = only(false),
        }) },
        phi3 = { architecture = "Phi3ForCausalLM", keys = set(llama, {
                vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192, head_dim = opt "count",
                max_position_embeddings = 4096, rms_norm_eps = 1e-5, sliding_window = maybe "count",
                attention_bias = only(false), mlp_bias = only(false), full_attn_mod = only(1), interpolate_factor = only(1),
        }, none("resid_pdrop", "embd_pdrop", "original_max_position_embeddings")) },
        gemma2 = { architecture = "Gemma2ForCausalLM", keys = set(llama, {
                vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26,
                num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 8192,
                hidden_act = free, sliding_window_size = free, hidden_activation = act "gelu_pytorch_tanh", tie_word_embeddings = true,
                attention_bias = false, query_pre_attn_scalar = 256, sliding_window = 4096,
                layer_types = maybe "list", attn_logit_softcapping = maybe("positive", 50.0),
                final_logit_softcapping = maybe("positive", 30.0),
        }) },
        gpt_neox = { architecture = "GPTNeoXForCausalLM", keys = set(rope, {
                vocab_size = 50432, hidden_size = 6144, num_hidden_layers = 44, num_attention_heads = 64,
                intermediate_size = 24576, hidden_act = act "gelu", max_position_embeddings = 2048,
                initializer_range = 0.02, layer_norm_eps = 1e-5, tie_word_embeddings = false,
                use_parallel_residual = true, attention_bias = true, rotary_pct = 0.25,
                rotary_emb_base = config.of("positive", 10000.0),
        }, none("rope_theta", "partial_rotary_factor", "attention_dropout", "hidden_dropout",
                "attention_probs_dropout_prob", "hidden_dropout_prob")) },
        falcon = { architecture = "FalconForCausalLM", keys = set(rope, {
                vocab_size = 65024, hidden_size = 4544, num_hidden_layers = 32, num_attention_heads = 71,
                num_ln_in_parallel_attn = maybe "count", layer_norm_epsilon = 1e-5, initializer_range = 0.02,
                num_kv_heads = maybe "count", alibi = maybe("boolean", false), bias = maybe("boolean", false),
                new_decoder_architecture = maybe("boolean", false), multi_query = maybe("boolean", true),
                parallel_attn = maybe("boolean", true), max_position_embeddings = 2048, ffn_hidden_size = maybe "count",
                activation = act "gelu", tie_word_embeddings = true, n_embed = same "hidden_size",
                apply_residual_connection_post_layernorm = only(false),
        }, none("hidden_dropout", "attention_dropout")) },
        mpt = { architecture = "MptForCausalLM", older = "MPTForCausalLM", keys = set({
                d_model = 2048, n_heads = 16, n_layers = 24, max_seq_len = 2048, vocab_size = 50368,
                layer_norm_epsilon = 1e-5, initializer_range = 0.02, tie_word_embeddings = true, no_bias = only(true),
                norm_type = only("low_precision_layernorm", "layernorm"), logit_scale = only(null),
                hidden_size = same "d_model", num_attention_heads = same "n_heads", num_hidden_layers = same "n_layers",
                attn_config = object(set({
                        softmax_scale = maybe "positive", attn_type = only("multihead_attention"), clip_qkv = only(null),
                        prefix_lm = only(false), qk_ln = only(false), alibi = only(true), alibi_bias_max = only(8),
                }, none("attn_pdrop", "attn_impl", "attn_uses_sequence_id"))),
        }, none("expansion_ratio", "resid_pdrop", "emb_pdrop", "learned_pos_emb", "init_device", "init_config",
                "embedding_fraction", "tokenizer_name", "verbose")) },
        mixtral = { architecture = "MixtralForCausalLM", keys = set(llama, {
                intermediate_size = 14336, num_key_value_heads = 8, max_position_embeddings = 131072,
                rms_norm_eps = 1e-5, rope_theta = config.of("positive", 1e6), sliding_window = maybe "count",
                num_experts_per_tok = 2,
                num_local_experts = 8, num_experts = same "num_local_experts", router_aux_loss_coef = 0.001,
                attention_bias = only(false), mlp_bias = only(false),
        }, none("output_router_logits", "router_jitter_noise")) },
        qwen3_moe = { architecture = "Qwen3MoeForCausalLM", keys = set(llama, {
                vocab_size = 151936, hidden_size = 2048, intermediate_size = 6144, num_hidden_layers = 24,
                num_key_value_heads = 4, max_position_embeddings = 32768, attention_bias = false,
                use_sliding_window = false, sliding_window = maybe("count", 4096), decoder_sparse_step = only(1),
                mlp_only_layers = only({}, null), moe_intermediate_size = 768, num_experts_per_tok = 8,
                num_experts = 128, num_local_experts = same "num_experts", norm_topk_prob = false,
                router_aux_loss_coef = 0.001, mlp_bias = only(false), head_dim = opt "count",
        }, none("output_router_logits", "max_window_layers", "shared_expert_intermediate_size")) },
}) }
