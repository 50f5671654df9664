#!/bin/bash
# offload.sh TGC OUT [DEVICE]: five steps with --offload optimizer, activations and both have the
# losses and the weights of five without, bit by bit.
tgc=$1 out=$2 device=${3:-cuda}
for how in none optimizer activations both; do
        rm -rf "$out/offload_$how"
        "$tgc" train models/gpt.lua -D n_layer=2 -D n_embd=64 -D n_head=2 -D ctx=64 -b 4 \
                --block-size 64 --dtype bf16 --data README.md --tokenizer char --max_iters 5 \
                --log_interval 1 --eval_interval 5 --eval_iters 1 --offload $how \
                --device "$device" --out_dir "$out/offload_$how" > "$out/offload_$how.log" 2>&1 ||
                { tail -n 3 "$out/offload_$how.log"; exit 1; }
        cmp "$out/offload_none/ckpt.safetensors" "$out/offload_$how/ckpt.safetensors" || exit 1
        sed -n 's/^iter \([0-9]*: loss [0-9.]*\),.*/\1/p' "$out/offload_$how.log" \
                > "$out/offload_$how.loss"
        cmp "$out/offload_none.loss" "$out/offload_$how.loss" || exit 1
done
[ "$(wc -l < "$out/offload_both.loss")" -ge 5 ] || { tail -n 3 "$out/offload_both.log"; exit 1; }
echo "ok offload"
