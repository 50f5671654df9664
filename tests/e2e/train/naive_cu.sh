#!/bin/bash
# naive_cu.sh [SEED...]: naive.cu's job, a thousand steps of its character model on the CPU.
#
# Sixteen windows of 64 characters, 4 layers of 128, 4 heads, dropout 0.1, AdamW at 3e-4.
# The mean loss of steps 700 to 900 must be 1.98 to 2.10; then the checkpoint speaks.
tgc=${TGC:-build/tgc} text=../shared/data/text/wizard_of_oz_naive_cu.txt \
        out=${TMPDIR:-/tmp}/naive_cu.$$ bad=0
if [ ! -e $text ]; then
        echo "skip naive_cu: no reference data"
        exit 0
fi
mkdir -p "$out" && trap 'rm -rf "$out"' EXIT
"$tgc" compile models/naive_gpt.lua -q --target cpu -b 16 --block-size 64 --tokenizer char:$text \
        -o "$out/plan" || exit 1
for seed in "${@:-1337}"; do
        "$tgc" train "$out/plan" -q --device cpu -t 1 --data $text --max_iters 1000 \
                --learning_rate 3e-4 --no-decay_lr --warmup_iters 0 --beta2 0.999 \
                --weight_decay 0.01 --grad_clip 0 --eval_interval 500 -s "$seed" \
                --log_csv "$out/loss.csv" -o "$out/run" || exit 1
        mean=$(awk -F, '$1 >= 700 && $1 < 900 { s += $3; n++ } END { print s / n }' "$out/loss.csv")
        if awk "BEGIN { exit !($mean >= 1.98 && $mean <= 2.10) }"; then
                echo "ok naive_cu seed $seed: $mean"
        else
                echo "not ok naive_cu seed $seed: the mean loss of steps 700 to 900 is $mean," \
                        "not 1.98 to 2.10"
                bad=1
        fi
done
"$tgc" run "$out/run" --device cpu -t 1 -q -p "Dorothy" -n 50 -s 1
exit $bad
