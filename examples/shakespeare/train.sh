#!/bin/sh
# train.sh TEXT [OUT_DIR]: the weights of this folder, from tinyshakespeare's input.txt.
set -e
here=$(dirname "$0")
tgc=${TGC:-$here/../../build/tgc}
out=${2:-out-shakespeare}
"$tgc" train "$here/../../models/gpt.lua" -D n_layer=4 -D n_head=4 -D n_embd=128 -D ctx=256 \
        -D dropout=0.1 --data "$1" --batch_size 64 --block_size 256 --max_iters 6000 \
        --learning_rate 2e-3 --min_lr 1e-4 --warmup_iters 100 --beta2 0.99 --eval_interval 500 \
        --eval_iters 40 --no-always_save_checkpoint --out_dir "$out"
"$tgc" export "$out" -o "$out/hf" --dtype bf16 --config "$here/config.json"
