-- decoder.lua: one decoder for many families.  A parameter stands for each thing that differs
-- between them.  A family's file gives the names in the checkpoint, and turns config.json into
-- parameters: decoder.file { name, params, names(i, p), outer, config(c, family) }.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

local decoder = {}

-- These defaults are Llama's.
decoder.params = {
        act = "silu", eps = 1e-5, std = 0.02, dropout = 0.0,
        norm = "rms",           -- rms; rms1: RMSNorm whose stored gain is 1 less; layer: layernorm;
                                -- gain: layernorm without bias; plain: without both
        order = "pre",          -- where norms n of a part f are.  pre: x + f(n(x)); post: x +
                                -- n(f(x)); both: x + n2(f(n(x))); after: n(x + f(x)); parallel:
                                -- both parts read one n(x)
        last_norm = true,       -- a norm before the head
        qkv_bias = false, out_bias = false, mlp_bias = false, head_bias = false,
        tied = false,           -- the head uses the embedding's weights
        qk_norm = "none",       -- norm of queries and keys.  head: all heads share a gain; heads: a
                                -- gain for each head; each: the same, a tensor for each head; all:
                                -- one norm over all heads
        qk_norm_bias = false, qk_norm_last = false,     -- last: the norm comes after rotary
                                                        -- positions
        clip = 0.0,             -- clamp q, k and v to this size; 0: no
        sinks = false,          -- each head's softmax has one more learned logit, without a value
        score_scale = 0.0,      -- factor of the scores; 0: 1/sqrt(head_dim)
        score_cap = 0.0, logit_cap = 0.0,               -- soft caps c: x becomes c tanh(x / c); 0:
                                                        -- no cap
        embed_scale = 1.0,      -- factor of embeddings; 0: sqrt(n_embd)
        residual_scale = 1.0, logit_scale = 1.0,
        gated = true,           -- down(act(gate(x)) * up(x)), or down(act(up(x)))
        fused = false,          -- the checkpoint stores gate and up as one tensor
        window = 0,             -- length of the attention window in tokens; 0: no window
        pattern = "s",          -- a letter for each layer, repeated: s with the window, f without
        turns = "r",            -- a letter for each layer, repeated: r rotary positions, l rotary
                                -- with local_theta, n none
        interleaved = false,    -- in the checkpoint the elements of a rotary pair are neighbours,
                                -- not half a head apart
        local_theta = 10000.0,
}
b.with_defaults(decoder.params, b.rope_params)

-- Llama's names: in layer i, and outside of the layers.
function decoder.names(i)
        local l = "model.layers." .. i .. "."
        local a, m = l .. "self_attn.", l .. "mlp."
        return {
                layer = l, att_norm = l .. "input_layernorm",
                mlp_norm = l .. "post_attention_layernorm",
                att_after = l .. "post_attention_layernorm",
                mlp_after = l .. "post_feedforward_layernorm", q = a .. "q_proj", k = a .. "k_proj",
                v = a .. "v_proj", o = a .. "o_proj", q_norm = a .. "q_norm",
                k_norm = a .. "k_norm", gate = m .. "gate_proj", up = m .. "up_proj",
                down = m .. "down_proj", gate_up = m .. "gate_up_proj",
        }
end
decoder.outer = { embed = "model.embed_tokens", norm = "model.norm", head = "lm_head" }

-- Norms -------------------------------------------------------------------------------

local norms = {
        rms = function(x, name, o) return b.rmsnorm(x, name, o) end,
        rms1 = function(x, name, o)
                return b.rmsnorm(x, name, { eps = o.eps, from = o.from, steps = o.steps,
                                            offset = 1 }) end,
        layer = function(x, name, o) return b.layernorm(x, name, o) end,
        gain = function(x, name, o) return b.layernorm(x, name,
                                                       { eps = o.eps, from = o.from,
                                                         steps = o.steps, bias = false }) end,
        plain = function(x, name, o) return x:layernorm(o.eps):as(name) end,
}

function decoder.norm(x, name, p, from, steps)
        local f = norms[p.norm] or error("norm is rms, rms1, layer, gain or plain, not '" .. p.norm
                                         .. "'")
        return f(x, name, { eps = p.eps, from = from, steps = steps })
end

-- The norm of heads x (B,T,n,D), each head with its gain: one tensor (n,D), or a tensor for each
-- head.
local function norm_heads(x, name, p, from, turn)
        local n, D = x.shape[3], x.shape[4]
        local gain = param(name .. ".weight", { n, D }, { init = "ones" })
        if p.qk_norm == "heads" then
                gain:from(from .. ".weight" .. turn)
        else
                for h = 0, n - 1 do
                        gain:from(string.format("%s.norms.%d.weight: %d%s | reshape 1 %d", from, h,
                                                D, turn, D),
                                  { rows = { h, h + 1 } })
                end
        end
        return (x:layernorm(p.eps):as(name .. ".unit") * gain):as(name)
