-- gguf_write.lua: what a GGUF file says of a Hugging Face folder: the rows of gguf.lua, read from
-- right to left. gguf.read must understand the file as the folder was meant; what a file cannot say
-- is refused.
local rules, gguf = require "gguf_rules", require "gguf"
local refuse, show, common = rules.refuse, rules.show, rules.common
local write = {}

-- Keys --------------------------------------------------------------------------------

-- Where a rule does not say it, or config.json may leave it out.
local common_say = {
        vocab_size = function(c, m) return m.words and c.vocab_size end,
        feed_forward_length = function(c, m, p)
                return c.intermediate_size or p.n_ff and p.n_ff > 0 and p.n_ff or 4 * m.width
        end,
        ["attention.head_count_kv"] = function(_, m) return m.arch ~= "gpt2" and m.kv_heads end,
        ["attention.key_length"] = function(_, m) return m.own_width and m.head_dim end,
        ["attention.value_length"] = function(_, m) return m.own_width and m.head_dim end,
        ["rope.freq_base"] = function(_, _, p) return p.rotary ~= 0 and p.rope_theta end,
        ["rope.dimension_count"] = function(_, m, p)
                return p.rope_theta and p.rotary ~= 0 and math.floor(m.head_dim * (p.rotary or 1))
        end,
        ["rope.scaling.type"] = function(_, _, p)
                return (p.rope_scaling == "linear" or p.rope_scaling == "yarn") and p.rope_scaling
        end,
        ["rope.scaling.factor"] = function(_, _, p)
                return (p.rope_scaling == "linear" or p.rope_scaling == "yarn") and p.rope_factor
        end,
        ["rope.scaling.original_context_length"] = function(_, _, p)
                return p.rope_scaling == "yarn" and p.rope_original
        end,
}

-- Keys that are float32, however the number is written in config.json.
local floats = {}
for _, key in ipairs { "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon",
                       "rope.freq_base", "rope.scaling.factor",
                       "attn_logit_softcapping", "final_logit_softcapping", "attention.scale",
                       "embedding_scale", "residual_scale", "logit_scale", "attention.clamp_kqv",
                       "attention.max_alibi_bias",
                       "expert_weights_scale", "rope.scaling.yarn_log_multiplier" } do
        floats[key] = true
end

-- What the others are, unless whole numbers.
local kinds = { boolean = "bool", string = "string", table = "bools" }

