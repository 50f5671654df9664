-- llama.lua: Llama 1 to 3, and Mistral, Qwen2, Qwen3 and Phi-3, which differ by a parameter.
-- Pre-norm RMSNorm, rotary positions, grouped queries, SwiGLU.
-- The defaults are Llama-3.2-1B.
--
-- The two elements of a rotary pair are neighbours here, as in llama2.c.  Hugging Face keeps them
-- half a head apart, so the rows of its q and k are reordered by `rope` when they are read.
local b = require "blocks"
local config = require "config"
local keys = require "config_keys"

-- Checkpoint names of a layer.
local spelling = {
        hf = function(i)
                local l = "model.layers." .. i .. "."
                return {
                        att_norm = l .. "input_layernorm",
                        mlp_norm = l .. "post_attention_layernorm", q = l .. "self_attn.q_proj",
                        k = l .. "self_attn.k_proj", v = l .. "self_attn.v_proj",
                        o = l .. "self_attn.o_proj", qkv = l .. "self_attn.qkv_proj",
                        q_norm = l .. "self_attn.q_norm", k_norm = l .. "self_attn.k_norm",
                        gate = l .. "mlp.gate_proj", up = l .. "mlp.up_proj",
                        down = l .. "mlp.down_proj", gate_up = l .. "mlp.gate_up_proj",
                        suffix = ".weight",
                }
        end,
        llama2c = function(i)
                local l = "layers." .. i .. "."
                return {
                        att_norm = l .. "rms_att", mlp_norm = l .. "rms_ffn",
                        q = l .. "wq", k = l .. "wk", v = l .. "wv", o = l .. "wo",
                        gate = l .. "w1", up = l .. "w3", down = l .. "w2", suffix = "",
                }
        end,
}
local outer = {
        hf = { embed = { "model.embed_tokens.weight", "lm_head.weight" },
               norm = "model.norm.weight",
               head = "lm_head.weight" },
        llama2c = { embed = { "tok_emb" }, norm = "rms_final", head = "wcls" },
}

local llama = { name = "llama" }

-- One checkpoint tensor holds several linears.  Each call takes the next rows of it.
local function cutter(rows, width)
        local at = 0
        return function(n)
                at = at + n
                return string.format(": %dx%d | rows %d %d", rows, width, at - n, at)
        end
end

function llama.attention(x, p, rope, from)
        local C, H, K, D = p.n_embd, p.n_head, p.n_kv_head, p.head_dim
        local turn = { v = "" }
        for name, heads in pairs { q = H, k = K } do
                turn[name] = p.source == "hf" and rope and string.format(" | rope %d %d", heads,
                        rope.dims) or ""
        end
        local steps, names = turn, from
        if p.fused then
                local cut = cutter((H + 2 * K) * D, C)
                steps = { q = cut(H * D) .. turn.q, k = cut(K * D) .. turn.k, v = cut(K * D) }
                names = { q = from.qkv, k = from.qkv, v = from.qkv, o = from.o }
        end
        local function qk_norm(y, name)
                return b.rmsnorm(y, name, { eps = p.eps, from = from[name], steps = " | rope 1" })
        end
        return b.self_attention(x, {
                n_head = H, n_kv_head = K, head_dim = D, rope = rope,
                qk_norm = p.qk_norm and qk_norm, window = from.slides and p.window or 0,
                dropout = p.dropout, bias = p.qkv_bias, out_bias = p.out_bias, std = p.std,
                from = names, suffix = from.suffix, steps = steps, bias_steps = turn,
        })
end

function llama.mlp(x, p, from)
        local steps, names = {}, from
        if p.fused then
                local cut = cutter(2 * p.n_ff, p.n_embd)
                steps = { gate = cut(p.n_ff), up = cut(p.n_ff) }
                names = { gate = from.gate_up, up = from.gate_up, down = from.down }
        end
        return b.gated_mlp(x, { n_ff = p.n_ff, act = p.act, bias = p.mlp_bias, std = p.std,
                                from = names, suffix = from.suffix, steps = steps })
end

-- Which layers use the window: all, those in layer_types, or those from max_window_layers on.
local function windows(c)
        local window, pattern = c.sliding_window, "s"
        if c.use_sliding_window == false then window = nil end
        if c.layer_types then
                pattern = config.pattern(c.layer_types, c.num_hidden_layers, window)
        elseif c.max_window_layers then
                local full = math.min(c.max_window_layers, c.num_hidden_layers)
                pattern = ("f"):rep(full) .. ("s"):rep(c.num_hidden_layers - full)
        end
        return window or 0, pattern
end

-- Phi-3 has two kinds of scaling.  Its first files call one of them "su".
local phi3_rope = { partial_ok = true, kinds = { default = true, longrope = true },
                    alias = { su = "longrope", yarn = "longrope" } }

