#!/bin/bash
# test_user_models.sh: models of the user's own: print, and --model FILE.lua for a folder whose
# family tgc does not know.
. "$(dirname "$0")/shell.sh"
start user

model() {       # model FILE PARAM: a small model; PARAM is what its `graph` begins with
        cat > "$1" <<END
local b = require "blocks"
return {
        name = "small", params = { vocab = 20, ctx = 8, n_embd = 4 },
        graph = function(p)
                $2
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "wte", p.vocab, p.n_embd)
                return b.outputs(b.linear(x, "logits", p.vocab), targets)
        end,
}
END
}

# ---- print ----

model talk.lua 'print("width", p.n_embd, nil, B, {}, string.char(27) .. "[31m")
                print(param("w", { 2, 3 }))'
p=$(try 0 '' "$TGC" dump talk.lua --graph)
printf 'width\t4\tnil\tB\ttable\t\\x1b[31m\n%%w: f32[2,3]\n' > want
[ "$p" ] || cmp -s err want || p="standard error: $(cat err)"
[ "$p" ] || ! grep -q width out || p="it is among the output"
say print_goes_to_standard_error_escaped "$p"

p=$(try 0 '' "$TGC" compile talk.lua -q --no-check -o x.plan)
[ "$p" ] || [ ! -s err ] || p="--quiet says $(cat err)"
say quiet_leaves_print_out "$p"

model fails.lua 'print "before"  error "after"'
p=$(try 3 'fails.lua:5: error: after' "$TGC" dump fails.lua --graph)
[ "$p" ] || [ "$(head -1 err)" = before ] || p="not printed before the error: $(cat err)"
say print_is_seen_where_a_model_fails "$p"

model much.lua 'for i = 1, 100000 do print(i) end  print(("x"):rep(1000000))'
p=$(try 0 'the model prints more than can be shown' "$TGC" dump much.lua --graph)
[ "$p" ] || [ "$(wc -c < err)" -lt 70000 ] || p="$(wc -c < err) bytes"
say print_is_bounded "$p"

model twice.lua 'print("vocab", p.vocab)'
echo 'some text of few characters' > text
p=$(try 0 '' "$TGC" info twice.lua --tokenizer char:text)
[ "$p" ] || [ "$(grep -c vocab err)" = 1 ] || p="said $(grep -c vocab err) times: $(cat err)"
say a_model_that_is_read_again_prints_once "$p"

# ---- what has no effect, and a loss alone ----

outputs() {     # CODE WORDS SED: small.lua changed so, compiled
        model small.lua ''
        sed -i "$3" small.lua
        try "$1" "$2" "$TGC" compile small.lua -q --no-check -o x.plan --target cpu
}
named() {
        outputs 3 "small.lua: error: the file's table has a 'parms'; did you mean 'params'" \
                's/ctx = 8,/&/; s/name = "small",/& parms = {},/'
        outputs 3 '`config` must be a function, not a number' 's/name = "small",/& config = 3,/'
        outputs 3 "a model returns no 'lss'; did you mean 'loss'" \
                's/return b.outputs.*/return { logits = x, lss = x }/'
        outputs 0 '' 's/name = "small",/& helper = function() end,/'
}
say what_has_no_effect "$(named)"
loss_alone() {  # it trains, and generates nothing
        model alone.lua ''
        sed -i 's/return b.outputs\(.*\)$/return { loss = b.outputs\1.loss }/' alone.lua
        tgc 0 '' check alone.lua --device cpu
        grep -q '^step  *d wte.weight .* ok' out || cat out
        try 0 'alone.lua:8: note: the model returns no logits' "$TGC" train alone.lua \
                --data text --max_iters 2 --eval_iters 0 --block-size 4 --device cpu \
                --out_dir alone
        "$TGC" info alone/model.plan | grep -iq 'vocab.* 14' || "$TGC" info alone/model.plan
        try 3 'alone.lua:8: error: the model returns no logits' "$TGC" compile alone.lua \
                --mode infer -o x.plan
}
say a_loss_alone_trains "$(loss_alone)"

# ---- a family of one's own ----

