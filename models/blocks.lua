-- blocks.lua: the parts that models are made of.  All of it is ordinary graph
-- code; a model may use it, copy it, or do without.
--
-- Values of tokens are x (B,T,C).  Weights are stored (N,K), as a linear layer of
-- N outputs has them in most checkpoints.  `from` is a checkpoint's prefix, or a
-- list of prefixes tried in turn; `steps` is what follows the tensor's name in the
-- weight map: " | t", ": 96x64 | rows 0 32".

local b = {}

-- Refuses options that a block has not, and says which it lacks.  The first `needed` of the known
-- must be there.
local function takes(block, o, needed, known)
        o = o or {}
        if type(o) ~= "table" then
                error("b." .. block .. ": options are a table, not a " .. type(o))
        end
        local is = {}
        for i, name in ipairs(known) do
                is[name] = true
                if i <= needed and o[name] == nil then
                        error("b." .. block .. " needs the option " .. name)
                end
        end
        for name in pairs(o) do
                if not is[name] then
                        error("b." .. block .. " has no option '" .. tostring(name)
                              .. "'; there are " .. table.concat(known, ", "))
                end
        end
        return o
end

-- The same of a block that makes a parameter: what it is made from, and its name.
local function named(block, x, name, o, known)
        if type(x) ~= "userdata" then
                error("b." .. block .. ": its first argument is a tensor, not a " .. type(x))
        end
        if type(name) ~= "string" then
                error("b." .. block .. ": its name is a text, not a " .. type(name))
        end
        return takes(block, o, 0, known)
end

-- Weight maps --------------------------------------------------------------

-- Tie parameter p to the tensor FROM..suffix.
function b.map(p, from, suffix, steps, options)
        if not from then return p end
        if type(from) == "string" then from = { from } end
        local names = {}
        for i, prefix in ipairs(from) do names[i] = prefix .. suffix end
        return p:from(table.concat(names, " || ") .. (steps or ""), options)
end

-- b.under({"model.layers.0.", "layers.0."}, "mlp.up") -> {"model.layers.0.mlp.up",
-- "layers.0.mlp.up"}
function b.under(prefixes, name)
        local out = {}
        if type(prefixes) == "string" then prefixes = { prefixes } end
        for i, prefix in ipairs(prefixes) do out[i] = prefix .. name end
        return out
end

-- Inputs and the loss ------------------------------------------------------------

-- ids and targets.
function b.inputs()
        return input("ids", { B, T }), input("targets", { B, T })
end

-- Mean cross-entropy over the targets that count.  aux, a scalar, joins with weight coef;
-- ce is what gets reported as the loss then.
function b.outputs(logits, targets, aux, coef)
        local each = logits:ce(targets):as "loss.token"
        local total = each:reshape { B * T }:as "loss.flat":sum():as "loss.sum"
        local ce = (total:reshape {}:as "loss.total" * inv_tokens()):as(aux and "loss.ce" or "loss")
        if not aux then return { logits = logits, loss = ce } end
        return { logits = logits, loss = (ce + (aux * coef):as "loss.aux"):as "loss",
                 aux_loss = aux, ce = ce }
end

-- Linear layers, embeddings, norms ----------------------------------------------

-- x (...,K) -> (...,n).  o: bias, std, from, suffix, steps (of the weight), bias_steps.
function b.linear(x, name, n, o)
        o = named("linear", x, name, o, { "bias", "std", "from", "suffix", "steps", "bias_steps" })
        local w = param(name .. ".weight", { n, x.shape[x.rank] }, { std = o.std })
        b.map(w, o.from, o.suffix or ".weight", o.steps)
        if not o.bias then return x:matmul(w, { tb = 1 }):as(name) end
        local bias = param(name .. ".bias", { n })
        b.map(bias, o.from, ".bias", o.bias_steps)
        return (x:matmul(w, { tb = 1 }):as(name .. ".product") + bias):as(name)
end

