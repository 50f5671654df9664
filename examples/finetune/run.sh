#!/bin/sh
# run.sh: the loss before, some steps, the loss after.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
model=${MODEL:-$here/../../tests/data/models/story}
text=${TEXT:-$here/text.txt}
"$tgc" eval "$model" --data "$text"
"$tgc" train "$model" --data "$text" --max_iters 40 --batch_size 8 --block_size 64 \
        --learning_rate 3e-3 --warmup_iters 5 --val_fraction 0 --out_dir "$out/out"
"$tgc" eval "$out/out" --data "$text"
"$tgc" run "$out/out" -p "Rain in the" -n 40 --temp 0
"$tgc" export "$out/out" -o "$out/weights"