-- Tensors of folders that are no weights.
local buffers = { "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                  ".attention.masked_bias" }

local function row_for(model_type)
        local names = {}
        for arch in pairs(gguf.architectures) do names[#names + 1] = arch end
        table.sort(names)
        local all = {}
        for _, arch in ipairs(names) do
                local row = gguf.architectures[arch]
                for _, name in ipairs(row.types or { row.type }) do
                        if name == model_type then return arch, row end
                        all[#all + 1] = name
                end
        end
        table.sort(all)
        refuse("config.json: model_type", show(model_type)
               .. " has no architecture in GGUF files that tgc writes; these have: "
               .. table.concat(all, ", "))
end

-- The file's tensors as far as their names and shapes go, of the folder's; used[NAME] of those.
local function tensors_for(m, row, folder, tied, used)
        local out = {}
        local function put(base, entry, head, step)
                for _, suffix in ipairs { ".weight", ".bias" } do
                        local steps = type(step) == "function" and step(m, suffix) or step
                        local whole = rules.whole(entry, suffix)
                        if whole then
                                local t = folder[head .. whole]
                                if t then
                                        used[head .. whole] = true
                                        out[base .. suffix] = { shape = steps == "t"
                                                and { t.shape[2], t.shape[1] } or t.shape }
                                end
                        elseif entry.expert then
                                local e, shape = 0, nil
                                while folder[head .. entry.expert:format(e) .. suffix] do
                                        local name = head .. entry.expert:format(e) .. suffix
                                        used[name], shape, e = true, folder[name].shape, e + 1
                                end
                                if shape then
                                        out[base .. suffix] = { shape = { e, table.unpack(shape) } }
                                end
                        end
                end
        end
        local steps = row.steps or {}
        for base, entry in pairs(row.outer) do
                if not (tied and base == "output") then put(base, entry, "", steps[base]) end
        end
        m.tensors = out
        for _ = 1, type(row.layer) == "function" and 2 or 1 do  -- names may depend on what there is
                local layer = type(row.layer) == "function" and row.layer(m) or row.layer
                for i = 0, m.layers - 1 do
                        for base, entry in pairs(layer) do
                                local name = "blk." .. i .. "." .. base
                                out[name .. ".weight"], out[name .. ".bias"] = nil, nil
                                put(name, entry, row.prefix:format(i), steps[base])
                        end
                end
        end
        return out
end

local function rest_of(row, folder, used, tied)
        local out = {}
        for name in pairs(folder) do
                local free = used[name] or tied and name == row.outer.output .. ".weight"
                for _, pattern in ipairs(buffers) do
                        free = free or name:sub(-#pattern) == pattern
                end
                if not free then out[#out + 1] = name end
        end
        table.sort(out)
        return out
end

-- A tied folder's only tensor may be called as the head's; the embedding's is what is asked for.
-- Returns the folder's tensors by the names that rows have, and the lines that undo it or, of two
-- tensors, compare them.
local function tie(row, tensors)
        local embed, head = row.outer.token_embd .. ".weight", row.outer.output .. ".weight"
        if not tensors[head] then return tensors, function() end end
        if tensors[embed] then
                return tensors, function(lines)
                        lines[#lines + 1] = "map ignore " .. head .. "=" .. embed
                end
        end
        local renamed = { [embed] = tensors[head] }
        for name, t in pairs(tensors) do
                if name ~= head then renamed[name] = t end
        end
        return renamed, function(lines)
                local from, to = "map " .. embed .. " = ", "map " .. head .. " = "
                for i, line in ipairs(lines) do
                        if line:sub(1, #from) == from then lines[i] = to .. line:sub(#from + 1) end
                end
        end
end

-- Llama 3's factors, as the file has them: what each frequency is divided by.
local function llama3_factors(p, dims)
        local out = {}
        for i = 0, dims // 2 - 1 do
                local turns = p.rope_original * p.rope_theta ^ (-2 * i / dims) / (2 * math.pi)
                local keep = math.min(math.max((turns - p.rope_low) / (p.rope_high - p.rope_low),
                                               0), 1)
                out[#out + 1] = 1 / ((1 - keep) / p.rope_factor + keep)
        end
        return out
end

-- Parameters that change logits, and differ.
local function differs(a, b)
        local names, out = {}, {}
        for _, p in ipairs { a, b } do
                for key in pairs(p) do names[key] = true end
        end
        local plain = a.rope_scaling == "none" and b.rope_scaling == "none"
        for key in pairs(names) do
                local x, y = a[key], b[key]
                if key == "n_ff" then
                        x, y = x == 0 and 4 * a.n_embd or x, y == 0 and 4 * b.n_embd or y
                end
                local same = x == y or type(x) == "number" and type(y) == "number"
                        and math.abs(x - y) <= 1e-6 * math.abs(x)
                local free = key == "std" or key == "dropout" or key:sub(1, 3) == "aux"
                             or plain and key:sub(1, 5) == "rope_" and key ~= "rope_theta"
                                     and key ~= "rope_scaling"
                if not same and not free then out[#out + 1] = key end
        end
        table.sort(out)
        return out[1]
end

local function model_of(config)
        local name = require "families"[config.model_type]
        return require(name).config(config, config.model_type)
end

-- folder: { config = config.json, tensors = { NAME = { shape = {...} } } }.  Returns the keys, a
-- list of { NAME, "u32" | "f32" | "bool" | "bools" | "string", VALUE }, tensors of float32 that the
-- folder has not, by name, the lines of the map, as gguf.read makes them, and the sizes that
-- mixtures ask for.
function write.folder(folder)
        local raw = folder.config
        local family = require "families"[raw.model_type]
        if not family then
                refuse("config.json: model_type", show(raw.model_type) .. " is not known")
        end
        local arch, row = row_for(raw.model_type)
        if row.read_only then
                refuse("config.json: model_type", show(raw.model_type) .. ": " .. row.read_only)
        end
        local c, p = require("config_keys").read(raw, raw.model_type), model_of(raw)
        local function word(key) return c[row.keys and row.keys[key] or common[key]] end
        local m = { arch = arch, words = row.words, heads = word "attention.head_count",
                    layers = word "block_count" }
        m.kv_heads = p.n_kv_head or m.heads
        m.width = word "embedding_length"
        m.head_dim = p.head_dim or m.width // m.heads
        m.own_width = m.words and (c.head_dim ~= nil or m.head_dim * m.heads ~= m.width)
        m.meta = {}                             -- a row's functions may ask, and nothing is there
                                                -- yet
        local tied, used = c.tie_word_embeddings, {}
        local own, finish = folder.tensors, function() end
        if tied then own, finish = tie(row, own) end
        local tensors = tensors_for(m, row, own, tied, used)
        local rest = rest_of(row, own, used, tied)
        if rest[1] then
                refuse("tensor " .. rest[1], "has no name in GGUF files of " .. arch
                       .. (rest[2] and " (nor have " .. #rest - 1 .. " others)" or ""))
        end
        local keys, meta, extra, names = {}, { ["general.architecture"] = arch, tensors = tensors },
                {}, {}
        for _, part in ipairs { common, row.keys or {} } do
                for key in pairs(part) do names[key] = true end
        end
        local sorted = {}
        for key in pairs(names) do sorted[#sorted + 1] = key end
        table.sort(sorted)
        for _, key in ipairs(sorted) do
                local say = row.say and row.say[key]
                local rule = row.keys and row.keys[key] or common[key]
                local v
                if say then v = say(c, m, p)
                elseif row.keys and type(row.keys[key]) == "string" and c[rule] ~= nil then
                        v = c[rule]
                elseif common_say[key] then v = common_say[key](c, m, p)
                elseif type(rule) == "string" then v = c[rule] end
                if v ~= nil and v ~= false or type(v) == "boolean" and type(rule) == "string"
                        and c[rule] == false then
                        local kind = floats[key] and "f32" or kinds[type(v)] or "u32"
                        if kind == "u32" and math.type(v) ~= "integer" then
                                v = math.tointeger(v) or refuse(key, show(v))
                        end
                        keys[#keys + 1] = { arch .. "." .. key, kind, v }
                        meta[arch .. "." .. key] = v
                end
        end
        if p.rope_scaling == "llama3" then
                extra["rope_freqs.weight"] = llama3_factors(p, m.head_dim)
                tensors["rope_freqs.weight"] = { shape = { m.head_dim // 2 },
                                                 values = extra["rope_freqs.weight"] }
        end
        meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"] = nil, nil
        local config, lines = gguf.read(meta, false)
        finish(lines)
        local key = differs(p, model_of(config))
        if key then
                refuse("config.json", "a GGUF file of " .. arch
                       .. " cannot say what the folder does: " .. key .. " is "
                       .. show(p[key]) .. ", and would be " .. show(model_of(config)[key]))
        end
        return keys, extra, lines, { n_layers = m.layers, heads = m.heads, kv_heads = m.kv_heads,
                                     tied = tied,
                                     experts = meta[arch .. ".expert_count"] or 0 }
end

return write
