-- bloom.lua: BLOOM.  ALiBi instead of positions, a layernorm on the embedding; the checkpoint keeps
-- q, k and v of a head together.  The defaults are bloom-560m.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"

local params = b.with_defaults({
        vocab = 250880, ctx = 2048, n_layer = 24, n_embd = 1024, n_head = 16, n_kv_head = 16,
        head_dim = 64, n_ff = 4096, act = "gelu_tanh", norm = "layer", gated = false,
        qkv_bias = true, out_bias = true, mlp_bias = true, tied = true,
}, decoder.params)

local outer = { embed = "transformer.word_embeddings", norm = "transformer.ln_f", head = "lm_head" }

local function names(i, p)
        local l, H, D, C = "transformer.h." .. i .. ".", p.n_head, p.head_dim, p.n_embd
        local qkv, at = l .. "self_attention.query_key_value", { q = 0, k = 1, v = 2 }
        -- (H,3,D,C) in the checkpoint
        return {
                att_norm = l .. "input_layernorm", mlp_norm = l .. "post_attention_layernorm",
                q = qkv, k = qkv, v = qkv, o = l .. "self_attention.dense",
                up = l .. "mlp.dense_h_to_4h", down = l .. "mlp.dense_4h_to_h",
                cut = function(part)
                        return string.format(
                                ": %dx%d | reshape %d 3 %d | cols %d %d | reshape %d %d", 3 * C, C,
                                H, D * C,
                                             at[part], at[part] + 1, C, C)
                end,
                cut_bias = function(part)
                        return string.format(": %d | reshape %d 3 %d | cols %d %d | reshape %d",
                                             3 * C, H, D, at[part],
                                             at[part] + 1, C)
                end,
        }
end

return {
        name = "bloom", params = params,
        config = function(raw, family)
                local c = require "config_keys".read(raw, family)
                config.divides(c, "n_head", "hidden_size")
                return b.with_defaults({
                        vocab = c.vocab_size, ctx = c.seq_length, n_layer = c.n_layer,
                        n_embd = c.hidden_size, n_head = c.n_head, n_kv_head = c.n_head,
                        head_dim = c.hidden_size // c.n_head, n_ff = 4 * c.hidden_size,
                        act = "gelu_tanh", eps = c.layer_norm_epsilon, std = c.initializer_range,
                        tied = c.tie_word_embeddings, norm = "layer", gated = false,
                        qkv_bias = true, out_bias = true, mlp_bias = true, rotary = 0.0,
                }, decoder.params)
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local x, embed = b.embedding(ids, "embed", p.vocab, p.n_embd,
                                             { std = p.std, from = outer.embed })
                x = decoder.norm(x, "embed_norm", p, "transformer.word_embeddings_layernorm")
                x = decoder.layers(x, p, { names = names, slopes = b.alibi(p.n_head, 8) })
                return b.outputs(decoder.head(x, p, embed, outer), targets)
        end,
}
