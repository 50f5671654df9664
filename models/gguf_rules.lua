-- gguf_rules.lua: what the rows of gguf_llama.lua and gguf_gpt.lua share: rules of keys, words of
-- Llama's config.json, questions to the file.  m is the file: arch, meta, tensors, heads, kv_heads,
-- head_dim.
local rules = {}

local function refuse(key, what) config_error(key, what) end

local function show(v)
        if type(v) == "string" then return '"' .. v:sub(1, 60) .. '"' end
        return type(v) == "table" and "[...]" or tostring(v)
end

local function free() end

-- v must be one of these.
local function only(...)
        local values = { ... }
        return function(v, m, _, key)
                for _, want in ipairs(values) do
                        if v == want then return end
                end
                refuse(key, show(v) .. " is not supported for " .. m.arch .. ", only "
                       .. show(values[1]) .. " is")
        end
end

-- One number for all layers; a list of equal ones is the same.
local function scalar(v, key)
        if type(v) ~= "table" then return v end
        for _, x in ipairs(v) do
                if x ~= v[1] then
                        refuse(key, "differs from layer to layer, which is not supported")
                end
        end
        return v[1]
end

-- Rotary positions --------------------------------------------------------------------

local function scaling(config)
        config.rope_scaling = config.rope_scaling or {}
        return config.rope_scaling
end

local kinds = { none = "default", linear = "linear", yarn = "yarn", longrope = "longrope" }

local rope = {
        ["rope.freq_base"] = "rope_theta",
        ["rope.scaling.type"] = function(v, _, config, key)
                if not kinds[v] then
                        refuse(key, show(v) .. " is a kind of scaling that is not known")
                end
                scaling(config).rope_type = kinds[v]
        end,
        ["rope.scaling.factor"] = function(v, _, config)
                if v ~= 0 then scaling(config).factor = v end
        end,
        ["rope.scale_linear"] = function(v, _, config)          -- older files
                if v ~= 0 then config.rope_scaling = { rope_type = "linear", factor = v } end
        end,
        ["rope.scaling.original_context_length"] = function(v, _, config)
                scaling(config).original_max_position_embeddings = v
        end,
        ["rope.scaling.attn_factor"] = function(v, _, config) scaling(config).attention_factor =
                v end,
        ["rope.scaling.yarn_beta_fast"] = function(v, _, config) scaling(config).beta_fast = v end,
        ["rope.scaling.yarn_beta_slow"] = function(v, _, config) scaling(config).beta_slow = v end,
        ["rope.scaling.yarn_ext_factor"] = only(1, -1),
        ["rope.scaling.finetuned"] = free,
        -- the part of a head that turns; rows with another rule allow less than all
        ["rope.dimension_count"] = function(v, m, _, key)
                if v ~= m.head_dim then
                        refuse(key,
                               string.format("%s is not supported for %s, only the head's %d is",
                                             show(v), m.arch, m.head_dim))
                end
        end,
}

-- A file gives the factors of Llama 3's scaling, not what they were made of.  Of its numbers two
-- are the same in all published models, low 1 and high 4; the others follow, and must give the
-- file's factors.
local function llama3_scaling(values, theta, dims)
        local factor, original = 1, nil
        for _, v in ipairs(values) do factor = math.max(factor, v) end
        local function turns_of(i, context)
                return context * theta ^ (-2 * i / dims) / (2 * math.pi)
        end
        for i, v in ipairs(values) do
                if v > 1 and v < factor and not original then
                        local keep = (1 / v - 1 / factor) / (1 - 1 / factor)
                        original = (1 + 3 * keep) / turns_of(i - 1, 1)
                        original = math.floor(original + 0.5)
                end
        end
        if not original then return nil end
        for i, v in ipairs(values) do
                local keep = math.min(math.max((turns_of(i - 1, original) - 1) / 3, 0), 1)
                if math.abs(1 / ((1 - keep) / factor + keep) / v - 1) > 1e-5 then return nil end
        end
        return { rope_type = "llama3", factor = factor, low_freq_factor = 1.0,
                 high_freq_factor = 4.0,
                 original_max_position_embeddings = original }
end

