-- gpt.lua: GPT-2.  Pre-norm, learned positions, one linear for q, k and v, tied head.
-- -D names any of these; the defaults are GPT-2 small.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local function block(x, p, i)
        local function name(s) return b.under({ "transformer.h." .. i, "h." .. i }, s) end
        local C, D = p.n_embd, p.n_embd // p.n_head
        local out_std = p.std / (2 * p.n_layer) ^ 0.5

        x = scope("attn", function()
                local h = b.layernorm(x, "norm", { eps = p.eps, from = name ".ln_1" })
                local qkv = b.linear(h, "qkv", 3 * C,
                                     { bias = true, std = p.std, from = name ".attn.c_attn",
                                                        steps = " | t" })
                local q, k, v = b.part(qkv, "q", 0, C), b.part(qkv, "k", C, C),
                        b.part(qkv, "v", 2 * C, C)
                local scale = (p.scale_scores and D ^ -0.5 or 1) / (p.scale_layers and i + 1 or 1)
                local y = b.attend(q, k, v, { n_head = p.n_head, head_dim = D, scale = scale,
                                              dropout = p.dropout })
                y = b.linear(y, "out", C, { bias = true, std = out_std, from = name ".attn.c_proj",
                                            steps = " | t" })
                return (x + b.dropout(y, p.dropout)):as "sum"
        end)
        return scope("mlp", function()
                local h = b.layernorm(x, "norm", { eps = p.eps, from = name ".ln_2" })
                h = b.mlp(h, { n_ff = p.n_ff > 0 and p.n_ff or 4 * C, act = p.act, bias = true,
                               std = p.std,
                               out_std = out_std,
                               from = { up = name ".mlp.c_fc", down = name ".mlp.c_proj" },
                               steps = " | t" })
                return (x + b.dropout(h, p.dropout)):as "sum"
        end)
end

return {
        name = "gpt",
        params = {
                vocab = 50257, ctx = 1024, n_layer = 12, n_head = 12, n_embd = 768,
                n_ff = 0,               -- 0: 4 * n_embd
                act = "gelu_tanh", eps = 1e-5, std = 0.02, dropout = 0.0, tied = true,
                scale_scores = true,    -- scores times 1/sqrt(head width)
                scale_layers = false,   -- scores also divided by the layer's number
        },
        config = function(raw, family)
                local c = keys.read(raw, family)
                config.divides(c, "n_head", "n_embd")
                return {
                        vocab = c.vocab_size, ctx = c.n_positions, n_layer = c.n_layer,
                        n_head = c.n_head, n_embd = c.n_embd, n_ff = c.n_inner or 0,
                        act = c.activation_function, eps = c.layer_norm_epsilon,
                        std = c.initializer_range, tied = c.tie_word_embeddings,
                        dropout = c.resid_pdrop, scale_scores = c.scale_attn_weights,
                        scale_layers = c.scale_attn_by_inverse_layer_idx,
                }
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local x, wte = b.embedding(ids, "wte", p.vocab, p.n_embd,
                                           { std = p.std, from = { "transformer.wte", "wte" } })
                local wpe = b.positions("wpe", p.ctx, p.n_embd,
                                        { std = p.std, from = { "transformer.wpe", "wpe" } })
                x = b.dropout((x + wpe):as "x", p.dropout)
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, i)
                end
                x = b.layernorm(x, "norm", { eps = p.eps, from = { "transformer.ln_f", "ln_f" } })
                ignore "*.attn.bias"            -- causal masks, stored in old checkpoints
                ignore "*.attn.masked_bias"
                local logits
                if p.tied then
                        ignore "lm_head.weight=transformer.wte.weight"
                        ignore "lm_head.weight=wte.weight"
                        logits = x:matmul(wte, { tb = 1 }):as "logits"
                else
                        logits = b.linear(x, "logits", p.vocab, { std = p.std, from = "lm_head" })
                end
                return b.outputs(logits, targets)
        end,
}
