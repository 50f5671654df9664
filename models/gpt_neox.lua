-- gpt_neox.lua: GPT-NeoX and Pythia.  Attention and MLP read the same sum (parallel
-- residual), a part of each head turns; the checkpoint keeps q, k, v of a head together.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local function block(x, p, rope, i)
        local l, C, H, D = "gpt_neox.layers." .. i .. ".", p.n_embd, p.n_head, p.n_embd // p.n_head
        local qkv = l .. "attention.query_key_value"
        -- (H,3,D,C) in the checkpoint: part n of each head
        local function cut(n)
                return string.format(": %dx%d | reshape %d 3 %d | cols %d %d | reshape %d %d",
                                     3 * C, C, H, D * C, n,
                                     n + 1, C, C)
        end
        local function cut_bias(n)
                return string.format(": %d | reshape %d 3 %d | cols %d %d | reshape %d", 3 * C, H,
                                     D, n, n + 1, C)
        end
        local turn = rope and string.format(" | rope %d %d", H, rope.dims) or ""
        local a = scope("attn", function()
                local h = b.layernorm(x, "norm", { eps = p.eps, from = l .. "input_layernorm" })
                return b.self_attention(h, {
                        n_head = H, head_dim = D, rope = rope, bias = p.attn_bias,
                        out_bias = p.attn_bias, std = p.std,
                        from = { q = qkv, k = qkv, v = qkv, o = l .. "attention.dense" },
                        steps = { q = cut(0) .. turn, k = cut(1) .. turn, v = cut(2) },
                        bias_steps = { q = cut_bias(0) .. turn, k = cut_bias(1) .. turn,
                                       v = cut_bias(2) },
                })
        end)
        local input = p.parallel and x or (x + a):as "middle"
        local m = scope("mlp", function()
                local h = b.layernorm(input, "norm",
                                      { eps = p.eps, from = l .. "post_attention_layernorm" })
                return b.mlp(h, { n_ff = p.n_ff, act = p.act, bias = true, std = p.std,
                                  from = { up = l .. "mlp.dense_h_to_4h",
                                           down = l .. "mlp.dense_4h_to_h" } })
        end)
        return p.parallel and (x + a + m):as "sum" or (input + m):as "sum"
end

local gpt_neox = {
        name = "gpt_neox",
        params = {
                vocab = 50304, ctx = 2048, n_layer = 12, n_embd = 768, n_head = 12, n_ff = 3072,
                act = "gelu", eps = 1e-5, std = 0.02, rotary = 0.25, parallel = true,
                attn_bias = true, tied = false,
        },
        config = function(raw, family)
                local c = keys.read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                return config.with({
                        vocab = c.vocab_size, ctx = c.max_position_embeddings,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size,
                        n_head = c.num_attention_heads, n_ff = c.intermediate_size,
                        act = c.hidden_act, eps = c.layer_norm_eps, std = c.initializer_range,
                        parallel = c.use_parallel_residual, attn_bias = c.attention_bias,
                        tied = c.tie_word_embeddings,
                }, config.rope(c, { theta = c.rotary_emb_base, partial = c.rotary_pct,
                                    partial_ok = true,
                                    partial_name = "rotary_pct" }))
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local rope = b.rope_of(p, p.n_embd // p.n_head)
                local x, embed = b.embedding(ids, "embed", p.vocab, p.n_embd,
                                             { std = p.std, from = "gpt_neox.embed_in" })
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, rope, i)
                end
                x = b.layernorm(x, "norm", { eps = p.eps, from = "gpt_neox.final_layer_norm" })
                ignore "*.attention.bias"               -- masks and tables that old checkpoints
                                                        -- carry
                ignore "*.attention.masked_bias"
                ignore "*.rotary_emb.inv_freq"
                if not p.tied then
                        return b.outputs(b.linear(x, "logits", p.vocab,
                                                  { std = p.std, from = "embed_out" }), targets)
                end
                ignore "embed_out.weight=gpt_neox.embed_in.weight"
                return b.outputs(x:matmul(embed, { tb = 1 }):as "logits", targets)
        end,
}
b.with_defaults(gpt_neox.params, b.rope_params)
return gpt_neox