-- Rows of a table (rows, width); the table is returned too, for tied heads.
function b.embedding(ids, name, rows, width, o)
        o = named("embedding", ids, name, o, { "std", "from" })
        local w = param(name .. ".weight", { rows, width }, { std = o.std })
        b.map(w, o.from, ".weight")
        return w:gather(ids):as(name), w
end

-- o: eps (1e-5), from, suffix, steps; offset: the parameter is the gain less this.
function b.rmsnorm(x, name, o)
        o = named("rmsnorm", x, name, o, { "eps", "from", "suffix", "steps", "offset" })
        local gain = param(name .. ".weight", { x.shape[x.rank] },
                           { init = o.offset and "zeros" or "ones" })
        b.map(gain, o.from, o.suffix or ".weight", o.steps)
        local unit = x:rmsnorm(o.eps or 1e-5):as(name .. ".unit")
        if o.offset then gain = (gain + o.offset):as(name .. ".gain") end
        return (unit * gain):as(name)
end

-- o: eps (1e-5), from, steps; bias = false leaves the bias out.
function b.layernorm(x, name, o)
        o = named("layernorm", x, name, o, { "eps", "from", "steps", "bias" })
        local gain = param(name .. ".weight", { x.shape[x.rank] }, { init = "ones" })
        b.map(gain, o.from, ".weight", o.steps)
        local y = (x:layernorm(o.eps or 1e-5):as(name .. ".unit") * gain):as(name .. ".scaled")
        if o.bias == false then return y:as(name) end
        local bias = param(name .. ".bias", { x.shape[x.rank] })
        b.map(bias, o.from, ".bias", o.steps)
        return (y + bias):as(name)
end

-- x itself where p is 0.
function b.dropout(x, p)
        if type(p) ~= "number" then
                error("b.dropout: the probability is a number, not a " .. type(p))
        end
        return p ~= 0 and x:dropout(p) or x
end

-- Activations ----------------------------------------------------------------------

local activations = {
        gelu = function(x) return x:gelu() end,
        gelu_tanh = function(x) return x:gelu_tanh() end,
        silu = function(x) return x:silu() end,
        relu = function(x) return x:relu() end,
        relu2 = function(x) return x:relu() ^ 2 end,
        sigmoid = function(x) return x:sigmoid() end,
        tanh = function(x) return x:tanh() end,
        linear = function(x) return x end,
        quick_gelu = function(x) return x * (x * 1.702):sigmoid() end,
}
-- What configurations call them.
local spelled = { gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh", gelu_fast = "gelu_tanh",
                  swish = "silu",
                  gelu_python = "gelu", gelu_python_tanh = "gelu_tanh",
                  gelu_accurate = "gelu_tanh" }

-- Is it one that activation makes?
function b.knows_activation(kind) return activations[spelled[kind] or kind] ~= nil end

-- kind: gelu, gelu_tanh, silu, relu, relu2, sigmoid, tanh, linear, quick_gelu, or what
-- configurations call them.
function b.activation(x, kind)
        local f = kind ~= nil and activations[spelled[kind] or kind]
        if not f then
                error("unknown activation '" .. tostring(kind) .. "'; there are gelu, gelu_tanh, "
                      .. "silu, relu, relu2, sigmoid, tanh, linear, quick_gelu")
        end
        return f(x)
end

-- Positions ------------------------------------------------------------------------

-- Learned: one row of (ctx, C) per position.
function b.positions(name, ctx, width, o)
        o = takes("positions", o, 0, { "std", "from" })
        local w = param(name .. ".weight", { ctx, width }, { std = o.std })
        b.map(w, o.from, ".weight")
        return w:gather(position()):as(name)
end

