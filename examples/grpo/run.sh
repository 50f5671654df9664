#!/bin/sh
# run.sh: a model that is rewarded for the letter a: its score rises, and a sample shows it.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
model=${MODEL:-$here/../../tests/data/models/story}
"$tgc" train "$model" --data "$here/prompts.jsonl" --template none \
        --objective "$here/letters.lua,samples=8,max_tokens=12" --lora r=8 --batch_size 2 \
        --block_size 208 --max_iters 24 --learning_rate 5e-3 --no-decay_lr --warmup_iters 0 \
        --log_interval 10 --out_dir "$out/out"
"$tgc" run "$model" -p "Once upon a time" -n 24 --seed 1
"$tgc" run "$out/out" -p "Once upon a time" -n 24 --seed 1
