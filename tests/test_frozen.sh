#!/bin/bash
# test_frozen.sh: --train and --group: what is frozen has no gradient, no moments and no place in
# the state, keeps its bytes, and comes back on --resume; patterns that mean nothing, or a part of a
# parameter, are refused.
. "$(dirname "$0")/shell.sh"
start frozen

cat > tiny.lua << 'LUA'
local b = require "blocks"
return {
        name = "tiny", params = { vocab = 11, ctx = 8, n_embd = 8 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, { std = 0.5, from = "emb" })
                x = x + b.linear(b.rmsnorm(x, "norm"):silu(), "mlp.up", p.n_embd,
                        { std = 0.5, from = "layer.up" })
                local logits = b.linear(x, "logits", p.vocab, { std = 0.5, from = "head" })
                return b.outputs(logits, targets)
        end,
}
LUA
seq 1 300 > text.txt
"$TGC" compile tiny.lua --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip frozen: no C compiler"; exit 0; }
here=(--data text.txt --device cpu -t 1 -q -b 2 --block-size 6 --warmup_iters 0 --eval_interval 2)

# keys FILE PREFIX: tensors of a state or checkpoint
keys() { head -c 100000 "$1" | tr -c '[:print:]' '\n' | grep -o "\"$2[A-Za-z0-9_.]*\":{" |
        tr -d '":{' | sort; }

arenas() {
        local all some p=
        all=$("$TGC" dump tiny.lua --program --mode train 2> /dev/null |
                awk '$1 == "arena" && $2 == "m" { print $3; exit }')
        some=$("$TGC" dump tiny.lua --program --mode train --train up 2> /dev/null |
                awk '$1 == "arena" && $2 == "m" { print $3; exit }')
        [ "$some" -gt 0 ] && [ "$some" -lt "$all" ] || p="moments of $some bytes, all would be $all"
        "$TGC" dump tiny.lua --ir --mode train --train up 2> /dev/null | grep -q 'accum.*emb' &&
                p="a frozen weight has a gradient"
        echo "$p"
}
say no_gradient_and_no_moments "$(arenas)"

state() {
        local p=
        p=$(tgc 0 '' train tiny.lua "${here[@]}" --train up --max_iters 4 --out_dir whole)
        [ "$(keys whole/state.safetensors m. | tr '\n' ' ')" = "m.mlp.up.weight " ] ||
                p="${p}moments of $(keys whole/state.safetensors m. | tr '\n' ' ')"
        [ "$(keys whole/state.safetensors p. | tr '\n' ' ')" = "p.mlp.up.weight " ] ||
                p="${p}weights of $(keys whole/state.safetensors p. | tr '\n' ' ')"
        [ "$(keys whole/ckpt.safetensors '')" = "$(keys plain/ckpt.safetensors '')" ] ||
                p="${p}ckpt.safetensors has other tensors"
        echo "$p"
}
tgc 0 '' train tiny.lua "${here[@]}" --max_iters 4 --out_dir plain > /dev/null
say state_has_what_is_trained "$(state)"

resumes() { # with weights of another run below
        local p= f
        p=$(tgc 0 '' train tiny.lua "${here[@]}" --init_from plain --group up:\ freeze \
                --lr_decay_iters 4 --max_iters 4 --out_dir one)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --init_from plain \
                --group up:\ freeze --lr_decay_iters 4 --max_iters 2 --out_dir two)
        [ -z "$p" ] && p=$(tgc 0 '' train two --resume --max_iters 4 -q)
        for f in state.safetensors ckpt.safetensors model.plan; do
                [ -n "$p" ] || cmp -s one/$f two/$f || p="$f is another"
        done
        [ -z "$p" ] && p=$(tgc 2 'not trained are not those of the run before; --init_from' train \
                tiny.lua "${here[@]}" --group up:\ freeze --resume --out_dir two)
        [ -z "$p" ] && p=$(tgc 3 'trained another model' train tiny.lua "${here[@]}" --train emb \
                --init_from plain --resume --out_dir two)
        echo "$p"
}
say resume_is_exact "$(resumes)"

checks() {
        local d p=
        for d in cpu emulate; do
                p=$p$(tgc 0 '' check tiny.lua --device $d --train up --train emb)
        done
        p=$p$(tgc 0 '' check tiny.lua --device emulate --dtype bf16 --group 'norm*: freeze')
        echo "$p"
}
say gradients_agree_with_the_evaluator "$(checks)"

# A group of all, at twice the rate, is a run at twice the rate; of some, their decay is checked
# next to the evaluator.
groups() {
        local p= d
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" --no-decay_lr --learning_rate 0.02 \
                --max_iters 4 --out_dir two_x)
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" --no-decay_lr --learning_rate 0.01 \
                --group '*: lr=0.02' --max_iters 4 --out_dir two_g)
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" --no-decay_lr --learning_rate 0.01 \
                --max_iters 4 --out_dir one_x)
        cmp -s two_x/ckpt.safetensors two_g/ckpt.safetensors ||
                p="${p}a group of all is another run"
        cmp -s two_x/ckpt.safetensors one_x/ckpt.safetensors && p="${p}the rate changes nothing"
        for d in 'cpu --dtype f32' 'emulate --dtype bf16'; do
                p=$p$(tgc 0 '' check tiny.lua --device $d --group 'up: wd=0.5' \
                        --group 'norm: wd=0.3' --group 'emb: wd=0')
        done
        echo "$p"
}
say groups_have_rates_of_their_own "$(groups)"

refused() {
        local p=
        p=$(tgc 2 "--train uq: no parameter of .* has such a name; nearest are up," train tiny.lua \
                "${here[@]}" --train uq --out_dir no)
        p=$p$(tgc 2 "'PATTERN: lr=1e-4, wd=0' or" train tiny.lua "${here[@]}" --group up \
                --out_dir no)
        p=$p$(tgc 2 "'lr=0' is not one of freeze, lr=X" train tiny.lua "${here[@]}" \
                --group 'up: wd=1, lr=0' --out_dir no)
        p=$p$(tgc 2 "'wd=' is not one" train tiny.lua "${here[@]}" --group 'up: wd=' --out_dir no)
        p=$p$(tgc 2 "lr= is for .tgc train" check tiny.lua --group 'up: lr=1' --device cpu)
        p=$p$(tgc 2 "these are frozen already" train tiny.lua "${here[@]}" --train emb \
                --group 'up: wd=1' --out_dir no)
        p=$p$(tgc 2 "nothing is left to train" train tiny.lua "${here[@]}" --train up \
                --group 'up: freeze' --out_dir no)
        p=$p$(tgc 2 "x.plan is compiled already; give --train" train x.plan "${here[@]}" \
                --train up --out_dir no)
        [ -e no ] && p="${p}a folder was made"
        echo "$p"
}
say patterns_are_refused_by_name "$(refused)"
