-- config.lua: reads a config.json by a table of its keys.  A family lists every key
-- of its configuration class in transformers.  A key that is not listed is refused, because the
-- logits may depend on it.
--
--      key = 1e-6              used: the class's default, which also gives the type; an integer is
--                              at least 1, and an _eps or _epsilon at least 0
--      key = opt(KIND)         used: nil where absent; of(KIND, v): v there
--      key = maybe(KIND, v)    used: nil where it is null, v where absent
--      key = word(v, known)    used: a string that known(v) accepts
--      key = same "other"      used: another name of that key, which wins
--      key = object{ ... }     used: keys of its own; {} where it is absent or null
--      key = each{ ... }       used: names of any kind, each with such keys
--      key = kinds("k", { })   an object; its k names the table of its keys; nil where it is absent
--                              or null
--      key = free              changes no logit
--      key = only(v, ...)      refused unless it is one of these; absent means v
--
-- KIND: count (a whole number from 1), whole (from 0), positive, factor (not 0), number, boolean,
-- string, scalar, list.
local config = {}

local null = {}
config.null = null
config.free = { rule = "free" }
function config.of(kind, default) return { rule = "used", kind = kind, default = default } end
function config.opt(kind) return config.of(kind) end
function config.maybe(kind, default)
        return { rule = "used", kind = kind, default = default, null = true }
end
function config.word(default, known)
        return { rule = "used", kind = "string", default = default, known = known }
end
function config.same(key) return { rule = "same", key = key } end
function config.object(keys) return { rule = "object", keys = keys } end
function config.each(keys) return { rule = "each", keys = keys } end
function config.kinds(by, tables) return { rule = "kinds", by = by, tables = tables } end
function config.only(...) return { rule = "only", values = { ... } } end

local kinds = {
        count = { "a whole number of at least 1", function(v) return math.type(v) == "integer"
                  and v >= 1 end },
        whole = { "a whole number of at least 0", function(v) return math.type(v) == "integer"
                  and v >= 0 end },
        positive = { "a number above 0", function(v) return type(v) == "number" and v > 0 end },
        number = { "a number", function(v) return type(v) == "number" end },
        epsilon = { "a number of at least 0", function(v) return type(v) == "number" and v >= 0
                    end },
        factor = { "a number other than 0", function(v) return type(v) == "number" and v ~= 0 end },
        boolean = { "true or false", function(v) return type(v) == "boolean" end },
        string = { "a string", function(v) return type(v) == "string" end },
        scalar = { "a number or a string", function(v) return type(v) == "number"
                   or type(v) == "string" end },
        list = { "a list", function(v) return type(v) == "table" end },
}

local function is_null(v) return type(v) == "userdata" end  -- the reader passes JSON's null as
                                                            -- userdata

-- A value as JSON text, shortened.
local function show(v)
        if v == null or is_null(v) then return "null" end
        if type(v) == "string" then return '"' .. v:sub(1, 60) .. '"' end
        if type(v) ~= "table" then return tostring(v) end
        return #v > 0 and "[...]" or "{...}"
end

local function is_empty(v)
        for _ in pairs(v) do return false end
        return true
end

local function equal(v, want)
        if want == null or is_null(v) then return want == null and is_null(v) end
        if type(v) == "table" then
                return type(want) == "table" and is_empty(v) and is_empty(want)
        end
        return v == want
end

-- The error of key, whose value is v: it names both, and the reader adds file and line.  within: ""
-- or "rope_scaling.".
function config.refuse(key, v, why, within)
        config_error(key, string.format('"%s%s": %s %s', within or "", key, v == nil and "(absent)"
                                        or show(v), why))
end

-- "silu" is a rule by its type.
local function rule_of(r)
        if type(r) == "table" then return r end
        local kind = math.type(r) == "integer" and "count" or type(r)
        return { rule = "used", kind = kind, default = r }
end

local take = {}

function take.free() end

function take.only(key, v, r, name, within)
        if v == nil then return end
        for _, want in ipairs(r.values) do
                if equal(v, want) then return end
        end
        local words = {}
        for i, want in ipairs(r.values) do
                words[i] = type(want) == "table" and want ~= null and "[]" or show(want)
        end
        config.refuse(key, v, string.format("is not supported for %s, only %s is", name,
                                            table.concat(words, " or ")),
                      within)