local function rope_freqs(m, config)
        local t, dims = m.tensors["rope_freqs.weight"], m.head_dim
        if not t then return end
        local values, plain = t.values or {}, true
        for _, v in ipairs(values) do plain = plain and v == 1 end
        if #values ~= dims // 2 then
                refuse("tensor rope_freqs.weight", "is not " .. dims // 2 .. " float32 numbers")
        end
        if plain then return end
        if config.rope_scaling then
                refuse("tensor rope_freqs.weight", "is not supported beside keys of rope.scaling")
        end
        config.rope_scaling = llama3_scaling(values, config.rope_theta, dims)
                or refuse("tensor rope_freqs.weight",
                          "does not hold the factors of Llama 3's scaling of positions, "
                          .. "with frequencies from a quarter of the context on scaled; others "
                          .. "are not supported")
end

-- Keys of all architectures ------------------------------------------------------------

-- One table of several; what is false is not there.
local function set(...)
        local out = {}
        for _, part in ipairs { ... } do
                for key, v in pairs(part) do out[key] = v or nil end
        end
        return out
end

-- What most keys say, in words of Llama's config.json.
local common = set(rope, {
        vocab_size = free, context_length = "max_position_embeddings",
        embedding_length = "hidden_size", block_count = "num_hidden_layers",
        feed_forward_length = "intermediate_size", ["attention.head_count"] = "num_attention_heads",
        ["attention.head_count_kv"] = "num_key_value_heads", ["attention.key_length"] = "head_dim",
        ["attention.value_length"] = function(v, m, _, key)
                if v ~= m.head_dim then
                        refuse(key, show(v) .. " is not supported where keys have " .. m.head_dim)
                end
        end,
        ["attention.layer_norm_rms_epsilon"] = "rms_norm_eps",
        ["attention.layer_norm_epsilon"] = "layer_norm_eps", ["attention.causal"] = only(true),
        tensor_data_layout = free, ["attention.group_norm_groups"] = free, expert_count = only(0),
        expert_used_count = only(0),
})
local needed = { "context_length", "embedding_length", "block_count", "feed_forward_length",
                 "attention.head_count" }

-- Keys of several ------------------------------------------------------------------------

function rules.as_many_kv_heads(v, m, _, key)
        if v ~= m.heads then refuse(key, show(v) .. " is not supported for " .. m.arch) end
end

function rules.four_times_as_wide(v, m, _, key)
        if v ~= 4 * m.meta[m.arch .. ".embedding_length"] then
                refuse(key, show(v) .. " is not supported")
        end
end

-- The fraction of a head that has rotary positions, under the folder's word for it.
function rules.rotary_fraction(word)
        return function(v, m, config) config[word] = v / m.head_dim end
end

-- Which layers have the window: by a list of booleans, or every nth layer has none, by the file's n
-- or else this one.
function rules.window_layers(m, config, every)
        local key = m.arch .. ".attention.sliding_window_pattern"
        local v, layers, types = m.meta[key], config.num_hidden_layers, {}
        if v == nil then v = every end
        if type(v) == "table" and #v ~= layers then
                refuse(key, "has " .. #v .. " values, and block_count is " .. layers)
        elseif type(v) ~= "table" and (math.type(v) ~= "integer" or v < 1) then
                refuse(key,
                       show(v) .. " should be a whole number of at least 1, or a list of booleans")
        end
        for i = 1, layers do
                local near
                if type(v) == "table" then near = v[i] else near = i % v ~= 0 end
                if type(near) ~= "boolean" then
                        refuse(key, show(near) .. " in the list is not true or false")
                end
                types[i] = near and "sliding_attention" or "full_attention"
        end
        return types
end

-- The list, of a folder's model.
function rules.say_windows(_, m, p)
        if not p.window or p.window == 0 then return nil end
        local list = {}
        for i = 1, m.layers do
                local at = (i - 1) % #p.pattern + 1
                list[i] = p.pattern:sub(at, at) == "s"
        end
        return list
end

-- Keys with a value for each layer.
rules.lists = { ["attention.sliding_window_pattern"] = true }

-- Tensors -----------------------------------------------------------------------------

function rules.has(m, name) return m.tensors["blk.0." .. name] ~= nil end

-- Whether linears of attention have biases: the folder says it in a key.
function rules.biases(m, config)
        config.attention_bias = rules.has(m, "attn_q.bias") or rules.has(m, "attn_output.bias")
end

-- q, k and v lie one behind the other here, and in the folder those of a group of heads together.
function rules.grouped(m) return "group " .. m.heads .. " " .. m.kv_heads end

-- The folder's name, below its prefix, of an entry of `outer` or `layer` with this suffix; nil: it
-- makes several.
function rules.whole(entry, suffix)
        if type(entry) == "string" then return entry .. suffix end
        if suffix == ".bias" then return entry.bias end
        return entry.weight
end

-- (E,N,K) is a tensor for each expert.
function rules.experts(gate, up, down)
        return { ffn_gate_exps = { expert = gate }, ffn_up_exps = { expert = up },
                 ffn_down_exps = { expert = down } }
end

rules.refuse, rules.show, rules.free, rules.only, rules.scalar = refuse, show, free, only, scalar
rules.set, rules.rope_freqs, rules.common, rules.needed = set, rope_freqs, common, needed
return rules