-- Parameters from a config.json that was read.
function llama.from_hf(c, family)
        local window, pattern = windows(c)
        if not c.head_dim or family == "llama" then
                config.divides(c, "num_attention_heads", "hidden_size")
        end
        local p = config.with({
                vocab = c.vocab_size, ctx = c.max_position_embeddings,
                n_layer = c.num_hidden_layers, n_head = c.num_attention_heads,
                n_kv_head = c.num_key_value_heads or c.num_attention_heads,
                head_dim = c.head_dim or c.hidden_size // c.num_attention_heads,
                n_embd = c.hidden_size, n_ff = c.intermediate_size, act = c.hidden_act,
                eps = c.rms_norm_eps, std = c.initializer_range, tied = c.tie_word_embeddings,
                dropout = 0.0, qkv_bias = c.attention_bias or family == "qwen2",
                out_bias = c.attention_bias or false, mlp_bias = c.mlp_bias or false,
                qk_norm = family == "qwen3" or family == "qwen3_moe", fused = family == "phi3",
                source = "hf", window = window, pattern = pattern,
        }, config.rope(c, family == "phi3" and phi3_rope or nil))
        config.heads(p.n_head, p.n_kv_head, p.head_dim, p.rotary)
        if p.rope_scaling == "longrope" and family == "phi3" and p.head_dim
                * p.n_head ~= p.n_embd then
                config.refuse(config.rope_key(c), nil,
                              "is not supported with a head_dim of its own")
        end
        return p
end

local function from_llama2c(c)
        return b.with_defaults({
                vocab = c.vocab_size, ctx = c.seq_len, n_layer = c.n_layers, n_head = c.n_heads,
                n_kv_head = c.n_kv_heads,
                head_dim = c.dim // c.n_heads, n_embd = c.dim, n_ff = c.hidden_dim, tied = c.shared,
                eps = 1e-5, act = "silu", rope_theta = 10000.0, source = "llama2c",
        }, llama.params)
end

function llama.config(raw, family)
        local c, name = keys.read(raw, family)
        return name == "llama2c" and from_llama2c(c) or llama.from_hf(c, name)
end

llama.params = {
        vocab = 128256, ctx = 131072, n_layer = 16, n_embd = 2048, n_head = 32, n_kv_head = 8,
        head_dim = 64, n_ff = 8192, act = "silu", eps = 1e-5, std = 0.02, tied = true,
        dropout = 0.0, qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false,
        window = 0,             -- length of the attention window in tokens; 0: no window
        pattern = "s",          -- a letter for each layer, repeated: s with the window, f without
        rope_theta = 500000.0,
        fused = false,          -- the checkpoint stores q, k, v as one tensor, and gate, up as
                                -- another
        source = "hf",          -- names and rotary order of the checkpoint: hf, llama2c
}
b.with_defaults(llama.params, b.rope_params)

local function block(x, p, rope, from, mlp)
        x = scope("attn", function()
                local h = b.rmsnorm(x, "norm",
                                    { eps = p.eps, from = from.att_norm, suffix = from.suffix })
                return (x + b.dropout(llama.attention(h, p, rope, from), p.dropout)):as "sum"
        end)
        return scope("mlp", function()
                local h = b.rmsnorm(x, "norm",
                                    { eps = p.eps, from = from.mlp_norm, suffix = from.suffix })
                return (x + b.dropout(mlp(h, p, from), p.dropout)):as "sum"
        end)
end

-- The model up to the logits.  mlp(x, p, from) makes a layer's MLP.
function llama.logits(ids, p, mlp)
        local names = outer[p.source] or error("source is hf or llama2c, not '" .. p.source .. "'")
        local rope = b.rope_of(p, p.head_dim)
        local embed = param("embed.weight", { p.vocab, p.n_embd }, { std = p.std })
        b.map(embed, names.embed, "")
        local x = b.dropout(embed:gather(ids):as "x", p.dropout)
        for i = 0, p.n_layer - 1 do
                local from = spelling[p.source](i)
                from.slides = b.slides(p.pattern, i)
                x = scope("blk" .. i, block, x, p, rope, from, mlp)
        end
        x = b.rmsnorm(x, "norm", { eps = p.eps, from = names.norm, suffix = "" })
        if p.source == "hf" then ignore "*.rotary_emb.inv_freq" end
        if not p.tied then
                return b.linear(x, "logits", p.vocab,
                                { std = p.std, from = names.head, suffix = "" })
        end
        ignore(p.source == "hf" and "lm_head.weight=model.embed_tokens.weight" or names.head)
        return x:matmul(embed, { tb = 1 }):as "logits"
end

function llama.graph(p)
        local ids, targets = b.inputs()
        return b.outputs(llama.logits(ids, p, llama.mlp), targets)
end

return llama
