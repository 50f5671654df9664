-- bert.lua: encoders: BERT, MiniLM, RoBERTa and XLM-RoBERTa.  Every token sees every token of its
-- text, so the result is a vector for each of them, and no text is generated.  Learned positions,
-- layernorm behind each part.  Of the two kinds of tokens a text by itself has the first.  The
-- defaults are BERT base, uncased.
local b = require "blocks"
local config = require "config"

local params = {
        vocab = 30522, ctx = 512, n_layer = 12, n_embd = 768, n_head = 12, n_ff = 3072,
        act = "gelu", eps = 1e-12, std = 0.02, n_kinds = 2,
        first = 0,              -- row of the table of positions that position 0 has
        family = "bert",        -- what names of parameters may begin with
}

-- A checkpoint's names for one of this file's: a model with a head has them behind the family's
-- name.
local function names(p, name) return b.under({ "", p.family .. "." }, name) end

-- Older files call a norm's gain gamma and its bias beta.
local function norm(x, name, p, from)
        local C = x.shape[3]
        local gain, bias = param(name .. ".weight", { C }, { init = "ones" }),
                param(name .. ".bias", { C })
        local function either(new, old)
                local out = {}
                for i, prefix in ipairs(names(p, from)) do
                        out[i] = prefix .. new .. " || " .. prefix .. old
                end
                return table.concat(out, " || ")
        end
        gain:from(either(".weight", ".gamma"))
        bias:from(either(".bias", ".beta"))
        return ((x:layernorm(p.eps):as(name .. ".unit") * gain):as(name .. ".scaled")
                + bias):as(name)
end

local function layer(x, p, from)
        local function name(s) return names(p, from .. s) end
        local y = scope("attn", b.self_attention, x, {
                n_head = p.n_head, head_dim = p.n_embd // p.n_head, bidirectional = true,
                bias = true, out_bias = true,
                std = p.std,
                from = { q = name "attention.self.query", k = name "attention.self.key",
                                      v = name "attention.self.value",
                                      o = name "attention.output.dense" },
        })
        x = norm((x + y):as "attn.sum", "attn.norm", p, from .. "attention.output.LayerNorm")
        y = scope("mlp", b.mlp, x, { n_ff = p.n_ff, act = p.act, bias = true, std = p.std,
                                     from = { up = name "intermediate.dense",
                                              down = name "output.dense" } })
        return norm((x + y):as "mlp.sum", "mlp.norm", p, from .. "output.LayerNorm")
end

return {
        name = "bert", params = params,
        config = function(raw, family)
                local c, name = require "config_keys".read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                -- RoBERTa's positions begin behind that of padding
                local first = name == "bert" and 0 or c.pad_token_id + 1
                if c.max_position_embeddings <= first then
                        config.refuse("max_position_embeddings", c.max_position_embeddings,
                                      "leaves no position, for the first is " .. first)
                end
                return {
                        vocab = c.vocab_size, ctx = c.max_position_embeddings - first,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size,
                        n_head = c.num_attention_heads, n_ff = c.intermediate_size,
                        act = c.hidden_act, eps = c.layer_norm_eps, std = c.initializer_range,
                        n_kinds = c.type_vocab_size, first = first,
                        family = name == "bert" and "bert" or "roberta",
                }
        end,
        graph = function(p)
                local ids, C = input("ids", { B, T }), p.n_embd
                local function table_(name, rows, from)
                        local w = param(name .. ".weight", { rows, C }, { std = p.std })
                        return b.map(w, names(p, "embeddings." .. from .. "_embeddings"), ".weight")
                end
                local words = table_("words", p.vocab, "word"):gather(ids):as "words"
                local places = table_("positions", p.first + p.ctx, "position")
                if p.first > 0 then
                        places = places:slice { axis = 0, start = p.first, len = p.ctx }:as "places"
                end
                local kind = table_("kinds", p.n_kinds, "token_type"):slice { axis = 0, start = 0,
                        len = 1 }
                local x = (words + kind:reshape { C }:as "kind"):as "words.kind"
                x = norm((x + places:gather(position()):as "at"):as "x", "embed.norm", p,
                         "embeddings.LayerNorm")
                for i = 0, p.n_layer - 1 do
                        x = scope("blk" .. i, layer, x, p, "encoder.layer." .. i .. ".")
                end
                for _, unused in ipairs { "*pooler.*", "cls.*", "lm_head.*", "classifier.*",
                                          "qa_outputs.*",
                                          "*embeddings.position_ids" } do
                        ignore(unused)
                end
                return { hidden = x }
        end,
}
