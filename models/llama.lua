-- llama.lua: Llama 1 to 3, and what differs from it by a switch: Mistral, Qwen2,
-- Qwen3, Phi-3.  Pre-norm RMSNorm, rotary positions, grouped queries, SwiGLU.
-- The defaults are Llama-3.2-1B.
--
-- Rotary pairs are neighbours here.  Hugging Face keeps them half a head apart, so
-- its q and k go through `rope`; llama2.c's files are as ours.
local b = require "blocks"

-- Checkpoint names of a layer.
local spelling = {
        hf = function(i)
                local l = "model.layers." .. i .. "."
                return {
                        att_norm = l .. "input_layernorm", mlp_norm = l .. "post_attention_layernorm",
                        q = l .. "self_attn.q_proj", k = l .. "self_attn.k_proj", v = l .. "self_attn.v_proj",
                        o = l .. "self_attn.o_proj", qkv = l .. "self_attn.qkv_proj",
                        q_norm = l .. "self_attn.q_norm", k_norm = l .. "self_attn.k_norm",
                        gate = l .. "mlp.gate_proj", up = l .. "mlp.up_proj", down = l .. "mlp.down_proj",
                        gate_up = l .. "mlp.gate_up_proj", suffix = ".weight",
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
        hf = { embed = { "model.embed_tokens.weight", "lm_head.weight" }, norm = "model.norm.weight",
               head = "lm_head.weight" },
        llama2c = { embed = { "tok_emb" }, norm = "rms_final", head = "wcls" },
}

local llama = { name = "llama" }

-- Rows of one tensor that holds several linears, in the order of asking.
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
                turn[name] = p.source == "hf" and string.format(" | rope %d %d", heads, rope.dims) or ""
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
                n_head = H, n_kv_head = K, head_dim = D, rope = rope, qk_norm = p.qk_norm and qk_norm,
                window = p.window, dropout = p.dropout, bias = p.qkv_bias, out_bias = p.out_bias, std = p.std,
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

-- Transformers 4 writes rope_theta and rope_scaling, 5 writes rope_parameters.
local function rope_of(c, out)
        local r = c.rope_parameters or c.rope_scaling or {}
        local kind = r.rope_type or r.type or "default"
        out.rope_theta = r.rope_theta or c.rope_theta
        out.rope_scaling = kind == "default" and "none" or kind
        out.rope_factor = r.factor
        out.rope_low = r.low_freq_factor
        out.rope_high = r.high_freq_factor
        out.rope_original = r.original_max_position_embeddings
        out.rotary = r.partial_rotary_factor or c.partial_rotary_factor
        return out
end

function llama.from_hf(c)
        return rope_of(c, {
                vocab = c.vocab_size, ctx = c.max_position_embeddings, n_layer = c.num_hidden_layers,
                n_head = c.num_attention_heads, n_kv_head = c.num_key_value_heads or c.num_attention_heads,
                head_dim = c.head_dim or c.hidden_size // c.num_attention_heads,
                n_embd = c.hidden_size, n_ff = c.intermediate_size, act = c.hidden_act, eps = c.rms_norm_eps,
                std = c.initializer_range, tied = c.tie_word_embeddings or false,
                qkv_bias = c.attention_bias or c.model_type == "qwen2", out_bias = c.attention_bias or false,
                mlp_bias = c.mlp_bias or false, qk_norm = (c.model_type or ""):sub(1, 5) == "qwen3",
                fused = c.model_type == "phi3", source = "hf",
                window = c.use_sliding_window ~= false and c.sliding_window or 0,
        })
end

local function from_llama2c(c)
        return {
                vocab = c.vocab_size, ctx = c.seq_len, n_layer = c.n_layers, n_head = c.n_heads,
                n_kv_head = c.n_kv_heads,
                head_dim = c.dim // c.n_heads, n_embd = c.dim, n_ff = c.hidden_dim, tied = c.shared, eps = 1e-5,
                rope_theta = 10000.0, source = "llama2c",
        }
end

function llama.config(c, family)
        return family == "llama2c" and from_llama2c(c) or llama.from_hf(c)
end

llama.params = {
        vocab = 128256, ctx = 131072, n_layer = 16, n_embd = 2048, n_head = 32, n_kv_head = 8, head_dim = 64,
        n_ff = 8192, act = "silu", eps = 1e-5, std = 0.02, tied = true, dropout = 0.0,
        qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false,
        window = 0,             -- tokens that attention sees; 0: all
        rope_theta = 500000.0,
        rotary = 1.0,           -- part of each head that turns
        rope_scaling = "none",  -- none, linear, llama3
        rope_factor = 1.0, rope_low = 1.0, rope_high = 4.0, rope_original = 8192,
        fused = false,          -- the checkpoint has q, k, v in one tensor, and gate, up
        source = "hf",          -- names and rotary order of the checkpoint: hf, llama2c
}

local function block(x, p, rope, from, mlp)
        x = scope("attn", function()
                local h = b.rmsnorm(x, "norm", { eps = p.eps, from = from.att_norm, suffix = from.suffix })
                return (x + b.dropout(llama.attention(h, p, rope, from), p.dropout)):as "sum"
        end)
        return scope("mlp", function()
                local h = b.rmsnorm(x, "norm", { eps = p.eps, from = from.mlp_norm, suffix = from.suffix })
                return (x + b.dropout(mlp(h, p, from), p.dropout)):as "sum"
        end)
end

-- Everything up to the logits; mlp(x, p, from) is each layer's.
function llama.logits(ids, p, mlp)
        local names = outer[p.source] or error("source is hf or llama2c, not '" .. p.source .. "'")
        local rope = b.rope(math.tointeger(p.head_dim * p.rotary // 1), p.rope_theta, {
                kind = p.rope_scaling, factor = p.rope_factor, low = p.rope_low, high = p.rope_high,
                original = p.rope_original,
        })
        local embed = param("embed.weight", { p.vocab, p.n_embd }, { std = p.std })
        b.map(embed, names.embed, "")
        local x = b.dropout(embed:gather(ids):as "x", p.dropout)
        for i = 0, p.n_layer - 1 do
                x = scope("blk" .. i, block, x, p, rope, spelling[p.source](i), mlp)
        end
        x = b.rmsnorm(x, "norm", { eps = p.eps, from = names.norm, suffix = "" })
        if p.source == "hf" then ignore "*.rotary_emb.inv_freq" end
        if not p.tied then return b.linear(x, "logits", p.vocab, { std = p.std, from = names.head, suffix = "" }) end
        ignore(names.head)
        return x:matmul(embed, { tb = 1 }):as "logits"
end

function llama.graph(p)
        local ids, targets = b.inputs()
        return b.outputs(llama.logits(ids, p, llama.mlp), targets)
end

return llama