mkdir mine
cat > mine/config.json <<'END'
{
  "model_type": "mine",
  "width": 12,
  "words": 30,
  "gate": "tanh"
}
END
cat > mine.lua <<'END'
local b = require "blocks"
return {
        name = "mine", params = { vocab = 20, ctx = 8, n_embd = 4 },
        config = function(c, family)
                if c.gate ~= "tanh" then
                        config_error("gate", "only tanh is known, not " .. c.gate)
                end
                assert(family == "mine")
                return { vocab = c.words, ctx = 16, n_embd = c.width }
        end,
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "wte", p.vocab, p.n_embd, { from = "table" })
                return b.outputs(b.linear(x:tanh(), "logits", p.vocab, { from = "head" }), targets)
        end,
}
END
p=$(try 3 "mine/config.json: no model is known for 'mine'; .*tgc compile FOLDER --model FILE.lua" \
        "$TGC" info mine)
say an_unknown_family_names_the_way "$p"

p=$(try 0 '' "$TGC" dump mine --model mine.lua --manifest)
[ "$p" ] || { grep -q '^param wte.weight 30x12 ' out && grep -q '^ctx 16$' out; } ||
        p="$(head -c 400 out)"
say a_folder_with_the_users_model "$p"

p=$(try 0 '' "$TGC" compile mine --model mine.lua --weights random -D ctx=9 -o mine.plan)
[ "$p" ] || "$TGC" dump mine.plan --manifest | grep -q '^ctx 9$' ||
        p="-D does not come after config"
say define_comes_after_config "$p"

sed -i 's/"tanh"/"relu"/' mine/config.json
p=$(try 3 '^(tgc: error: )?mine/config.json:5:3: only tanh is known, not relu' "$TGC" dump mine \
        --model mine.lua --manifest)
say config_error_has_the_line "$p"
sed -i 's/"relu"/"tanh"/' mine/config.json

sed 's/b.linear/b.linaer/' mine.lua > slip.lua
p=$(try 3 '^slip.lua:14: error: .* .for mine.$' "$TGC" dump mine --model slip.lua --manifest)
say an_error_of_the_model_is_at_its_own_line "$p"

sed 's/words/wrods/' mine.lua > slip.lua
p=$(try 3 "slip.lua: error: the model's .config. does not say what 'vocab' is" "$TGC" dump mine \
        --model slip.lua --manifest)
say config_states_every_parameter "$p"

model none.lua ''
p=$(try 3 'none.lua: error: the model has no function .config.' "$TGC" dump mine --model none.lua \
        --manifest)
say a_model_without_config_is_refused "$p"

p=$(try 2 '--model has no effect: it says what a config.json means' "$TGC" dump talk.lua \
        --model mine.lua --graph)
[ "$p" ] || p=$(try 2 '--model has no effect: mine.plan is compiled already' "$TGC" dump mine.plan \
        --model mine.lua --graph)
say model_without_a_folder_is_refused "$p"

# The same model by another road is the same plan, weights included.
cp "$top/models/llama.lua" own.lua
cp -r "$top/tests/data/families/llama" folder
"$TGC" dump folder --manifest > one
p=$(try 0 '' "$TGC" dump folder --model own.lua --manifest)
[ "$p" ] || cmp -s out one || p="$(diff out one | head -5)"
[ "$p" ] || p=$(try 0 '' "$TGC" compile folder --model own.lua --no-check -o own.plan)
[ "$p" ] || "$TGC" info own.plan | grep -q weights || p="without weights"
say a_known_family_by_the_users_file "$p"

# ---- what the compiler made of it ----

# A gradient is named for its value and stands at the line of the op that it passes.
cat > two.lua <<'END'
local b = require "blocks"
return { name = "two", params = { vocab = 20, ctx = 8, n_embd = 16 }, graph = function(p)
        local ids, targets = b.inputs()
        local x = b.embedding(ids, "wte", p.vocab, p.n_embd)
        local h = b.linear(x, "first", 3 * p.n_embd):gelu():as "h"
        local h2 = b.linear(h, "second", p.n_embd)
        return b.outputs(b.linear(h2, "logits", p.vocab), targets)
end }
END
p=$(try 0 '' "$TGC" dump two.lua --mode train --fused -O1)
for want in '%h.grad = matmul[(]%second.grad, %second.weight[)] .* two.lua:6$' \
        '%first.grad = mul[(]%first.slope, %h.grad[)] .* two.lua:5$' \
        '%second.weight.grad = matmul[(]%second.grad.*, %h.* two.lua:6$' \
        '%first.weight.grad = .* two.lua:5$' '%wte.weight.grad = .* two.lua:4$'; do
        [ "$p" ] || grep -Eq "$want" out || p="no '$want' in: $(grep grad out | head -20)"
done
say gradients_have_names_and_lines "$p"

exit $failed
