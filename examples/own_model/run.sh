#!/bin/sh
# run.sh: check the model, look at it, train it, let it speak.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
text=${TEXT:-$here/../../tests/data/text/stories.txt}
"$tgc" check "$here/model.lua"
"$tgc" dump "$here/model.lua" --fused --mode infer | grep '^kernel'
"$tgc" train "$here/model.lua" --data "$text" --max_iters 60 --batch_size 8 --learning_rate 3e-3 \
        --warmup_iters 10 --eval_interval 30 --eval_iters 2 --out_dir "$out/out"
"$tgc" run "$out/out" -p "Once" -n 60 -s 1
