-- phi.lua: Phi-1, 1.5 and 2.  One layernorm, then attention and MLP side by side; biases
-- everywhere; a part of each head turns.  The defaults are Phi-2.
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "phi",
        params = {
                vocab = 51200, ctx = 2048, n_layer = 32, n_embd = 2560, n_head = 32, n_kv_head = 32,
                head_dim = 80, n_ff = 10240, act = "gelu_tanh", norm = "layer", order = "parallel",
                gated = false, rotary = 0.4, qkv_bias = true, out_bias = true, mlp_bias = true,
                head_bias = true,
        },
        config = function(c)
                return decoder.from_hf(c, config.with({
                        norm = "layer", order = "parallel", gated = false, qkv_bias = true,
                        out_bias = true, mlp_bias = true, head_bias = true,
                        qk_norm = c.qk_layernorm and "head" or "none", qk_norm_bias = true,
                }, config.rope(c, { partial_ok = true })))
        end,
        names = function(i)
                local l = "model.layers." .. i .. "."
                local n = decoder.names(i)
                n.o, n.up, n.down = l .. "self_attn.dense", l .. "mlp.fc1", l .. "mlp.fc2"
                n.q_norm, n.k_norm = l .. "self_attn.q_layernorm", l .. "self_attn.k_layernorm"
                return n
        end,
        outer = { embed = "model.embed_tokens", norm = "model.final_layernorm", head = "lm_head" },
}
