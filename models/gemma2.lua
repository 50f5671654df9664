-- gemma2.lua: Gemma 2.  Norms before and after each part, with gains stored less 1;
-- GeGLU; scores and logits capped softly; every other layer sees a window.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local function block(x, p, rope, i)
        local l = "model.layers." .. i .. "."
        local function norm(y, name, from)
                return b.rmsnorm(y, name, { eps = p.eps, offset = 1, from = l .. from })
        end
        local sliding = b.slides(p.pattern, i)
        local a, m = l .. "self_attn.", l .. "mlp."
        x = scope("attn", function()
                local y = b.self_attention(norm(x, "norm", "input_layernorm"), {
                        n_head = p.n_head, n_kv_head = p.n_kv_head, head_dim = p.head_dim,
                        rope = rope, std = p.std,
                        scale = p.score_width ^ -0.5, softcap = p.score_cap, window = sliding
                                and p.window or 0,
                        bias = p.attn_bias, out_bias = p.attn_bias,
                        from = { q = a .. "q_proj", k = a .. "k_proj", v = a .. "v_proj",
                                 o = a .. "o_proj" },
                        steps = { q = " | rope " .. p.n_head, k = " | rope " .. p.n_kv_head },
                        bias_steps = { q = " | rope " .. p.n_head, k = " | rope " .. p.n_kv_head },
                })
                return (x + norm(y, "after", "post_attention_layernorm")):as "sum"
        end)
        return scope("mlp", function()
                local y = b.gated_mlp(norm(x, "norm", "pre_feedforward_layernorm"), {
                        n_ff = p.n_ff, act = p.act, std = p.std,
                        from = { gate = m .. "gate_proj", up = m .. "up_proj",
                                 down = m .. "down_proj" },
                })
                return (x + norm(y, "after", "post_feedforward_layernorm")):as "sum"
        end)
end

local function cap(x, most)
        return most > 0 and (x * (1 / most)):tanh() * most or x
end

local gemma2 = {
        name = "gemma2",
        params = {
                vocab = 256000, ctx = 8192, n_layer = 26, n_embd = 2304, n_head = 8, n_kv_head = 4,
                head_dim = 256, n_ff = 9216, act = "gelu_tanh", eps = 1e-6, std = 0.02,
                attn_bias = false, tied = true,
                score_width = 256,      -- scores are scaled by its root
                score_cap = 50.0, logit_cap = 30.0,     -- 0: none
                window = 4096, pattern = "sf",          -- of layers: s sees the window, f
                                                        -- everything; repeated
        },
        config = function(raw, family)
                local c = keys.read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                config.heads(c.num_attention_heads, c.num_key_value_heads, c.head_dim, 1)
                local types = c.layer_types or {}
                if not c.layer_types then
                        for i = 1, c.num_hidden_layers do
                                types[i] = i % 2 == 1 and "sliding_attention" or "full_attention"
                        end
                end
                return config.with({
                        vocab = c.vocab_size, ctx = c.max_position_embeddings,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size,
                        n_head = c.num_attention_heads, n_kv_head = c.num_key_value_heads,
                        head_dim = c.head_dim, n_ff = c.intermediate_size, eps = c.rms_norm_eps,
                        std = c.initializer_range, act = c.hidden_activation,
                        attn_bias = c.attention_bias, tied = c.tie_word_embeddings,
                        score_width = c.query_pre_attn_scalar,
                        score_cap = c.attn_logit_softcapping or 0,
                        logit_cap = c.final_logit_softcapping or 0, window = c.sliding_window,
                        pattern = config.pattern(types, c.num_hidden_layers, c.sliding_window),
                }, config.rope(c))
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local rope = b.rope_of(p, p.head_dim)
                local x, embed = b.embedding(ids, "embed", p.vocab, p.n_embd,
                                             { std = p.std, from = "model.embed_tokens" })
                x = (x * p.n_embd ^ 0.5):as "x"
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, block, x, p, rope, i)
                end
                x = b.rmsnorm(x, "norm", { eps = p.eps, offset = 1, from = "model.norm" })
                local scores
                if p.tied then
                        ignore "lm_head.weight=model.embed_tokens.weight"
                        scores = x:matmul(embed, { tb = 1 }):as "scores"
                else
                        scores = b.linear(x, "scores", p.vocab, { std = p.std, from = "lm_head" })
                end
                return b.outputs(cap(scores, p.logit_cap):as "logits", targets)
        end,
}
b.with_defaults(gemma2.params, b.rope_params)
return gemma2