end

-- Attention -----------------------------------------------------------------------------

-- Norm and clamp of q, k and v before they are split into heads.
local function before_heads(p, from, turn)
        return function(y, name)
                if p.qk_norm == "all" and name ~= "v" then
                        y = b.rmsnorm(y, name .. "_norm",
                                      { eps = p.eps, from = from[name .. "_norm"],
                                        steps = turn[name] })
                end
                return p.clip > 0 and y:max(-p.clip):min(p.clip):as(name .. "_clip") or y
        end
end

local function attention(x, p, from, layer)
        local H, K, D, rope = p.n_head, p.n_kv_head, p.head_dim, layer.rope
        local halves = rope and not p.interleaved
        local turn = { v = "" }
        for name, heads in pairs { q = H, k = K } do
                turn[name] = halves and string.format(" | rope %d %d", heads, rope.dims) or ""
        end
        local one = halves and " | rope 1 " .. rope.dims or ""
        local function qk_norm(y, name)
                if p.qk_norm ~= "head" then return norm_heads(y, name, p, from[name], one) end
                local kind = p.norm == "rms1" and "rms1" or p.norm == "rms" and "rms"
                        or p.qk_norm_bias and "layer" or "gain"
                return norms[kind](y, name, { eps = p.eps, from = from[name], steps = one })
        end
        local steps = turn
        if from.cut then
                steps = {}
                for _, name in ipairs { "q", "k", "v" } do
                        steps[name] = from.cut(name) .. turn[name]
                end
        end
        local bias_steps = turn
        if from.cut_bias then
                bias_steps = {}
                for _, name in ipairs { "q", "k", "v" } do
                        bias_steps[name] = from.cut_bias(name) .. turn[name]
                end
        end
        local sinks
        if p.sinks then
                sinks = param("sinks", { H })
                sinks:from(from.layer .. "self_attn.sinks")
        end
        return b.self_attention(x, {
                n_head = H, n_kv_head = K, head_dim = D, rope = rope, slopes = layer.slopes,
                sinks = sinks, each = before_heads(p, from, turn), norm_last = p.qk_norm_last,
                qk_norm = p.qk_norm ~= "none" and p.qk_norm ~= "all" and qk_norm or nil,
                scale = p.score_scale > 0 and p.score_scale or nil, softcap = p.score_cap,
                window = layer.window, dropout = p.dropout, bias = p.qkv_bias,
                out_bias = p.out_bias, std = p.std, from = from, steps = steps,
                bias_steps = bias_steps,
        })
end

-- MLPs ----------------------------------------------------------------------------------

-- Rows at..at+n of a tensor (rows,C) that holds two linears.
local function rows(all, width, at, n)
        return string.format(": %dx%d | rows %d %d", all, width, at, at + n)
end

-- width: default p.n_ff.
function decoder.mlp(x, p, from, _, width)
        local F, C = width or p.n_ff, p.n_embd
        if not p.gated then
                return b.mlp(x, { n_ff = F, act = p.act, bias = p.mlp_bias, std = p.std,
                                  from = from })
        end
        local names, steps = from, {}
        if p.fused then
                names = { gate = from.gate_up, up = from.gate_up, down = from.down }
                steps = { gate = rows(2 * F, C, 0, F), up = rows(2 * F, C, F, F) }
        end
        return b.gated_mlp(x, { n_ff = F, act = p.act, bias = p.mlp_bias, std = p.std, from = names,
                                steps = steps })
end

-- Layers --------------------------------------------------------------------------------

-- One layer.  p.order says where its norms are.  mlp(x, p, from, i) makes its second part.
local function block(x, p, from, layer, mlp, i)
        local order = p.order
        local function joined(a, y, name)
                y = b.dropout(y, p.dropout)
                if p.residual_scale ~= 1 then y = (y * p.residual_scale):as(name .. "_scaled") end
                return (a + y):as "sum"
        end
        -- part f of x, with its norms
        local function part(f, before, after, name)
                local h, out = x, nil
                if order == "pre" or order == "both" then h = decoder.norm(x, "norm", p, before) end
                h = f(h)
                if order == "post" or order == "both" then
                        h = decoder.norm(h, "after", p, after)
                end
                out = joined(x, h, name)
                return order == "after" and decoder.norm(out, "after", p, before) or out
        end
        local function att(h) return (layer.attention or attention)(h, p, from, layer) end
        local function second(h) return mlp(h, p, from, i) end
        if order ~= "parallel" then
                x = scope("attn", part, att, from.att_norm, from.att_after, "att")
                return scope("mlp", part, second, from.mlp_norm, from.mlp_after, "mlp")
        end
        local h = decoder.norm(x, "norm", p, from.att_norm)
        local a, m = scope("attn", att, h), scope("mlp", second, h)
        return joined(joined(x, a, "att"), m, "mlp")
