-- mpt.lua: MPT.  ALiBi instead of positions, layernorm and linears without biases,
-- tied head.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local function block(x, p, slopes, i)
        local l, C = "transformer.blocks." .. i .. ".", p.n_embd
        local function norm(y, n)
                return b.layernorm(y, "norm",
                                   { eps = p.eps, bias = false, from = l .. "norm_" .. n })
        end
        x = scope("attn", function()
                local qkv = b.linear(norm(x, 1), "qkv", 3 * C,
                                     { std = p.std, from = l .. "attn.Wqkv" })
                local q, k, v = b.part(qkv, "q", 0, C), b.part(qkv, "k", C, C),
                        b.part(qkv, "v", 2 * C, C)
                local y = b.attend(q, k, v, { n_head = p.n_head, head_dim = C // p.n_head,
                                              slopes = slopes,
                                              scale = p.scale > 0 and p.scale or nil })
                return (x
                        + b.linear(y, "out", C,
                                   { std = p.std, from = l .. "attn.out_proj" })):as "sum"
        end)
        return scope("mlp", function()
                local y = b.mlp(norm(x, 2), { n_ff = 4 * C, act = "gelu", std = p.std,
                                              from = { up = l .. "ffn.up_proj",
                                                       down = l .. "ffn.down_proj" } })
                return (x + y):as "sum"
        end)
end

return {
        name = "mpt",
        params = {
                vocab = 50432, ctx = 2048, n_layer = 32, n_embd = 4096, n_head = 32, eps = 1e-5,
                std = 0.02,
                bias_max = 8, tied = true, scale = 0.0,  -- 0: one over the root of the head's width
        },
        config = function(raw, family)
                local c = keys.read(raw, family)
                config.divides(c, "n_heads", "d_model")
                return {
                        vocab = c.vocab_size, ctx = c.max_seq_len, n_layer = c.n_layers,
                        n_embd = c.d_model, n_head = c.n_heads, eps = c.layer_norm_epsilon,
                        std = c.initializer_range, bias_max = 8, tied = c.tie_word_embeddings,
                        scale = c.attn_config.softmax_scale or 0,
                }
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local slopes = b.alibi(p.n_head, p.bias_max)
                local x, wte = b.embedding(ids, "wte", p.vocab, p.n_embd,
                                           { std = p.std, from = "transformer.wte" })
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, slopes, i)
                end
                x = b.layernorm(x, "norm",
                                { eps = p.eps, bias = false, from = "transformer.norm_f" })
                if not p.tied then
                        return b.outputs(b.linear(x, "logits", p.vocab,
                                                  { std = p.std, from = "lm_head" }), targets)
                end
                ignore "lm_head.weight=transformer.wte.weight"
                return b.outputs(x:matmul(wte, { tb = 1 }):as "logits", targets)
        end,
}
