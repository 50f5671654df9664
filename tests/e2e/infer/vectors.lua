-- vectors.lua: single blocks, to be run on the inputs and weights of somebody else's tests.
-- A token stands for a row of the tables x, q, k, v and mask, which are parameters.
-- what: layernorm, mlp, mhsa, block, rope of x; sdpa of q, k, v under a mask.
local b = require "blocks"

local kind, ids = {}, nil

local function rows(name, p, width)
        -- there are as many logits as columns, not as rows
        local at = ids:min(fill(p.rows - 1)):cast "i32"
        return b.map(param(name, { p.rows, width }), name, ""):gather(at):as(name .. "_rows")
end

function kind.layernorm(p)
        return b.layernorm(rows("x", p, p.width), "ln1", { eps = 1e-5, from = "ln1" })
end

local function mlp(x, p)
        return b.mlp(x, { n_ff = p.ff, act = "gelu", bias = true,
                          from = { up = "linear1", down = "linear2" } })
end

local function mhsa(x, p)
        return b.self_attention(x, { n_head = p.heads, head_dim = p.width // p.heads,
                                     out_bias = true,
                                     from = { q = "w_q", k = "w_k", v = "w_v", o = "w_o" } })
end

function kind.mlp(p) return mlp(rows("x", p, p.width), p) end
function kind.mhsa(p) return mhsa(rows("x", p, p.width), p) end

function kind.block(p)
        local x = rows("x", p, p.width)
        x = (x + mhsa(b.layernorm(x, "ln1", { eps = 1e-5, from = "ln1" }), p)):as "sum"
        return (x + mlp(b.layernorm(x, "ln2", { eps = 1e-5, from = "ln2" }), p)):as "y"
end

function kind.sdpa(p)
        local function heads(name)
                return b.heads(rows(name, p, p.width), name .. "_heads", 1, p.width)
        end
        local q, k, v = heads "q", heads "k", heads "v"
        local y = q:attention(k, v, rows("mask", p, p.ctx), { mask = 1, scale = p.width ^ -0.5 })
        return y:as "att":reshape { B, T, p.width }:as "y"
end

function kind.rope(p)
        local x = b.heads(rows("x", p, p.width), "x_heads", 1, p.width)
        return x:rope(b.rope(p.width, 10000.0).freq, { dims = 0 }):as "turned"
                :reshape { B, T, p.width }:as "y"
end

return {
        name = "vectors",
        params = { what = "layernorm", width = 4, heads = 2, ff = 8, rows = 4, ctx = 16 },
        graph = function(p)
                ids = input("ids", { B, T })
                return { logits = kind[p.what](p) }
        end,
}
