#!/bin/bash
# test_objectives.sh: --objective: losses and gradients of those that come with tgc against the double-precision evaluator,
# training with each, what rises where it should rise, and what is refused.
. "$(dirname "$0")/shell.sh"
start objectives
tiny_model tiny.lua
"$TGC" check tiny.lua --device cpu > out 2> err ||
        { grep -q 'no C compiler' err && { echo "skip objectives: no C compiler"; exit 0; }; cat err; }

# ---- loss and every gradient, against the evaluator; the evaluator's gradients against differences (the quick check)
for o in smoothing,z=0.01 distill dpo,smoothing=0.1 grpo grpo,per_token=true polychromic,samples=3 polychromic,published=true; do
        agrees() {
                tgc 0 '' check tiny.lua --objective "$o" --device cpu
                grep -q '^step  *loss .* ok' out && grep -q '^step  *d tok.weight .* ok' out || head -c 400 out
        }
        say "gradients_of_$o" "$(agrees)"
done
bias() { # logits with a bias, and logits that are no plain product: the parts are found, or done without
        cat > bias.lua << 'LUA'
local b = require "blocks"
return { name = "bias", params = { vocab = 21, ctx = 16, n_embd = 8, cap = 0.0 }, graph = function(p)
        local ids, targets = b.inputs()
        local y = b.linear(b.embedding(ids, "wte", p.vocab, p.n_embd):gelu(), "out", p.vocab, { bias = true, std = 0.4 })
        if p.cap > 0 then y = (y * (1 / p.cap)):tanh() * p.cap end
        return b.outputs(y, targets)
end }
LUA
        for cap in 0 3; do
                tgc 0 '' check bias.lua -D cap=$cap --objective smoothing,z=0.1 --device cpu
        done
        # the logits never stand in memory: one op makes them and their loss
        "$TGC" dump bias.lua --objective smoothing,z=0.1 --ir | grep -q '= linear_ce ' || echo "no linear_ce"
        "$TGC" dump bias.lua -D cap=3 --objective smoothing,z=0.1 --ir | grep -q '= linear_ce ' && echo "a linear_ce of capped logits"
        tgc 3 'polychromic.lua:[0-9]*: error: the logits are not a product' check bias.lua -D cap=3 --objective polychromic --device cpu
}
say logits_with_a_bias_and_capped "$(bias)"

# ---- what is refused
refused() {
        tgc 8 'no such file, and no model of that name' check gpt --objective nothing
        tgc 2 "has no parameter 'smooth'; did you mean 'smoothing'" check gpt --objective smoothing,smooth=1
        tgc 2 'one is wanted, and here are 2' check gpt --objective dpo --objective grpo
        tgc 3 'must return a table with a function .loss' check gpt --objective gpt
        echo 'return { loss = function(m, p) return m.nll end }' > wide.lua
        tgc 3 'wide.lua.*loss must be one number' check gpt --objective wide.lua
        echo 'return { feeds = { "a b" }, loss = function(m, p) return m.nll:sum() end }' > name.lua
        tgc 3 'feeds. is a list of names' check gpt --objective name.lua
        printf 'return { data = "prompts", params = { samples = 0 },\nloss = function() end }' > none.lua
        tgc 3 'samples 1 to 64' check gpt --objective none.lua
        printf 'return {\nloss = function(m, p) return m.logits + m.nll end }' > shape.lua
        tgc 3 'shape.lua:2: error: add' check gpt --objective shape.lua
        printf 'return {\nloss = function(m, p) while true do end end }' > long.lua
        tgc 3 'runs for too long' check gpt --objective long.lua --lua-timeout 0.2
}
say refused "$(refused)"
exit $failed
