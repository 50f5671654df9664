-- sparse.lua: decoders with experts instead of MLPs: OLMoE and Qwen2-MoE.  In Qwen2-MoE every token
-- also uses a shared expert, and some layers may be dense.  The defaults are Qwen1.5-MoE-A2.7B.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"
local keys = require "config_keys"

local spelling = { expert = "mlp.experts.%d.%s.weight", gate = "gate_proj", up = "up_proj",
                   down = "down_proj" }

local params = b.with_defaults({
        vocab = 151936, ctx = 8192, n_layer = 24, n_embd = 2048, n_head = 16, n_kv_head = 16,
        head_dim = 128, eps = 1e-6, qkv_bias = true, rope_theta = 1e6,
        n_ff = 5632,            -- of dense layers
        n_expert = 60, top_k = 4, n_ff_expert = 1408,
        n_ff_shared = 5632,     -- of the shared expert; 0: none
        renorm = false,         -- scale the chosen probabilities to sum to 1
        experts = "e",          -- a letter for each layer, repeated: e experts, d a dense MLP
        aux_coef = 0.001,       -- weight of the balance loss; 0: none
}, decoder.params)

-- Which layers of Qwen2-MoE have a window, if the file does not say.
local function windows(c)
        -- 0 where it is not used
        local window = c.use_sliding_window and c.sliding_window or nil
        if window == 0 then
                config.refuse("sliding_window", 0, "should be at least 1 with use_sliding_window")
        end
        local types = c.layer_types or {}
        if not c.layer_types then
                for i = 1, c.num_hidden_layers do
                        local slides = i % 2 == 1 and i <= c.max_window_layers
                                and c.use_sliding_window
                        types[i] = slides and "sliding_attention" or "full_attention"
                end
        end
        return { window = window or 0, pattern = config.pattern(types, c.num_hidden_layers,
                window) }
end

local function dense_layers(c)
        local dense, out = {}, {}
        for _, i in ipairs(c.mlp_only_layers or {}) do
                if math.type(i) ~= "integer" then
                        config.refuse("mlp_only_layers", i, "should be a list of whole numbers")
                end
                dense[i] = true
        end
        for i = 0, c.num_hidden_layers - 1 do
                out[i + 1] = (dense[i] or (i + 1) % c.decoder_sparse_step ~= 0) and "d" or "e"
        end
        return table.concat(out)
end

local function from_hf(raw, family)
        local c, name = keys.read(raw, family)
        local olmoe = name == "olmoe"
        if c.num_experts_per_tok > c.num_experts then
                config.refuse("num_experts_per_tok", c.num_experts_per_tok,
                              "is more than num_experts, " .. c.num_experts)
        end
        if olmoe and c.head_dim and c.head_dim * c.num_attention_heads ~= c.hidden_size then
                config.refuse("head_dim", c.head_dim, "should be hidden_size / num_attention_heads")
        end
        local p = config.with({
                n_expert = c.num_experts, top_k = c.num_experts_per_tok, renorm = c.norm_topk_prob,
                aux_coef = c.router_aux_loss_coef,
                n_ff_expert = c.moe_intermediate_size or c.intermediate_size,
                n_ff_shared = c.shared_expert_intermediate_size or 0,
                experts = olmoe and "e" or dense_layers(c), clip = c.clip_qkv or 0.0,
                qk_norm = olmoe and "all" or "none",
        }, config.rope(c))
        if not olmoe then
                config.with(p, config.with({ qkv_bias = c.qkv_bias, out_bias = false }, windows(c)))
        end
        return decoder.from_hf(c, p)
end

return {
        name = "sparse", params = params, config = from_hf,
        graph = function(p)
                local ids, targets = b.inputs()
                local routed = {}
                local function mlp(x, _, from, i)
                        if b.letter(p.experts, i) == "d" then return decoder.mlp(x, p, from) end
                        local y, balance = b.moe(x, {
                                n_expert = p.n_expert, top_k = p.top_k, n_ff = p.n_ff_expert,
                                act = p.act, gated = true,
                                renorm = p.renorm, std = p.std,
                                from = { router = from.layer .. "mlp.gate" },
                                expert_map = b.expert_map(spelling, from.layer, p.n_expert,
                                                          p.n_ff_expert, p.n_embd),
                        })
                        routed[#routed + 1] = balance
                        if p.n_ff_shared == 0 then return y end
                        local m = from.layer .. "mlp.shared_expert"
                        local shared = scope("shared", function()
                                local gate = b.linear(x, "open", 1,
                                                      { std = p.std, from = m .. "_gate" })
                                local s = decoder.mlp(x, p,
                                                      { gate = m .. ".gate_proj",
                                                        up = m .. ".up_proj",
                                                              down = m .. ".down_proj" }, i,
                                                                      p.n_ff_shared)
                                return (s * gate:sigmoid():as "opened"):as "out"
                        end)
                        return (y + shared):as "both"
                end
                local logits = decoder.logits(ids, p, { mlp = mlp })
                if p.aux_coef == 0 or #routed == 0 then return b.outputs(logits, targets) end
                return b.outputs(logits, targets, b.balance_loss(routed), p.aux_coef)
        end,
}
