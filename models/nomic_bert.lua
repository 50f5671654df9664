-- nomic_bert.lua: nomic-embed-text: BERT with rotary positions, a gated MLP and linears without
-- biases.  Every token sees every token of its text, so the result is a vector for each of them.
-- Of the two kinds of tokens a text by itself has the first.  The defaults are those of
-- nomic-embed-text-v1.5.
local b = require "blocks"
local config = require "config"

local params = {
        vocab = 30528, ctx = 2048, n_layer = 12, n_embd = 768, n_head = 12, n_ff = 3072,
        eps = 1e-12, std = 0.02,
        act = "silu",           -- of the gate
        n_kinds = 2,            -- of tokens; 0: none
        rope_theta = 1000.0,
        qkv_bias = false, up_bias = false, down_bias = false,
}
local gates = { swiglu = "silu", geglu = "gelu", glu = "sigmoid" }

-- A checkpoint's names for one of this file's: a model with a head has them behind its own.
local function names(name) return b.under({ "", "bert.", "nomic_bert." }, name) end

local function layer(x, p, rope, from)
        local C, D = p.n_embd, p.n_embd // p.n_head
        local function name(s) return names(from .. s) end
        local qkv, steps, bias_steps = name "attn.Wqkv", {}, {}
        for i, part in ipairs { "q", "k", "v" } do
                local turn = part == "v" and "" or string.format(" | rope %d %d", p.n_head,
                        rope.dims)
                steps[part] = string.format(": %dx%d | rows %d %d%s", 3 * C, C, (i - 1) * C, i * C,
                                            turn)
                bias_steps[part] = string.format(": %d | rows %d %d%s", 3 * C, (i - 1) * C, i * C,
                                                 turn)
        end
        local y = scope("attn", b.self_attention, x, {
                n_head = p.n_head, head_dim = D, rope = rope, bidirectional = true,
                bias = p.qkv_bias, out_bias = p.qkv_bias, std = p.std, steps = steps,
                bias_steps = bias_steps,
                from = { q = qkv, k = qkv, v = qkv, o = name "attn.out_proj" },
        })
        x = b.layernorm((x + y):as "attn.sum", "attn.norm", { eps = p.eps, from = name "norm1" })
        local function mlp(h)
                local function part(input, as, width, tensor, bias)
                        return b.linear(input, as, width,
                                        { bias = bias, std = p.std, from = name("mlp." .. tensor) })
                end
                local up, gate = part(h, "up", p.n_ff, "fc11", p.up_bias),
                        part(h, "gate", p.n_ff, "fc12", p.up_bias)
                return part((up * b.activation(gate, p.act):as "act"):as "h", "down", C, "fc2",
                            p.down_bias)
        end
        return b.layernorm((x + scope("mlp", mlp, x)):as "mlp.sum", "mlp.norm",
                           { eps = p.eps, from = name "norm2" })
end

return {
        name = "nomic_bert", params = params,
        config = function(raw, family)
                local c = require "config_keys".read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                local theta = c.rotary_emb_base or c.rope_parameters.rope_theta
                if not theta then config.refuse("rotary_emb_base", nil, "is needed") end
                if not c.layer_norm_eps then
                        config.refuse("layer_norm_epsilon", nil, "is needed")
                end
                -- the published code's n_inner is rounded up, transformers' intermediate_size is
                -- not
                local n_ff = c.n_inner and (c.n_inner + 255) // 256 * 256 or c.intermediate_size
                if not n_ff then config.refuse("n_inner", nil, "is needed") end
                local m = c.pad_vocab_size_multiple
                return {
                        vocab = (c.vocab_size + m - 1) // m * m,
                        ctx = c.n_positions or c.max_position_embeddings,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size,
                        n_head = c.num_attention_heads, n_ff = n_ff, eps = c.layer_norm_eps,
                        std = c.initializer_range,
                        act = gates[c.activation_function] or c.hidden_act or "silu",
                        n_kinds = c.type_vocab_size, rope_theta = theta, qkv_bias = c.qkv_proj_bias,
                        up_bias = c.mlp_fc1_bias, down_bias = c.mlp_fc2_bias,
                }
        end,
        graph = function(p)
                local ids, C = input("ids", { B, T }), p.n_embd
                local function table_(name, rows, from)
                        local w = param(name .. ".weight", { rows, C }, { std = p.std })
                        return b.map(w, names("embeddings." .. from .. "_embeddings"), ".weight")
                end
                local x = table_("words", p.vocab, "word"):gather(ids):as "words"
                if p.n_kinds > 0 then
                        local kind = table_("kinds", p.n_kinds, "token_type"):slice { axis = 0,
                                start = 0, len = 1 }
                        x = (x + kind:reshape { C }:as "kind"):as "words.kind"
                end
                x = b.layernorm(x, "embed.norm", { eps = p.eps, from = names "emb_ln" })
                local rope = b.rope(C // p.n_head, p.rope_theta)
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, layer, x, p, rope, "encoder.layers." .. i .. ".")
                end
                for _, unused in ipairs { "*pooler.*", "cls.*", "lm_head.*", "classifier.*" } do
                        ignore(unused)
                end
                return { hidden = x }
        end,
}
