-- gptj.lua: GPT-J.  One layernorm, then attention and MLP side by side; a part of each head turns,
-- in neighbouring pairs.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"

return decoder.file {
        name = "gptj",
        params = {
                vocab = 50400, ctx = 2048, n_layer = 28, n_embd = 4096, n_head = 16, n_kv_head = 16,
                head_dim = 256, n_ff = 16384, act = "gelu_tanh", norm = "layer", order = "parallel",
                gated = false, mlp_bias = true, head_bias = true, interleaved = true, rotary = 0.25,
        },
        config = function(c)
                config.divides(c, "n_head", "n_embd")
                local D, turning = c.n_embd // c.n_head, c.rotary_dim
                if turning > D or turning % 2 == 1 then
                        config.refuse(
                                "rotary_dim", turning, "should be even and at most the width of a "
                                .. "head, n_embd / n_head = " .. D)
                end
                return b.with_defaults({
                        vocab = c.vocab_size, ctx = c.n_positions, n_layer = c.n_layer,
                        n_embd = c.n_embd, n_head = c.n_head, n_kv_head = c.n_head, head_dim = D,
                        n_ff = c.n_inner or 4 * c.n_embd, act = c.activation_function,
                        eps = c.layer_norm_epsilon, std = c.initializer_range,
                        tied = c.tie_word_embeddings, norm = "layer", order = "parallel",
                        gated = false, mlp_bias = true, head_bias = true, interleaved = true,
                        -- half a number more, so that nothing is lost in rounding
                        rotary = turning == D and 1.0 or (turning + 0.5) / D,
                }, decoder.params)
        end,
        names = function(i)
                local l = "transformer.h." .. i .. "."
                ignore(l .. "attn.bias")                -- masks that old checkpoints carry
                ignore(l .. "attn.masked_bias")
                return {
                        att_norm = l .. "ln_1", q = l .. "attn.q_proj", k = l .. "attn.k_proj",
                        v = l .. "attn.v_proj", o = l .. "attn.out_proj", up = l .. "mlp.fc_in",
                        down = l .. "mlp.fc_out",
                }
        end,
        outer = { embed = "transformer.wte", norm = "transformer.ln_f", head = "lm_head" },
}