end

function take.used(key, v, r, _, within)
        if v == nil then return r.default end
        if is_null(v) and r.null then return nil end
        local small = r.kind == "number" and (string.sub(key, -4) == "_eps"
                                             or string.sub(key, -8) == "_epsilon")
        local kind = kinds[small and "epsilon" or r.kind]
        if is_null(v) or not kind[2](v) then
                config.refuse(key, v, "should be " .. kind[1] .. (r.null and " or null" or ""),
                              within)
        end
        if r.known and not r.known(v) then config.refuse(key, v, "is not known", within) end
        return v
end

local walk

function take.each(key, v, r, name, within)
        if type(v) ~= "table" then config.refuse(key, v, "should be an object", within) end
        for each, x in pairs(v) do
                local inside = (within or "") .. key .. "."
                if type(x) ~= "table" then
                        config.refuse(tostring(each), x, "should be an object", inside)
                end
                walk(x, r.keys, {}, name, inside .. tostring(each) .. ".")
        end
        return v
end

function take.kinds(key, v, r, name, within)
        if v == nil or is_null(v) then return nil end
        if type(v) ~= "table" then config.refuse(key, v, "should be an object or null", within) end
        local names, keys = {}, r.tables[v[r.by]]
        for kind in pairs(r.tables) do names[#names + 1] = show(kind) end
        table.sort(names)
        within = (within or "") .. key .. "."
        if not keys then
                config.refuse(r.by, v[r.by], "is not supported; known are "
                              .. table.concat(names, ", "), within)
        end
        return walk(v, keys, { [r.by] = config.free }, name, within)
end

function walk(raw, keys, common, name, within)
        local out = {}
        for key, v in pairs(raw) do
                if keys[key] == nil and common[key] == nil then
                        config.refuse(key, v, "is no key that tgc knows of " .. name
                                      .. ", so the logits may depend on it; "
                                      .. "delete it from the file if they do not", within)
                end
        end
        for _, part in ipairs { common, keys } do
                for key, r in pairs(part) do
                        r = rule_of(r)
                        if part == common and keys[key] ~= nil or r.rule == "same" then
                                -- the family's rule counts; other names come last
                        elseif r.rule ~= "object" then
                                out[key] = take[r.rule](key, raw[key], r, name, within)
                        elseif raw[key] == nil or is_null(raw[key]) then
                                out[key] = walk({}, r.keys, common, name, key .. ".")
                        elseif type(raw[key]) == "table" then
                                out[key] = walk(raw[key], r.keys, common, name, (within or "")
                                                .. key .. ".")
                        else
                                config.refuse(key, raw[key], "should be an object or null")
                        end
                end
        end
        for key, r in pairs(keys) do
                r = rule_of(r)
                if r.rule == "same" and raw[key] ~= nil then
                        out[r.key] = take.used(key, raw[key], rule_of(keys[r.key]), name, within)
                end
        end
        return out
end

-- Ids that begin or end a text are ids of the vocabulary.  `default`: what the architecture has
-- where its user says nothing; it may be beyond a smaller vocabulary, and no text has it then.
local function check_ids(raw, n, default)
        for _, key in ipairs { "bos_token_id", "eos_token_id" } do
                for _, v in ipairs(type(raw[key]) == "table" and raw[key] or { raw[key] }) do
                        if type(v) == "number" and v ~= default
                           and not (math.tointeger(v) and v >= 0 and v < n) then
                                config.refuse(key, v, "is the id of none of the " .. n
                                              .. " tokens of vocab_size; write null if there "
                                              .. "is no such token")
                        end
                end
        end
end

-- A function that reads a configuration of `family`.  It returns all used keys, with defaults, and
-- the model_type.  tables[model_type] are its keys and architecture, perhaps with an older
-- spelling; common keys are every family's.
function config.reader(common, tables)
        return function(raw, family)
                for name, t in pairs(tables) do
                        if family == name or family == t.architecture or family == t.older then
                                local c = walk(raw, t.keys, common, name)
                                if c.vocab_size then
                                        check_ids(raw, c.vocab_size, t.default_end)
                                end
                                return c, name
                        end
                end
                error("no table of keys for " .. family)
        end
end

-- Rotary positions --------------------------------------------------------------------

local nested = {
        rope_type = config.opt "string", type = config.opt "string",
        rope_theta = config.opt "positive", partial_rotary_factor = config.opt "number",
        factor = config.opt "positive", original_max_position_embeddings = config.opt "count",
        attention_factor = config.maybe "positive", beta_fast = config.maybe "positive",
        beta_slow = config.maybe "positive", mscale = config.maybe "number",
        mscale_all_dim = config.maybe "number", truncate = config.opt "boolean",
        low_freq_factor = config.opt "positive", high_freq_factor = config.opt "positive",
        short_factor = config.opt "list", long_factor = config.opt "list",
        mrope_section = config.free, finetuned = config.free,
}
-- Rotary positions by type of layer.  What transformers 4 wrote is for layers without a window.
config.layer_rope_keys = {
        rope_scaling = config.object(nested),
        rope_parameters = config.object { full_attention = config.object(nested),
                                          sliding_attention = config.object(nested) },
}
-- Transformers 4 writes rope_theta and rope_scaling, 5 writes rope_parameters.
config.rope_keys = {
        rope_scaling = config.object(nested), rope_parameters = config.object(nested),
        rope_theta = config.of("positive", 10000.0),
        original_max_position_embeddings = config.opt "count",
        partial_rotary_factor = config.opt "number",
}

-- Families with more keys for rotary positions.
function config.rope_keys_with(more)
        for key, rule in pairs(nested) do
                if more[key] == nil then more[key] = rule end
        end
        return { rope_scaling = config.object(more), rope_parameters = config.object(more) }
end

-- Keys that each kind of scaling requires.
local needs = {
        default = {}, linear = { "factor" },
        llama3 = { "factor", "low_freq_factor", "high_freq_factor" }, yarn = { "factor" },
        dynamic = { "factor" }, longrope = { "short_factor", "long_factor" },
}

-- YaRN's factor of cosines and sines.
local function yarn_gain(r)
        local function gain(by) return r.factor > 1 and 0.1 * by * math.log(r.factor) + 1 or 1.0 end
        if r.attention_factor then return r.attention_factor end
        local m, all = r.mscale or 0, r.mscale_all_dim or 0
        return m ~= 0 and all ~= 0 and gain(m) / gain(all) or gain(1)
end

-- longrope's factor.
local function longrope_gain(r, ctx, original)
        if r.attention_factor then return r.attention_factor end
        local factor = r.factor or ctx / original
        return factor > 1 and (1 + math.log(factor) / math.log(original)) ^ 0.5 or 1.0
end

-- A list of numbers as a text.
local function numbers(list, key, within)
        local words = {}
        for i, v in ipairs(list) do
                if type(v) ~= "number" or v <= 0 then
                        config.refuse(key, v, "should be a list of numbers above 0", within)
                end
                words[i] = string.format("%.17g", v)
        end
        return table.concat(words, " ")
end

-- The key that describes rotary positions.
function config.rope_key(c)
        return is_empty(c.rope_scaling) and "rope_parameters" or "rope_scaling"
end

-- Parameters of b.rope.  o: theta and partial, where a family has other names for them, and
-- partial_name; partial_ok: a part of each head may turn; kinds: the only ones that are known;
-- alias: other names of kinds; part: the entry of rope_parameters that has them, where layers
-- differ.
function config.rope(c, o)
        o = o or {}
        local key = config.rope_key(c)
        local r = c[key]
        if o.part then                          -- rope_scaling changes what is there
                local own = c.rope_parameters[o.part]
                r = config.with(config.with({}, is_empty(own) and { rope_type = "default" } or own),
                                c.rope_scaling)
                key = key == "rope_parameters" and key .. "." .. o.part or key
        end
        local within = key .. "."
        local kind = r.rope_type or r.type or "default"
        kind = o.alias and o.alias[kind] or kind
        if not needs[kind] or o.kinds and not o.kinds[kind] then
                config.refuse("rope_type", kind,
                              "is a kind of rotary positions that is not supported", within)
        end
        for _, name in ipairs(needs[kind]) do
                if not r[name] then
                        config.refuse(name, nil, 'is needed for "' .. kind .. '"', within)
                end
        end
        local partial = r.partial_rotary_factor or o.partial or c.partial_rotary_factor or 1.0
        if partial < 0 or partial > 1 or partial ~= 1 and not o.partial_ok then
                local own = r.partial_rotary_factor
                config.refuse(own and "partial_rotary_factor" or o.partial_name
                              or "partial_rotary_factor", partial,
                              "is not supported here", own and within)
        end
        local original = not o.part and c.original_max_position_embeddings
                or r.original_max_position_embeddings
                         or c.max_position_embeddings
        local gain = 1.0
        if kind == "yarn" then gain = yarn_gain(r) end
        if kind == "longrope" then gain = longrope_gain(r, c.max_position_embeddings, original) end
        return {
                rope_theta = r.rope_theta or o.theta or c.rope_theta, rotary = partial,
                rope_scaling = kind == "default" and "none" or kind, rope_factor = r.factor or 1.0,
                rope_low = r.low_freq_factor or 1.0, rope_high = r.high_freq_factor or 4.0,
                rope_original = kind == "dynamic" and c.max_position_embeddings or original,
                rope_fast = r.beta_fast or 32.0, rope_slow = r.beta_slow or 1.0, rope_gain = gain,
                rope_truncate = r.truncate ~= false, rope_use = "auto",
                rope_short = kind == "longrope" and numbers(r.short_factor, "short_factor", within)
                        or "",
                rope_long = kind == "longrope" and numbers(r.long_factor, "long_factor", within)
                        or "",
        }
end

-- Windows -----------------------------------------------------------------------------

-- layer_types as letters, "sf...": s for a layer with the window, f for one without.
function config.pattern(types, n_layer, window)
        if #types ~= n_layer then
                config.refuse("layer_types", types, "should name num_hidden_layers, " .. n_layer)
        end
        local out = {}
        for i, kind in ipairs(types) do
                if kind ~= "full_attention" and kind ~= "attention"
                        and kind ~= "sliding_attention" then
                        config.refuse("layer_types", kind,
                                      "is a kind of attention that is not supported")
                end
                out[i] = kind == "sliding_attention" and "s" or "f"
                if out[i] == "s" and not window then
                        config.refuse(
                                "layer_types", kind,
                                "needs sliding_window, and use_sliding_window where there is one")
                end
        end
        return table.concat(out)
end

-- layer_types, or its replacement: every nth layer is full.
function config.layer_types(c, n)
        local types = c.layer_types or {}
        if not c.layer_types then
                for i = 1, c.num_hidden_layers do
                        types[i] = i % n == 0 and "full_attention" or "sliding_attention"
                end
        end
        return types
end

-- A pattern, with its letters replaced.
function config.letters(pattern, other)
        local out = {}
        for i = 1, #pattern do out[i] = other[pattern:sub(i, i)] end
        return table.concat(out)
end

-- Theta of layers with a window; their rotary positions are not scaled.  Default: `theta`.
function config.near_theta(c, theta)
        local r = c.rope_parameters.sliding_attention or {}
        local kind = r.rope_type or r.type or "default"
        local within = "rope_parameters.sliding_attention."
        if kind ~= "default" then
                config.refuse("rope_type", kind, "is not supported there", within)
        end
        if r.partial_rotary_factor and r.partial_rotary_factor ~= 1 then
                config.refuse("partial_rotary_factor", r.partial_rotary_factor,
                              "is not supported there", within)
        end
        return r.rope_theta or theta
end

-- Checks that the second of `heads` divides the first, and that the head width is even if all of it
-- has rotary positions.
function config.heads(H, K, D, rotary)
        if H % K ~= 0 then
                config.refuse("num_key_value_heads", K,
                              "does not divide num_attention_heads, which is " .. H)
        end
        if D % 2 == 1 and rotary == 1 then
                config.refuse(
                        "head_dim", D,
                        "is odd (hidden_size over num_attention_heads where the file has none)")
        end
end

-- Heads of the same width.
function config.divides(c, heads, width)
        if c[width] % c[heads] ~= 0 then
                config.refuse(heads, c[heads], string.format("does not divide %s, which is %d",
                        width, c[width]))
        end
end

-- Merge: the fields of b into a.
function config.with(a, b)
        for key, v in pairs(b) do a[key] = v end
        return a
end

return config