end

local orders = { pre = true, post = true, both = true, after = true, parallel = true }

-- All layers.  o: names(i, p), mlp, slopes, and attention(h, p, from, layer) for a family with its
-- own.
function decoder.layers(x, p, o)
        if not orders[p.order] then
                error("order is pre, post, both, after or parallel, not '" .. p.order .. "'")
        end
        local names, rope, near = o.names or decoder.names, b.rope_of(p, p.head_dim), nil
        for i = 0, p.n_layer - 1 do
                local turns = b.letter(p.turns, i)
                if turns == "l" and not near then
                        near = b.rope(p.head_dim, p.local_theta, nil, "rope_local.freq")
                end
                local layer = {
                        rope = turns == "r" and rope or turns == "l" and near or nil,
                        slopes = o.slopes, attention = o.attention,
                        window = b.slides(p.pattern, i) and p.window or 0,
                }
                x = scope("blk" .. i, block, x, p, names(i, p), layer, o.mlp or decoder.mlp, i)
        end
        return x
end

-- The last norm and the head.  outer: names of embed, norm, head.
function decoder.head(x, p, embed, outer)
        if p.last_norm then x = decoder.norm(x, "norm", p, outer.norm) end
        if outer.project then x = outer.project(x) end
        if p.logit_scale ~= 1 then x = (x * p.logit_scale):as "scaled" end
        local name = p.logit_cap > 0 and "scores" or "logits"
        local y
        if not p.tied then
                y = b.linear(x, name, p.vocab,
                             { std = p.std, from = outer.head, bias = p.head_bias })
        else
                ignore(outer.head .. ".weight=" .. outer.embed .. ".weight")
                y = x:matmul(embed, { tb = 1 }):as(p.head_bias and "logits.product" or name)
                if p.head_bias then
                        local bias = param("logits.bias", { p.vocab })
                        b.map(bias, outer.head, ".bias")
                        y = (y + bias):as(name)
                end
        end
        return p.logit_cap > 0 and ((y * (1 / p.logit_cap)):tanh() * p.logit_cap):as "logits" or y
end

-- The model up to the logits.  o: as in layers, and outer.
function decoder.logits(ids, p, o)
        local outer = o.outer or decoder.outer
        local x, embed = b.embedding(ids, "embed", p.vocab, p.n_embd,
                                     { std = p.std, from = outer.embed })
        local scale = p.embed_scale > 0 and p.embed_scale or p.n_embd ^ 0.5
        if scale ~= 1 then x = (x * scale):as "x" end
        x = decoder.layers(b.dropout(x, p.dropout), p, o)
        ignore "*.rotary_emb.inv_freq"
        return decoder.head(x, p, embed, outer)
end

-- Files -----------------------------------------------------------------------------------

-- Parameters from a config.json that was read.  The family's own come on top.
function decoder.from_hf(c, more)
        local H, K = c.num_attention_heads, c.num_key_value_heads or c.num_attention_heads
        if not c.head_dim then config.divides(c, "num_attention_heads", "hidden_size") end
        local p = config.with({
                vocab = c.vocab_size, ctx = c.max_position_embeddings,
                n_layer = c.num_hidden_layers, n_head = H, n_kv_head = K,
                head_dim = c.head_dim or c.hidden_size // H, n_embd = c.hidden_size,
                n_ff = c.intermediate_size, act = c.hidden_act,
                eps = c.rms_norm_eps or c.layer_norm_eps, std = c.initializer_range,
                tied = c.tie_word_embeddings, qkv_bias = c.attention_bias or false,
                out_bias = c.attention_bias or false, mlp_bias = c.mlp_bias or false,
        }, more)
        config.heads(p.n_head, p.n_kv_head, p.head_dim, p.rotary == 0 and 0 or 1)
        return b.with_defaults(p, decoder.params)
end

-- A model's file.  f: name, params, names, outer, mlp, config(c, family).
function decoder.file(f)
        b.with_defaults(f.params, decoder.params)
        return {
                name = f.name, params = f.params,
                config = function(raw, family) return f.config(keys.read(raw, family)) end,
                graph = function(p)
                        local ids, targets = b.inputs()
                        return b.outputs(decoder.logits(ids, p, f), targets)
                end,
        }
end

return decoder
