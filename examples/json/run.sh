#!/bin/sh
# run.sh: a graph by a program, checked and trained.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
text=${TEXT:-$here/../../tests/data/text/stories.txt}
python3 "$here/make_graph.py" 2 > "$out/graph.json"
"$tgc" check "$out/graph.json"
"$tgc" train "$out/graph.json" --data "$text" --max_iters 40 --batch_size 8 --learning_rate 3e-3 \
        --eval_interval 40 --eval_iters 2 --out_dir "$out/out"
"$tgc" run "$out/out" -p "Once" -n 30 -s 1
