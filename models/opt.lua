-- opt.lua: OPT.  Learned positions, layernorm before each part (behind it in OPT-350m, whose
-- embedding is narrower), ReLU.  The defaults are OPT-125m.
local b = require "blocks"
local config = require "config"
local decoder = require "decoder"

local params = b.with_defaults({
        vocab = 50272, ctx = 2048, n_layer = 12, n_embd = 768, n_head = 12, n_kv_head = 12,
        head_dim = 64, n_ff = 3072,
        n_word = 768,           -- width of the embedding
        act = "relu", norm = "layer", gated = false, qkv_bias = true, out_bias = true,
        mlp_bias = true, tied = true,
}, decoder.params)

local D = "model.decoder."
local outer = { embed = D .. "embed_tokens", norm = D .. "final_layer_norm", head = "lm_head" }

local function names(i)
        local l = D .. "layers." .. i .. "."
        local a = l .. "self_attn."
        return {
                att_norm = l .. "self_attn_layer_norm", mlp_norm = l .. "final_layer_norm",
                q = a .. "q_proj", k = a .. "k_proj", v = a .. "v_proj", o = a .. "out_proj",
                up = l .. "fc1", down = l .. "fc2",
        }
end

return {
        name = "opt", params = params,
        config = function(raw, family)
                local c = require "config_keys".read(raw, family)
                config.divides(c, "num_attention_heads", "hidden_size")
                local before, H = c.do_layer_norm_before, c.num_attention_heads
                return b.with_defaults({
                        vocab = c.vocab_size, ctx = c.max_position_embeddings,
                        n_layer = c.num_hidden_layers, n_embd = c.hidden_size, n_head = H,
                        n_kv_head = H, head_dim = c.hidden_size // H, n_ff = c.ffn_dim,
                        n_word = c.word_embed_proj_dim or c.hidden_size,
                        act = c.activation_function, std = c.init_std, eps = 1e-5,
                        dropout = c.dropout,
                        norm = c.layer_norm_elementwise_affine and "layer" or "plain",
                        order = before and "pre" or "after",
                        last_norm = before and not c._remove_final_layer_norm, gated = false,
                        qkv_bias = c.enable_bias, out_bias = c.enable_bias,
                        mlp_bias = c.enable_bias, tied = c.tie_word_embeddings, rotary = 0.0,
                }, decoder.params)
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local narrow = p.n_word ~= p.n_embd
                local x, embed = b.embedding(ids, "embed", p.vocab, p.n_word,
                                             { std = p.std, from = outer.embed })
                if narrow then
                        x = b.linear(x, "project_in", p.n_embd,
                                     { std = p.std, from = D .. "project_in" })
                end
                -- position 0 is row 2 of the table
                local table_ = param("positions.weight", { p.ctx + 2, p.n_embd }, { std = p.std })
                b.map(table_, D .. "embed_positions", ".weight")
                local at = table_:slice { axis = 0, start = 2,
                                          len = p.ctx }:gather(position()):as "positions"
                x = decoder.layers((x + at):as "x", p, { names = names })
                local last = { embed = outer.embed, norm = outer.norm, head = outer.head }
                if narrow then
                        last.project = function(y)
                                return b.linear(y, "project_out", p.n_word,
                                                { std = p.std, from = D .. "project_out" })
                        end
                end
                return b.outputs(decoder.head(x, p, embed, last), targets)
        end,
}
