-- gguf.lua: what a GGUF file says of its model, in the words of a Hugging Face folder: a
-- config.json, which families.lua and config_keys.lua then read, and for each tensor which of the
-- folder's it makes, and how (runtime/weights/weight_map.h).  gguf_llama.lua, gguf_gpt.lua,
-- gguf_deepseek.lua and gguf_bert.lua have a row for each general.architecture:
--
--      type      model_type: a word, or a function(m)
--      keys      GGUF's keys below the architecture's name: the word in config.json, `free`
--                (changes no logit), or
--                a function(value, m, config, key)
--      needs     keys that must be there, besides those of all
--      config    function(m, config): what else the configuration has
--      outer     tensors outside of blocks: GGUF's name without .weight or .bias -> the folder's
--      layer     the same in blocks, below `prefix`; {expert = "experts.%d.w1"}: (E,N,K) is a
--                tensor for each expert;
--                {weight = "...", bias = "..."}: whole names; {rows = {{"q", 0, n} ...}}: elements
--                of the first axis, each with a name, which are not written
--      steps     transforms by GGUF's name: a text, or a function(m, suffix)
--      words     the folder's configuration has Llama's words: num_key_value_heads, head_dim,
--                rope_theta
--      types     model_types that become this architecture, where that is not `type` alone
--      say       what a file gets under a key, where `keys` has a function: function(c, m, p), of
--                config.json's
--                keys with their defaults, sizes, and the model's parameters
--      ignore    tensors that the configuration has taken in, and those that nothing reads
--      read_only why files of this kind are read and not written
--
-- A row is read in both directions: gguf.read turns what a file says into a folder's words;
-- gguf_write.lua turns a folder's words into a file's, and then asks gguf.read whether they still
-- mean the same.
--
-- A key without a rule is refused, for the logits may depend on it; a tensor without a row, when
-- weights are read.
local rules = require "gguf_rules"
local refuse, show, scalar = rules.refuse, rules.show, rules.scalar
local gguf = { architectures = rules.set(require "gguf_llama", require "gguf_gpt",
                                         require "gguf_deepseek", require "gguf_bert") }

-- Names -------------------------------------------------------------------------------

-- The lines of the tensors base.weight and base.bias, where they are: what they make of the
-- folder's.
local function map_of(m, row, base, entry, head, step, lines)
        for _, suffix in ipairs { ".weight", ".bias" } do
                local name, steps = base .. suffix, step
                local t = m.tensors[name]
                local whole = rules.whole(entry, suffix)
                if type(steps) == "function" then steps = steps(m, suffix) end
                steps = steps and " | " .. steps or ""
                if t and whole then
                        lines[#lines + 1] = "map " .. head .. whole .. " = " .. name .. steps
                elseif t and entry.rows then
                        for _, part in ipairs(entry.rows) do
                                lines[#lines + 1] =
                                        string.format("map %s%s%s = %s: %s | rows %d %d", head,
                                                      part[1], suffix, name,
                                                                  table.concat(t.shape, "x"),
                                                                          part[2], part[3])
                        end
                elseif t and entry.expert then
                        for e = 0, t.shape[1] - 1 do
                                lines[#lines + 1] =
                                        string.format("map %s%s%s = %s: %s | index %d%s", head,
                                                      entry.expert:format(e),
                                                                  suffix, name,
                                                                          table.concat(t.shape,
                                                                                  "x"), e, steps)
                        end
                end
        end
end

local function names_of(m, row, n_layer)
        local lines, steps = {}, row.steps or {}
        local layer = type(row.layer) == "function" and row.layer(m) or row.layer
        for base, entry in pairs(row.outer) do
                map_of(m, row, base, entry, "", steps[base], lines)
        end
        for i = 0, n_layer - 1 do
                local before = #lines
                for base, entry in pairs(layer) do
                        map_of(m, row, "blk." .. i .. "." .. base, entry, row.prefix:format(i),
                               steps[base], lines)
                end
                if #lines == before then
                        refuse(m.arch .. ".block_count",
                               n_layer .. ", and the file has no tensor of block " .. i)
                end
        end
        for _, name in ipairs(row.ignore or {}) do lines[#lines + 1] = "map ignore " .. name end
        return lines
end

-- Configuration -----------------------------------------------------------------------

local function ids(meta, config)
        config.bos_token_id = meta["tokenizer.ggml.bos_token_id"]
        config.eos_token_id = meta["tokenizer.ggml.eos_token_id"]
end

local function apply_keys(m, row, config)
        local sorted = {}
        for key in pairs(m.meta) do
                if key:sub(1, #m.arch + 1) == m.arch .. "." then sorted[#sorted + 1] = key end
        end
        table.sort(sorted)
        for _, key in ipairs(sorted) do
                local name = key:sub(#m.arch + 2)
                local v = rules.lists[name] and m.meta[key] or scalar(m.meta[key], key)
                local rule = row.keys and row.keys[name] or rules.common[name]
                if not rule then
                        refuse(key, show(v) .. " is of no key that tgc knows of " .. m.arch
                               .. ", so the logits may depend on it")
                elseif type(rule) == "string" then
                        config[rule] = v
                else
                        rule(v, m, config, key)
                end
        end
end

local function known()
        local out = {}
        for name in pairs(gguf.architectures) do out[#out + 1] = name end
        table.sort(out)
        return table.concat(out, ", ")
end

-- meta: what gguf_json wrote.  The configuration and the lines of the names' map; both nil where a
-- model of the user's own is to read the file as it is (own) and no row is there.
function gguf.read(meta, own)
        local arch, tensors = meta["general.architecture"], meta.tensors
        if type(arch) ~= "string" then refuse("general.architecture", "is missing") end
        local row = gguf.architectures[arch]
        if not row and own then return nil, nil end
        if not row then
                refuse("general.architecture", "no model is known for '" .. arch .. "'; known are "
                       .. known()
                       .. ".  With a model of your own: tgc compile FILE.gguf --model FILE.lua, "
                       .. "whose function `config` gets the "
                       .. "metadata and whose weight maps name the file's tensors "
                       .. "(docs/graph-language.md)")
        end
        local m = { arch = arch, meta = meta, tensors = tensors }
        for _, list in ipairs { rules.needed, row.needs or {} } do
                for _, name in ipairs(list) do
                        if meta[arch .. "." .. name] == nil then
                                refuse(arch .. "." .. name, "is missing")
                        end
                end
        end
        local function number(name, default)
                local key = arch .. "." .. name
                local v = scalar(meta[key], key)
                if v == nil then v = default end
                if math.type(v) ~= "integer" or v < 1 then
                        refuse(key, show(v) .. " should be a whole number of at least 1")
                end
                return v
        end
        m.heads = number "attention.head_count"
        m.kv_heads = number("attention.head_count_kv", m.heads)
        m.head_dim = number("attention.key_length", number "embedding_length" // m.heads)
        local embed = tensors["token_embd.weight"]
        if not embed then refuse("tensor token_embd.weight", "is missing") end
        local config = { model_type = type(row.type) == "function" and row.type(m) or row.type,
                         vocab_size = embed.shape[1],
                         tie_word_embeddings = tensors["output.weight"] == nil }
        if row.words then
                config.num_key_value_heads, config.head_dim, config.rope_theta = m.kv_heads,
                m.head_dim, 10000.0
        end
        apply_keys(m, row, config)
        if row.config then row.config(m, config) end
        ids(meta, config)
        return config, names_of(m, row, number "block_count")
end

return gguf
