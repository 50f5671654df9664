-- gguf_gpt.lua: rows of architectures whose config.json has words of its own: GPT-2's line
-- (gguf.lua says what a row holds).
local rules = require "gguf_rules"
local only, has, grouped = rules.only, rules.has, rules.grouped
local as_many_kv_heads, four_times_as_wide, rotary_fraction = rules.as_many_kv_heads,
        rules.four_times_as_wide, rules.rotary_fraction

-- Linears of gpt2's folder are (K,N).
local function transposed(_, suffix) return suffix == ".weight" and "t" end

return {
        bloom = {
                type = "bloom",
                keys = { context_length = "seq_length", block_count = "n_layer",
                         ["attention.head_count"] = "n_head",
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         ["attention.head_count_kv"] = as_many_kv_heads,
                         feed_forward_length = four_times_as_wide },
                needs = { "attention.layer_norm_epsilon" },
                outer = { token_embd = "transformer.word_embeddings",
                          token_embd_norm = "transformer.word_embeddings_layernorm",
                          output_norm = "transformer.ln_f", output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = { attn_norm = "input_layernorm",
                          attn_qkv = "self_attention.query_key_value",
                          attn_output = "self_attention.dense",
                          ffn_norm = "post_attention_layernorm",
                          ffn_up = "mlp.dense_h_to_4h", ffn_down = "mlp.dense_4h_to_h" },
                steps = { attn_qkv = grouped },
        },
        gpt2 = {
                type = "gpt2",
                keys = { context_length = "n_positions", embedding_length = "n_embd",
                         block_count = "n_layer",
                         feed_forward_length = "n_inner", ["attention.head_count"] = "n_head",
                         ["attention.head_count_kv"] = as_many_kv_heads,
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon" },
                needs = { "attention.layer_norm_epsilon" },
                outer = { token_embd = "transformer.wte", position_embd = "transformer.wpe",
                          output_norm = "transformer.ln_f",
                          output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = { attn_norm = "ln_1", attn_qkv = "attn.c_attn", attn_output = "attn.c_proj",
                          ffn_norm = "ln_2",
                          ffn_up = "mlp.c_fc", ffn_down = "mlp.c_proj" },
                -- the folder has its linears transposed
                steps = { attn_qkv = transposed, attn_output = transposed, ffn_up = transposed,
                          ffn_down = transposed },
        },
        gptneox = {
                type = "gpt_neox",
                keys = { use_parallel_residual = "use_parallel_residual",
                         ["rope.dimension_count"] = rotary_fraction "rotary_pct",
                         ["rope.freq_base"] = "rotary_emb_base",
                         ["attention.head_count_kv"] = as_many_kv_heads },
                needs = { "attention.layer_norm_epsilon", "rope.dimension_count",
                          "use_parallel_residual" },
                outer = { token_embd = "gpt_neox.embed_in",
                          output_norm = "gpt_neox.final_layer_norm", output = "embed_out" },
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
                keys = { feed_forward_length = "ffn_hidden_size",
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         ["attention.head_count_kv"] = "num_kv_heads" },
                needs = { "attention.layer_norm_epsilon" },
                config = function(m, config)
                        local K = config.num_kv_heads or 1
                        config.num_kv_heads = K
                        config.multi_query = K == 1
                        config.new_decoder_architecture = has(m, "attn_norm_2.weight") or K > 1
                                and K < m.heads
                        if config.new_decoder_architecture then
                                config.num_ln_in_parallel_attn = has(m, "attn_norm_2.weight") and 2
                                        or 1
                        end
                        config.bias = has(m, "attn_qkv.bias")
                end,
                outer = { token_embd = "transformer.word_embeddings",
                          output_norm = "transformer.ln_f", output = "lm_head" },
                prefix = "transformer.h.%d.",
                layer = function(m)
                        local two = has(m, "attn_norm_2.weight")
                        return { attn_norm = two and "ln_mlp" or "input_layernorm",
                                 attn_norm_2 = "ln_attn",
                                 attn_qkv = "self_attention.query_key_value",
                                 attn_output = "self_attention.dense",
                                 ffn_up = "mlp.dense_h_to_4h", ffn_down = "mlp.dense_4h_to_h" }
                end,
                steps = { attn_qkv = grouped },
        },
        mpt = {
                type = "mpt",
                say = { ["attention.max_alibi_bias"] = function() return 8.0 end },
                keys = { context_length = "max_seq_len", embedding_length = "d_model",
                         block_count = "n_layers",
                         ["attention.head_count"] = "n_heads",
                         ["attention.layer_norm_epsilon"] = "layer_norm_epsilon",
                         feed_forward_length = four_times_as_wide,
                         ["attention.head_count_kv"] = as_many_kv_heads,
                         ["attention.max_alibi_bias"] = only(8),
                         ["attention.clamp_kqv"] = only(0) },
                needs = { "attention.layer_norm_epsilon", "attention.max_alibi_bias" },
                outer = { token_embd = "transformer.wte", output_norm = "transformer.norm_f",
                          output = "lm_head" },
                prefix = "transformer.blocks.%d.",
                layer = { attn_norm = "norm_1", attn_qkv = "attn.Wqkv",
                          attn_output = "attn.out_proj", ffn_norm = "norm_2",
                          ffn_up = "ffn.up_proj", ffn_down = "ffn.down_proj" },
        },
}