-- The pairs of a head that YaRN leaves alone, up to the first number, and slows down in full, from
-- the second.
local function yarn_range(dims, theta, s)
        local function at(turns)
                return dims * math.log(s.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        end
        local first, last = at(s.fast), at(s.slow)
        if s.truncate then first, last = math.floor(first), math.ceil(last) end
        first, last = math.max(first, 0), math.min(last, dims - 1)
        return first, first == last and last + 0.001 or last
end

-- The numbers of a text, with spaces between them.
local function numbers(text)
        local out, at = {}, 1
        for i = 1, #text + 1 do
                if i == #text + 1 or text:sub(i, i) == " " then
                        out[#out + 1] = tonumber(text:sub(at, i - 1))
                        at = i + 1
                end
        end
        return out
end

-- What a kind of scaling takes.
local scaled_by = {
        linear = { "factor" }, llama3 = { "factor", "original", "low", "high" },
        yarn = { "factor", "original", "fast", "slow" }, longrope = { "factors" },
}

-- Frequencies of rotary positions, one for a pair.  scaling.kind: "none"; "linear": all slower by
-- factor; "llama3": only the slow ones, with a smooth passage between wavelengths original/high and
-- original/low; "yarn": the same between `fast` and `slow` turns in the original context;
-- "longrope": each by its own factor, of the text `factors`. dims = 0: nil.  name: of the constant,
-- "rope.freq" if absent.
function b.rope(dims, theta, scaling, name)
        local freq, s = {}, scaling or { kind = "none" }
        if dims == 0 then return nil end
        if type(theta) ~= "number" or theta <= 0 then
                error("b.rope: theta is a number above 0, not " .. tostring(theta))
        end
        for _, name in ipairs(scaled_by[s.kind] or {}) do
                if s[name] == nil then
                        error("b.rope: scaling of the kind " .. s.kind .. " needs " .. name)
                end
        end
        local first, last
        local own = s.kind == "longrope" and numbers(s.factors)
        if own and #own ~= (dims + 1) // 2 then
                error(string.format(
                        "rope_scaling / rope_parameters: short_factor and long_factor should have "
                        .. "a number for "
                                    .. "each of %d rotary pairs, not %d", (dims + 1) // 2, #own))
        end
        if s.kind == "yarn" then first, last = yarn_range(dims, theta, s) end
        for i = 0, (dims + 1) // 2 - 1 do
                local f = theta ^ (-2 * i / dims)
                if s.kind == "linear" then
                        f = f / s.factor
                elseif s.kind == "llama3" then
                        -- within the original context
                        local turns = s.original * f / (2 * math.pi)
                        if turns < s.low then
                                f = f / s.factor
                        elseif turns <= s.high then
                                local keep = (turns - s.low) / (s.high - s.low)
                                f = (1 - keep) * f / s.factor + keep * f
                        end
                elseif s.kind == "yarn" then
                        local slow = math.min(math.max((i - first) / (last - first), 0), 1)
                        f = slow * f / s.factor + (1 - slow) * f
                elseif own then
                        f = f / own[i + 1]
                elseif s.kind ~= "none" and s.kind ~= "default" then
                        error("unknown rope scaling '" .. s.kind
                              .. "'; known are none, linear, llama3, yarn, longrope, dynamic")
                end
                freq[#freq + 1] = f
        end
        return { freq = const(name or "rope.freq", freq), dims = 2 * #freq, gain = s.gain or 1.0 }
end

-- Parameters of a model with rotary positions, and what they say of heads of width D.
b.rope_params = {
        rope_theta = 10000.0,
        rotary = 1.0,           -- part of each head that turns
        rope_scaling = "none",  -- none, linear, llama3, yarn, longrope, dynamic
        rope_factor = 1.0, rope_low = 1.0, rope_high = 4.0, rope_original = 8192,
        rope_fast = 32.0, rope_slow = 1.0, rope_truncate = true,
        rope_gain = 1.0,        -- of cosines and sines
        rope_short = "", rope_long = "",        -- longrope's factors, one for a pair, with spaces
                                                -- between them
        rope_use = "auto",      -- which of them: auto (by ctx), short, long
}

-- longrope and dynamic positions turn by factors that depend on a text's length: up to the original
-- context by one set, beyond it by another.  A graph has one set, so that keys in the cache and new
-- ones agree; it is that of texts of ctx tokens.
--
-- longrope has two sets: the short one where ctx is within the original context, else the long one
-- at every length, as vLLM does.  Those are transformers' logits of texts that are longer than the
-- original context.  rope_use says it otherwise.
local function longrope_use(p)
        local use, long = p.rope_use, p.ctx > p.rope_original
        if use ~= "auto" and use ~= "short" and use ~= "long" then
                error("rope_use is auto, short or long, not '" .. use .. "'")
        end
        if use == "short" and long then
                error(string.format(
                        'rope_use=short: "longrope" turns positions by its long factors in texts '
                        .. 'of more than %d '
                                    .. "tokens; set -D ctx=%d or less, or rope_use=long",
                                    p.rope_original, p.rope_original))
        end
        return use == "auto" and (long and "long" or "short") or use
end

-- dynamic has another set for every length beyond the original context.  One at all lengths is
-- nobody's logits but those of texts of exactly ctx tokens, so it must be asked for: rope_use=long.
local function dynamic_theta(p, dims)
        if dims == 2 then
                error "rope_scaling / rope_parameters: dynamic positions need two pairs"
        end
        if p.ctx <= p.rope_original then
                if p.rope_use == "long" then
                        error(string.format(
                                "rope_use=long has no effect on dynamic positions with -D ctx=%d, "
                                .. "which is within "
                                            .. "the original context of %d", p.ctx,
                                            p.rope_original))
                end
                return p.rope_theta
        end
        if p.rope_use ~= "long" then
                error(string.format(
                        'rope_scaling / rope_parameters: "dynamic" turns positions by other '
                        .. 'factors at every length '
                                    .. "of more than %d tokens, by the length at run time, which "
                                    .. "is not supported; set -D ctx=%d or "
                                    .. "less, or -D rope_use=long for the factors of texts of %d "
                                    .. "tokens at every length",
                                    p.rope_original, p.rope_original, p.ctx))
        end
        return p.rope_theta
                * (p.rope_factor * p.ctx / p.rope_original
                   - (p.rope_factor - 1)) ^ (dims / (dims - 2))
end

-- b.rope of a model's parameters p, which have those of rope_params.
function b.rope_of(p, D)
        local kind, theta = p.rope_scaling, p.rope_theta
        local dims = math.tointeger(D * p.rotary // 1)
        local use = "short"
        if kind == "longrope" then
                use = longrope_use(p)
        elseif kind == "dynamic" then
                theta, kind = dynamic_theta(p, dims), "none"
        elseif p.rope_use ~= "auto" then
                error("rope_use has no effect on positions of the kind '" .. kind
                      .. "', only on longrope and dynamic")
        end
        return b.rope(dims, theta, {
                kind = kind, factor = p.rope_factor, low = p.rope_low, high = p.rope_high,
                original = p.rope_original, fast = p.rope_fast, slow = p.rope_slow,
                truncate = p.rope_truncate, gain = p.rope_gain,
                factors = use == "long" and p.rope_long or p.rope_short,
        })
end

-- Fields of `more` that t has not.
function b.with_defaults(t, more)
        for name, value in pairs(more) do
                if t[name] == nil then t[name] = value end
        end
        return t
end

-- The letter of layer i in a pattern that has a letter a layer, repeated.
function b.letter(pattern, i)
        if type(pattern) ~= "string" or pattern == "" then
                error("the pattern has a letter a layer, repeated; it is " .. (pattern or "nil"))
        end
        local at = i % #pattern + 1
        return pattern:sub(at, at)
end

-- Does layer i see only the window?  pattern: s, the window, or f, everything, a letter a layer,
-- repeated.
function b.slides(pattern, i)
        local letter = b.letter(pattern, i)
        if letter ~= "s" and letter ~= "f" then
                error("the pattern '" .. pattern .. "' has a letter '" .. letter
                      .. "'; it is s for the window, f for everything")
        end
        return letter == "s"
end

-- One slope a head, powers of 2^(-bias_max/n); where n is no power of two, those
-- of the next one, every second from the first first.
function b.alibi(n_head, bias_max)
        local n, slopes = 1, {}
        while n < n_head do n = n * 2 end
        for i = 1, n do slopes[i] = 2 ^ (-i * bias_max / n) end
        if n ~= n_head then
                local all = slopes
                slopes = {}
                for i = 2, n, 2 do slopes[#slopes + 1] = all[i] end
                for i = 1, n, 2 do slopes[#slopes + 1] = all[i] end
        end
        local out = {}
        for i = 1, n_head do out[i] = slopes[i] end
        return const("alibi.slopes", out)
end

-- Attention ------------------------------------------------------------------------

-- Part [at, at+width) of the last axis.
function b.part(x, name, at, width)
        return x:slice { axis = x.rank - 1, start = at, len = width }:as(name)
end

-- (B,T,n*width) -> (B,T,n,width).
function b.heads(x, name, n, width)
        return x:reshape { B, T, n, width }:as(name)
end

-- Turns the heads of q and k.  A gain of all dimensions of both is one of their scores; else they
-- are multiplied. Returns the gain of the scores.
local function turn(q, k, rope, D, multiply)
        local dims, gain = { dims = rope.dims < D and rope.dims or 0 }, rope.gain
        q, k = q:rope(rope.freq, dims):as "q_rope", k:rope(rope.freq, dims):as "k_rope"
        if gain == 1 or rope.dims >= D and not multiply then return q, k, gain ^ 2 end
        local each = {}
        for i = 1, D do each[i] = i <= rope.dims and gain or 1.0 end
        local gains = const("rope.gain", each)
        return (q * gains):as "q_gain", (k * gains):as "k_gain", 1
end

-- Options of attention; the first two must be there.
local attends = { "n_head", "head_dim", "n_kv_head", "rope", "qk_norm", "norm_last", "scale",
                  "window", "softcap", "slopes", "sinks", "dropout", "bidirectional" }
local with_linears = { table.unpack(attends) }
for _, name in ipairs { "bias", "out_bias", "std", "out_std", "each", "from", "suffix", "steps",
                        "bias_steps" } do
        with_linears[#with_linears + 1] = name
end

local attend

-- q (B,T,H*D), k and v (B,T,K*D) -> (B,T,H*D), causal.
-- o: n_head, n_kv_head, head_dim, rope, qk_norm(x, name), norm_last (it comes behind rope), scale,
-- window, softcap, slopes, sinks (one logit a head), dropout; bidirectional = true: every token
-- sees every other. Several documents in a row of training tokens are --documents' matter; a model
-- need not know of them.
function b.attend(q, k, v, o)
        return attend(q, k, v, takes("attend", o, 2, attends))
end

function attend(q, k, v, o)
        local H, K, D = o.n_head, o.n_kv_head or o.n_head, o.head_dim
        q, k, v = b.heads(q, "q_heads", H, D), b.heads(k, "k_heads", K, D),
        b.heads(v, "v_heads", K, D)
        if o.qk_norm and not o.norm_last then
                q, k = o.qk_norm(q, "q_norm"), o.qk_norm(k, "k_norm")
        end
        local scale = o.scale or D ^ -0.5
        if o.rope then
                local gain
                q, k, gain = turn(q, k, o.rope, D, o.norm_last)
                if gain ~= 1 then scale = scale * gain end
        end
        if o.qk_norm and o.norm_last then q, k = o.qk_norm(q, "q_norm"), o.qk_norm(k, "k_norm") end
        local how = { causal = o.bidirectional and 0 or 1, scale = scale, window = o.window,
                      softcap = o.softcap,
                      p = o.dropout }
        local y
        if o.slopes then
                how.alibi = 1
                y = q:attention(k, v, o.slopes, how)
        else
                y = q:attention(k, v, how)
        end
        if o.sinks then                         -- of all that is attended to, the part that no sink
                                                -- has
                -- (B,T,H)
                local lse = y:item(1):as "lse":transpose { 0, 2, 1 }:as "lse.heads"
                local open = (lse - o.sinks):as "lse.over":sigmoid():as "open"
                y = (y:as "att.all" * open:reshape { B, T, H, 1 }:as "open.heads")
        end
        return y:as "att":reshape { B, T, H * D }:as "att_rows"
end

-- Attention with its linears.  o: as attend, and bias (of q, k, v), out_bias, std, out_std, each(y,
-- name) (what is done to q, k and v), from = { q, k, v, o }, suffix, steps = { q, k, v } (of
-- weights), bias_steps.
function b.self_attention(x, o)
        o = takes("self_attention", o, 2, with_linears)
        local H, K, D = o.n_head, o.n_kv_head or o.n_head, o.head_dim
        local from, steps, bias_steps = o.from or {}, o.steps or {}, o.bias_steps or {}
        local function part(name, heads)
                local y = b.linear(x, name, heads * D,
                                   { bias = o.bias, std = o.std, from = from[name],
                                     suffix = o.suffix,
                                                         steps = steps[name],
                                                         bias_steps = bias_steps[name] })
                return o.each and o.each(y, name) or y
        end
        local y = attend(part("q", H), part("k", K), part("v", K), o)
        return b.linear(y, "out", x.shape[3], { bias = o.out_bias, std = o.out_std or o.std,
                                                from = from.o,
                                                suffix = o.suffix })
end

-- MLPs -------------------------------------------------------------------------------

-- o: n_ff, act, bias, std, out_std, from = { up, down }, steps.
function b.mlp(x, o)
        o = takes("mlp", o, 2, { "n_ff", "act", "bias", "std", "out_std", "from", "steps" })
        local from = o.from or {}
        local h = b.linear(x, "up", o.n_ff,
                           { bias = o.bias, std = o.std, from = from.up, steps = o.steps })
        h = b.activation(h, o.act):as "h"
        return b.linear(h, "down", x.shape[3],
                        { bias = o.bias, std = o.out_std or o.std, from = from.down,
                                                 steps = o.steps })
end

-- down(act(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu.
-- o: n_ff, act, bias, std, from = { gate, up, down }, suffix, steps = { gate, up }.
function b.gated_mlp(x, o)
        o = takes("gated_mlp", o, 2, { "n_ff", "act", "bias", "std", "from", "suffix", "steps" })
        local from, steps = o.from or {}, o.steps or {}
        local function part(input, name, n)
                return b.linear(input, name, n, { bias = o.bias, std = o.std, from = from[name],
                                                  suffix = o.suffix,
                                                  steps = steps[name] })
        end
        local gate, up = part(x, "gate", o.n_ff), part(x, "up", o.n_ff)
        return part((b.activation(gate, o.act):as "act" * up):as "h", "down", x.shape[3])
end

-- Mixture of experts ---------------------------------------------------------------

-- For b.moe: ties each expert's weights (E,N,K) to the checkpoint.  s: names below prefix: expert,
-- a pattern of expert's number and linear, and gate, up, down; or, where all experts are in one
-- tensor (E,...), gate and up too, gate_up and down.
function b.expert_map(s, prefix, E, F, C)
        return function(which, w, e)
                local n, k = w.shape[2], w.shape[3]
                if not s.gate_up then
                        local text = prefix .. string.format(s.expert, e, s[which])
                        w:from(string.format("%s: %dx%d | reshape 1 %d %d", text, n, k, n, k),
                               { rows = { e, e + 1 } })
                elseif e == 0 and which == "down" then
                        w:from(prefix .. s.down)
                elseif e == 0 then
                        local at = which == "up" and F or 0
                        w:from(string.format("%s: %dx%dx%d | cols %d %d", prefix .. s.gate_up, E,
                                             2 * F, C, at, at + F))
                end
        end
end

-- Each token goes to its k best of E experts.  The (token, choice) slots are sorted by
-- expert, each expert multiplies its own rows, and the results come back in the order
-- of the slots, weighted by the router.
--
-- o: n_expert, top_k, n_ff, act, gated, renorm, bias (of experts), router_bias, std,
--    from = { router }, expert_map(which, param, e, suffix) for each expert's tensors,
--    route(scores) -> gates and chosen (B*T,k), where these are not the best of softmax; glu(gate,
--    up), where it is not act(gate) * up.
-- Returns y (B,T,C) and what the balance loss needs.
function b.moe(x, o)
        o = takes("moe", o, 3, { "n_expert", "top_k", "n_ff", "act", "gated", "renorm", "bias",
                                 "router_bias", "std", "from", "expert_map", "route", "glu" })
        local E, k, F, C = o.n_expert, o.top_k, o.n_ff, x.shape[3]
        local rows = x:reshape { B * T, C }:as "rows"
        local scores = b.linear(rows, "router", E, { bias = o.router_bias, std = o.std,
                                                     from = o.from and o.from.router })
        local probs, gates, chosen                              -- chosen (B*T,k)
        if o.route then
                gates, chosen = o.route(scores)
        else
                probs = scores:softmax():as "probs"
                gates = probs:topk(k):as "gates"
                chosen = gates:item(1):as "chosen"
        end
        if o.renorm then gates = (gates / gates:sum():as "gates.sum"):as "gates.weight" end
        local slots = chosen:reshape { B * T * k }:as "slots"
        local perm = slots:bucket(E):as "perm"                  -- slots in order of expert
        local offs = perm:item(1):as "offs"                     -- (E+1): where each expert's begin
        local sorted = o.bias and slots:gather(perm):as "sorted"

        local function expert(input, which, n, how)
                local w = param(which .. ".weight", { E, n, input.shape[2] }, { std = o.std })
                local bias = o.bias
                        and param(which .. ".bias", { E, n }, { init = "zeros", decay = false })
                for e = 0, E - 1 do
                        if o.expert_map then
                                o.expert_map(which, w, e, ".weight")
                                if bias then o.expert_map(which, bias, e, ".bias") end
                        end
                end
                local y = input:expert_matmul(w, perm, offs, how)
                if not bias then return y:as(which) end
                local own = bias:gather(how.scatter and slots or sorted):as(which .. ".bias_rows")
                return (y:as(which .. ".product") + own):as(which)
        end

        local h
        if o.gated then
                local gate = expert(rows, "gate", F, { tb = 1, adiv = k })
                local up = expert(rows, "up", F, { tb = 1, adiv = k })
                h = o.glu and o.glu(gate, up) or (b.activation(gate, o.act):as "act" * up):as "h"
        else
                h = b.activation(expert(rows, "up", F, { tb = 1, adiv = k }), o.act):as "h"
        end
        local y = expert(h, "down", C, { tb = 1, scatter = 1 }):reshape { B * T, k, C }
        y = y:as "down.slots":combine(gates):as "mixed":reshape { B, T, C }:as "y"
        return y, { probs = probs, offs = offs, E = E, k = k }
end

-- The balance loss of Switch Transformers as Mixtral has it, over all layers at once:
-- E * sum over experts of (share of slots, summed over the k choices) * (mean probability).
-- The number of tokens is the sum of the experts' counts over k.
function b.balance_loss(layers)
        local share, prob
        if type(layers) ~= "table" or #layers == 0 then
                error("b.balance_loss: a list of what b.moe returns is wanted")
        end
        for _, l in ipairs(layers) do
                local ends = l.offs:slice { axis = 0, start = 1,
                                            len = l.E }:as "balance.ends":cast "f32"
                local begins = l.offs:slice { axis = 0, len = l.E }:as "balance.begins":cast "f32"
                local count = (ends - begins):as "balance.count"                -- (E)
                local tokens = (count:sum():as "balance.slots" * (1 / l.k)):as "balance.tokens"
                local f = (count / tokens):as "balance.share"
                local p = (l.probs:colsum(1):as "balance.mass" / tokens):as "balance.prob"
                share = share and share + f or f
                prob = prob and prob + p or p
        end
        local n, E = #layers, layers[1].E
        return ((share * prob):sum():as "balance.sum"
                * (E / (n * n))):as "balance":reshape {}:as "aux_loss"
end

return b
