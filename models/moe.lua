-- moe.lua: Mixtral, Qwen3-MoE and similar models: Llama with experts instead of MLPs.
-- It has llama.lua's parameters and those below.  The defaults are Mixtral-8x7B.
local b = require "blocks"
local llama = require "llama"
local config = require "config"
local keys = require "config_keys"

-- Names below model.layers.N.: the router's, and those of one expert's tensors.
local spelling = {
        mixtral = {
                router = "block_sparse_moe.gate", expert = "block_sparse_moe.experts.%d.%s.weight",
                gate = "w1", up = "w3", down = "w2",
        },
        qwen = {
                router = "mlp.gate", expert = "mlp.experts.%d.%s.weight",
                gate = "gate_proj", up = "up_proj", down = "down_proj",
        },
        -- one tensor (E,...) holds all experts; gate and up share one
        stacked = { router = "mlp.gate", gate_up = "mlp.experts.gate_up_proj",
                    down = "mlp.experts.down_proj" },
}

local params = {
        n_layer = 32, vocab = 32000, ctx = 32768, n_embd = 4096, n_head = 32, n_kv_head = 8,
        head_dim = 128, n_ff = 14336, rope_theta = 1e6, tied = false, n_expert = 8, top_k = 2,
        renorm = true,          -- scale the chosen probabilities to sum to 1
        gated = true,           -- SwiGLU experts; false: two linears
        router_bias = false,
        aux_coef = 0.02,        -- weight of the balance loss; 0: none
        spelling = "mixtral",   -- names of the experts: mixtral, qwen, stacked
}
b.with_defaults(params, llama.params)

return {
        name = "moe",
        params = params,
        config = function(raw, family)
                local c, name = keys.read(raw, family)
                local p = llama.from_hf(c, name)
                local qwen = name == "qwen3_moe"
                p.n_expert, p.top_k = qwen and c.num_experts or c.num_local_experts,
                c.num_experts_per_tok
                if p.top_k > p.n_expert then
                        config.refuse("num_experts_per_tok", p.top_k,
                                      "is more than there are experts, " .. p.n_expert)
                end
                p.n_ff = c.moe_intermediate_size or p.n_ff
                p.renorm = not qwen or c.norm_topk_prob
                p.gated, p.router_bias = true, false
                p.aux_coef = c.router_aux_loss_coef
                p.spelling = qwen and "qwen" or "mixtral"
                return p
        end,
        graph = function(p)
                if not spelling[p.spelling] then
                        error("unknown spelling '" .. p.spelling .. "'")
                end
                local ids, targets = b.inputs()
                local layers = {}
                local function experts(x, _, from)
                        local layer = from.att_norm:sub(1, -#"input_layernorm" - 1)
                        local y
                        y, layers[#layers + 1] = b.moe(x, {
                                n_expert = p.n_expert, top_k = p.top_k, n_ff = p.n_ff, act = p.act,
                                gated = p.gated,
                                renorm = p.renorm, router_bias = p.router_bias, std = p.std,
                                from = { router = layer .. spelling[p.spelling].router },
                                expert_map = b.expert_map(spelling[p.spelling], layer, p.n_expert,
                                                          p.n_ff, p.n_embd),
                        })
                        return y
                end
                local logits = llama.logits(ids, p, experts)
                if p.aux_coef == 0 then return b.outputs(logits, targets) end
                return b.outputs(logits, targets, b.balance_loss(layers), p.aux_coef)
        end,
}
