#!/bin/bash
# same.sh TGC OUT DEVICE NAME...: commands say on a device what they say on the CPU, where no
# evaluator is at hand: optimisers, loss scaling, adapters, what is drawn, drafts, grammars,
# embeddings. Without names: all of them; `list` prints the names.
# Lines of losses may differ by `near`; texts not at all.
tgc=$1 out=$2 device=$3
shift 3
mkdir -p "$out"
gpt="models/gpt.lua -D n_layer=2 -D n_head=4 -D n_embd=64 -D ctx=64"
story=tests/data/models/story
data=tests/data/text/stories.txt

# Losses and norms of 20 steps, a line each.
losses() { # DEVICE OPTIONS...
        local d=$1 log
        shift
        rm -rf "$out/$name.$d"
        log=$("$tgc" train "$@" --data $data --max_iters 20 --warmup_iters 4 --batch_size 4 \
                --block_size 32 --log_interval 1 --eval_interval 1000 --eval_iters 2 --device "$d" \
                --out_dir "$out/$name.$d" 2>&1) || { echo "$log" | tail -3; return 1; }
        echo "$log" | sed -n '
                s/^iter \([0-9]*\): loss \([0-9.]*\),.*/\1 \2/p
                s/^step \([0-9]*\): train loss \([0-9.]*\), val loss \([0-9.]*\).*/step\1 \2 \3/p'
}

# Two files of words: numbers may differ by the fraction $1 of the larger, other words not at all.
near() { # FRACTION A B
        [ -s "$2" ] && paste -d '\n' "$2" "$3" | awk -v near="$1" '
                NR % 2 { n = split($0, a); next }
                {
                        if (split($0, b) != n) bad = 1
                        for (i = 1; i <= n; i++) {
                                d = a[i] - b[i]; m = a[i] < 0 ? -a[i] : a[i]
                                if (a[i] ~ /^-?[0-9.]+(e-?[0-9]+)?$/)
                                        bad = bad || !(d <= near * m && -d <= near * m)
                                else if (a[i] != b[i])
                                        bad = 1
                        }
                }
                END { exit bad }'
}

case_() { # NAME FRACTION COMMAND: run with cpu and with the device as last argument of `cmd`
        name=$1
        [ "$only" != list ] || { echo "$name"; return; }
        [ -z "$only" ] || [[ " $only " = *" $name "* ]] || return
        local fraction=$2
        shift 2
        if "$@" cpu > "$out/$name.a" 2>&1 && "$@" "$device" > "$out/$name.b" 2>&1 &&
                near "$fraction" "$out/$name.a" "$out/$name.b"; then
                echo "ok $name"
        else
                echo "not ok $name"
                diff "$out/$name.a" "$out/$name.b" | head -6
                failed=1
        fi
}
only=$*
train() { losses "${@: -1}" "${@:1:$#-1}"; }
say() { "$tgc" run $story -q "${@:1:$#-1}" --device "${@: -1}" < /dev/null; }
embed() { "$tgc" embed tests/data/encoders/minilm -q "${@:1:$#-1}" --device "${@: -1}" < \
        /dev/null; }

# f32: the order of sums alone differs; 16 bits: roundings of activations.
for o in $("$tgc" help train | sed -n 's/^ *--optimizer \([a-z0-9|]*\).*/\1/p' | tr '|' ' '); do
        case_ "train_$o" 2e-3 train $gpt --optimizer $o
        case_ "train_${o}_bf16" 1e-2 train $gpt --optimizer $o --dtype bf16
done
case_ train_no_masters 1e-2 train $gpt --dtype bf16 --masters none
case_ train_stochastic 2e-2 train $gpt --dtype bf16 --masters stochastic
case_ train_f16 1e-2 train $gpt --dtype f16
case_ train_lora 2e-3 train $story --lora r=4 --learning_rate 1e-2
case_ train_lora_bf16 1e-2 train $story --lora r=4 --learning_rate 1e-2 --dtype bf16
case_ train_some 2e-3 train $story --train mlp --group 'mlp.up: lr=1e-3, wd=0'
printf 'root ::= (" " word)+ "."\nword ::= [a-z] [a-z]*\n' > "$out/g.gbnf"
case_ say 0 say -p "Once upon a time" -n 60 --temp 0
case_ say_drawn 0 say -p "Once upon a time" -n 60 -s 3
case_ say_three 0 say -p Once -p Then -p "The dog" -n 40 --temp 0 --print-ids
case_ say_parallel 0 say -p Once --parallel 3 -n 40 -s 5 --print-ids
case_ say_draft 0 say -p "Once upon a time" -n 60 --temp 0 --draft ngram --print-ids
case_ say_grammar 0 say -p Then -n 40 -s 3 --grammar "$out/g.gbnf" --print-ids
case_ say_grammars 0 say -p Then -p Once -n 40 -s 3 --grammar "$out/g.gbnf" --print-ids
case_ say_cache_bf16 0 say -p "Once upon a time" -n 60 --temp 0 --cache-type bf16
case_ embed 1e-4 embed -p "A dog runs." -p "The sun"
exit ${failed:-0}
