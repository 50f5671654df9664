-- gguf_bert.lua: the rows of bert, which is BERT, MiniLM, RoBERTa and XLM-RoBERTa, and of
-- nomic-bert (gguf.lua says what a row holds). Files have RoBERTa's table of positions without the
-- rows of padding, so all are BERT here.  How the vectors of tokens become a text's is the key
-- pooling_type, which cli/load/gguf_model.c reads.
local rules = require "gguf_rules"

return {
        bert = {
                type = "bert",
                read_only = "GGUF files of encoders are read, and not written",
                keys = { ["attention.causal"] = rules.only(false), pooling_type = rules.free,
                         ["attention.head_count_kv"] = rules.as_many_kv_heads },
                needs = { "attention.causal", "attention.layer_norm_epsilon" },
                config = function(m, config)
                        local kinds = m.tensors["token_types.weight"]
                                or rules.refuse("tensor token_types.weight", "is missing")
                        config.type_vocab_size = kinds.shape[1]
                        -- GGUF has no key; all published models have this one
                        config.hidden_act = "gelu"
                end,
                outer = { token_embd = "embeddings.word_embeddings",
                          token_types = "embeddings.token_type_embeddings",
                          position_embd = "embeddings.position_embeddings",
                          token_embd_norm = "embeddings.LayerNorm" },
                prefix = "encoder.layer.%d.",
                layer = { attn_q = "attention.self.query", attn_k = "attention.self.key",
                          attn_v = "attention.self.value",
                          attn_output = "attention.output.dense",
                          attn_output_norm = "attention.output.LayerNorm",
                          ffn_up = "intermediate.dense", ffn_down = "output.dense",
                          layer_output_norm = "output.LayerNorm" },
                -- heads of classifiers
                ignore = { "cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias" },
        },
        ["nomic-bert"] = {
                type = "nomic_bert",
                read_only = "GGUF files of encoders are read, and not written",
                keys = { ["attention.causal"] = rules.only(false), pooling_type = rules.free,
                         ["attention.head_count_kv"] = rules.as_many_kv_heads,
                         ["rope.freq_base"] = "rotary_emb_base" },
                needs = { "attention.causal", "attention.layer_norm_epsilon", "rope.freq_base" },
                config = function(m, config)
                        local kinds = m.tensors["token_types.weight"]
                        config.type_vocab_size = kinds and kinds.shape[1] or 0
                        -- GGUF has no key; all published models have this one
                        config.activation_function = "swiglu"
                        config.qkv_proj_bias = rules.has(m, "attn_qkv.bias")
                        config.mlp_fc1_bias, config.mlp_fc2_bias = rules.has(m, "ffn_up.bias"),
                        rules.has(m, "ffn_down.bias")
                end,
                outer = { token_embd = "embeddings.word_embeddings",
                          token_types = "embeddings.token_type_embeddings",
                          token_embd_norm = "emb_ln" },
                prefix = "encoder.layers.%d.",
                layer = { attn_qkv = "attn.Wqkv", attn_output = "attn.out_proj",
                          attn_output_norm = "norm1",
                          ffn_up = "mlp.fc11", ffn_gate = "mlp.fc12", ffn_down = "mlp.fc2",
                          layer_output_norm = "norm2" },
        },
}
