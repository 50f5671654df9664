#!/bin/sh
# run.sh: how likely happy and sad endings are, before and after a few steps of DPO on an adapter.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
model=${MODEL:-$here/../../tests/data/models/story}
pairs=${PAIRS:-$here/pairs.jsonl}
"$tgc" train "$model" --data "$pairs" --template none --objective dpo,beta=0.1 --lora r=8 \
        --batch_size 2 --block_size 64 --max_iters 24 --learning_rate 2e-3 --log_interval 8 \
        --warmup_iters 0 --val_fraction 0 --out_dir "$out/out"
cat > "$out/ends.jsonl" <<'END'
{"prompt": "The little dog was", "continuation": " so happy."}
{"prompt": "The little dog was", "continuation": " so sad."}
END
echo "a happy and a sad ending, before"
"$tgc" eval "$model" --continuations "$out/ends.jsonl"
echo "and after"
"$tgc" eval "$model" --lora "$out/out/adapter" --continuations "$out/ends.jsonl"
