-- falcon.lua: Falcon.  One key and value head (7B) or some (40B, "new decoder"),
-- attention and MLP side by side, rotary positions or ALiBi, tied head.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local function block(x, p, rope, slopes, i)
        local l, C, H, K, D = "transformer.h." .. i .. ".", p.n_embd, p.n_head, p.n_kv_head,
                p.n_embd // p.n_head
        local G = H // K                                -- queries of a group; the checkpoint is (K,
                                                        -- G q + k + v, D, C)
        local qkv = l .. "self_attention.query_key_value"
        local function cut(from, to)
                return string.format(": %dx%d | reshape %d %d %d | cols %d %d | reshape %d %d",
                                     K * (G + 2) * D, C,
                                     K, G + 2, D * C, from, to, K * (to - from) * D, C)
        end
        local function cut_bias(from, to)
                return string.format(": %d | reshape %d %d %d | cols %d %d | reshape %d",
                                     K * (G + 2) * D,
                                     K, G + 2, D, from, to, K * (to - from) * D)
        end
        local turn = { q = rope and " | rope " .. H or "", k = rope and " | rope " .. K or "" }
        local function norm(y, name)
                return b.layernorm(y, "norm", { eps = p.eps, from = l .. name })
        end
        local two = p.new_decoder and p.n_norm == 2
        local h
        local a = scope("attn", function()
                h = norm(x, two and "ln_attn" or "input_layernorm")
                return b.self_attention(h, {
                        n_head = H, n_kv_head = K, head_dim = D, rope = rope, slopes = slopes,
                        bias = p.bias,
                        out_bias = p.bias,
                        std = p.std,
                        from = { q = qkv, k = qkv, v = qkv, o = l .. "self_attention.dense" },
                        steps = { q = cut(0, G) .. turn.q, k = cut(G, G + 1) .. turn.k,
                                  v = cut(G + 1, G + 2) },
                        bias_steps = { q = cut_bias(0, G) .. turn.q, k = cut_bias(G, G + 1)
                                       .. turn.k,
                                       v = cut_bias(G + 1, G + 2) },
                })
        end)
        local input = p.parallel and x or (x + a):as "middle"
        local m = scope("mlp", function()
                if two then
                        h = norm(input, "ln_mlp")
                elseif not p.parallel then
                        h = norm(input, "post_attention_layernorm")
                end
                return b.mlp(h, { n_ff = p.n_ff, act = p.act, bias = p.bias, std = p.std,
                                  from = { up = l .. "mlp.dense_h_to_4h",
                                           down = l .. "mlp.dense_4h_to_h" } })
        end)
        return p.parallel and (x + a + m):as "sum" or (input + m):as "sum"
end

local falcon = {
        name = "falcon",
        params = {
                vocab = 65024, ctx = 2048, n_layer = 32, n_embd = 4544, n_head = 71, n_kv_head = 1,
                n_ff = 18176, act = "gelu", eps = 1e-5, std = 0.02, alibi = false, bias = false,
                parallel = true, new_decoder = false, n_norm = 1, tied = true,
        },
        config = function(raw, family)
                local c = keys.read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                local new, H, n_norm = c.new_decoder_architecture, c.num_attention_heads,
                        c.num_ln_in_parallel_attn
                local K = new and (c.num_kv_heads or H) or c.multi_query and 1 or c.num_kv_heads
                        or H
                if not new and not c.multi_query and K ~= H then
                        config.refuse("num_kv_heads", K,
                                      "should be num_attention_heads, for there is neither "
                                      .. "new_decoder_architecture nor multi_query")
                end
                if H % K ~= 0 then
                        config.refuse("num_kv_heads", K, "does not divide num_attention_heads")
                end
                if new and not c.parallel_attn then
                        config.refuse("parallel_attn", false,
                                      "is not supported with new_decoder_architecture")
                end
                if n_norm and n_norm > (new and 2 or 1) and c.parallel_attn then
                        config.refuse("num_ln_in_parallel_attn", n_norm, "is not supported here")
                end
                -- The reference rounds slope times position to bfloat16: exact for some powers of
                -- two alone.
                if c.alibi
                        and (H ~= 1 and H ~= 2 and H ~= 4 and H ~= 8
                             or c.max_position_embeddings > 257) then
                        config.refuse(
                                "alibi", true, "is supported for 1, 2, 4 or 8 heads and up to 257 "
                                .. "positions: beyond, "
                                      .. "transformers rounds it to bfloat16, which tgc does not")
                end
                return config.with({
                        vocab = c.vocab_size, ctx = c.max_position_embeddings,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size, n_head = H,
                        n_kv_head = K, act = c.activation,
                        n_ff = c.ffn_hidden_size or 4 * c.hidden_size, eps = c.layer_norm_epsilon,
                        std = c.initializer_range, alibi = c.alibi or false, bias = c.bias or false,
                        parallel = c.parallel_attn or false, new_decoder = new or false,
                        n_norm = new and (n_norm or 2) or 1, tied = c.tie_word_embeddings,
                }, config.rope(c))
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local D = p.n_embd // p.n_head
                local rope = not p.alibi and b.rope_of(p, D) or nil
                -- Falcon adds ALiBi before it scales the scores
                local slopes = p.alibi and (b.alibi(p.n_head, 8) * D ^ -0.5):as "slopes" or nil
                local x, embed = b.embedding(ids, "embed", p.vocab, p.n_embd,
                                             { std = p.std, from = "transformer.word_embeddings" })
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, rope, slopes, i)
                end
                x = b.layernorm(x, "norm", { eps = p.eps, from = "transformer.ln_f" })
                if not p.tied then
                        return b.outputs(b.linear(x, "logits", p.vocab,
                                                  { std = p.std, from = "lm_head" }), targets)
                end
                ignore "lm_head.weight=transformer.word_embeddings.weight"
                return b.outputs(x:matmul(embed, { tb = 1 }):as "logits", targets)
        end,
}
b.with_defaults(falcon.params, b.rope_params)
return falcon
