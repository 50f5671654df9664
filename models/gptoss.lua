-- gptoss.lua: gpt-oss.  Each head's softmax has a learned logit that nothing is taken from (a
-- sink); every other layer has a window; experts with biases and a clamped SwiGLU.  The defaults
-- are gpt-oss-20b.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"
local keys = require "config_keys"

local params = b.with_defaults({
        vocab = 201088, ctx = 131072, n_layer = 24, n_embd = 2880, n_head = 64, n_kv_head = 8,
        head_dim = 64, n_ff = 2880, n_expert = 32, top_k = 4, sinks = true, qkv_bias = true,
        out_bias = true, window = 128, pattern = "sf",
        alpha = 1.702, limit = 7.0,             -- of SwiGLU: gate * sigmoid(alpha * gate), both
                                                -- sides clamped to limit
        rope_theta = 150000.0, rope_scaling = "yarn", rope_factor = 32.0, rope_original = 4096,
        rope_truncate = false, rope_gain = 1.34657359028,
        gate_up_split = false,  -- the checkpoint has gate (E,F,C), up (E,F,C) and down (E,C,F), as
                                -- GGUF files do
}, decoder.params)

-- The checkpoint has (E,C,2F) with gate and up in turn, and (E,F,C).
local function expert_map(m, p)
        local E, C, F = p.n_expert, p.n_embd, p.n_ff
        return function(which, w, e, suffix)
                if e > 0 then return end
                if p.gate_up_split then
                        return w:from(m .. which .. "_proj"
                                      .. (suffix == ".bias" and "_bias" or ""))
                end
                local tail, at = suffix == ".bias" and "_bias" or "", which == "up" and 1 or 0
                if which == "down" then
                        w:from(m .. "down_proj" .. tail
                               .. (tail == "" and string.format(": %dx%dx%d | t", E, F, C) or ""))
                elseif tail == "" then
                        w:from(string.format(
                                "%sgate_up_proj: %dx%dx%d | t | reshape %d %d | cols %d %d | "
                                .. "reshape %d %d %d", m, E, C,
                                             2 * F, E * F, 2 * C, at * C, (at + 1) * C, E, F, C))
                else
                        w:from(string.format(
                                "%sgate_up_proj_bias: %dx%d | reshape %d 2 | cols %d %d | reshape "
                                .. "%d %d", m, E, 2 * F,
                                             E * F, at, at + 1, E, F))
                end
        end
end

local function mlp(x, p, from)
        local function glu(gate, up)
                gate, up = gate:min(p.limit):as "gate.clamped",
                up:max(-p.limit):min(p.limit):as "up.clamped"
                return ((up + 1):as "up.one" * (gate * (gate * p.alpha):sigmoid()):as "act"):as "h"
        end
        local function route(logits)
                local best = logits:topk(p.top_k):as "best"
                return best:softmax():as "gates", best:item(1):as "chosen"
        end
        local y = b.moe(x, {
                n_expert = p.n_expert, top_k = p.top_k, n_ff = p.n_ff, gated = true, glu = glu,
                route = route, bias = true, router_bias = true, std = p.std,
                from = { router = from.layer .. "mlp.router" },
                expert_map = expert_map(from.layer .. "mlp.experts.", p),
        })
        return y
end

-- Where a file says nothing of rotary positions.
local unsaid = { rope_type = "yarn", factor = 32.0, beta_fast = 32.0, beta_slow = 1.0,
                 truncate = false,
                 original_max_position_embeddings = 4096 }

return {
        name = "gptoss", params = params,
        config = function(raw, family)
                local c = keys.read(raw, family)
                local said = type(raw.rope_parameters) == "table"
                if not said and config.rope_key(c) == "rope_parameters" then
                        c.rope_parameters = unsaid
                end
                if c.num_experts_per_tok > c.num_local_experts then
                        config.refuse("num_experts_per_tok", c.num_experts_per_tok,
                                      "is more than num_local_experts, "
                                      .. c.num_local_experts)
                end
                return decoder.from_hf(c, config.with({
                        n_expert = c.num_local_experts, top_k = c.num_experts_per_tok, sinks = true,
                        alpha = c.swiglu_alpha,
                        limit = c.swiglu_limit, gate_up_split = c.tgc_gate_up_split,
                        window = c.sliding_window or 0,
                        pattern = config.pattern(config.layer_types(c, 2), c.num_hidden_layers,
                                                 c.sliding_window),
                }, config.rope(c)))
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                return b.outputs(decoder.logits(ids, p, { mlp = mlp }), targets)
        end,
}
