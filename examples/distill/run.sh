#!/bin/sh
# run.sh: a small model learns a larger one's distribution; the loss and the KL between both fall.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
teacher=${TEACHER:-$here/../../tests/data/models/story}
text=${TEXT:-$here/../finetune/text.txt}
"$tgc" train "$here/student.lua" --tokenizer "$teacher/tokenizer.json" --data "$text" \
        --objective distill,temperature=2,alpha=0.7 --reference "$teacher" --batch_size 4 \
        --block_size 32 --max_iters 60 --learning_rate 1e-2 --warmup_iters 5 --val_fraction 0 \
        --log_interval 20 --out_dir "$out/out"
echo "KL of the first step and of the last:"
sed -n '2p;$p' "$out/out/log.csv" | cut -d, -f4
