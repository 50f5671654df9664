#!/bin/bash
# test_ema.sh: --ema keeps an average of the weights beside them: the weights learn as without it,
# the average is what validates and what is left where --ema_use says so, and a resumed run has the
# same bytes.
. "$(dirname "$0")/shell.sh"
start ema

tiny_model tiny.lua
seq 1 300 > text.txt
"$TGC" compile tiny.lua --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip ema: no C compiler"; exit 0; }
here=(--data text.txt -q -t 1 --warmup_iters 0 --learning_rate 0.05 --eval_interval 3 \
        --eval_iters 2 --lr_decay_iters 6)

# The weights do not see the average, on any device; validation sees it alone.
beside() { # DEVICE DTYPE STEPS
        local p at=("${here[@]}" --device "$1" --dtype "$2") d=$1-$2
        p=$(tgc 0 '' train tiny.lua "${at[@]}" --max_iters "$3" --out_dir "$d")
        [ "$p" ] || p=$(tgc 0 '' train tiny.lua "${at[@]}" --max_iters "$3" --ema 0.7 \
                --ema_use eval --out_dir "$d-eval")
        [ "$p" ] || p=$(tgc 0 '' train tiny.lua "${at[@]}" --max_iters "$3" --ema 0.7 \
                --ema_use export --out_dir "$d-export")
        [ "$p" ] && { echo "$p"; return; }
        cmp -s "$d/ckpt.safetensors" "$d-eval/ckpt.safetensors" || echo "the weights are others"
        cmp -s "$d/model.plan" "$d-export/model.plan" &&
                echo "--ema_use export: the plan has the weights"
        cmp -s "$d/ckpt.safetensors" "$d-export/ckpt.safetensors" &&
                echo "--ema_use export: the checkpoint has the weights"
        column() { cut -d, -f "$1" "$2/log.csv" | tail -n +2; }
        [ "$(column 3 "$d")" = "$(column 3 "$d-eval")" ] || echo "other training losses"
        [ "$(grep -o '"val_loss":[^,}]*' "$d/log.jsonl")" = "$(grep -o '"val_loss":[^,}]*' \
                "$d-export/log.jsonl")" ] || echo "--ema_use export: other validation"
        [ "$(grep -o '"val_loss":[^,}]*' "$d/log.jsonl")" = "$(grep -o '"val_loss":[^,}]*' \
                "$d-eval/log.jsonl")" ] && echo "--ema_use eval: the same validation"
}
say beside_the_weights_f32 "$(beside cpu f32 6 2>&1)"
say beside_the_weights_bf16 "$(beside cpu bf16 6 2>&1)"
say beside_the_weights_f16 "$(beside cpu f16 6 2>&1)"
say on_a_gpu_in_halves "$(beside emulate bf16 3 2>&1)"
say on_a_gpu_f16 "$(beside emulate f16 3 2>&1)"

resumed() { # DTYPE
        local p f at=("${here[@]}" --device cpu --dtype "$1" --ema 0.7)
        p=$(tgc 0 '' train tiny.lua "${at[@]}" --max_iters 6 --out_dir "whole-$1")
        [ "$p" ] || p=$(tgc 0 '' train tiny.lua "${at[@]}" --max_iters 4 --out_dir "cut-$1")
        [ "$p" ] || p=$(tgc 0 '' train tiny.lua --data text.txt -q -t 1 --device cpu --resume \
                --max_iters 6 --out_dir "cut-$1")
        for f in state.safetensors ckpt.safetensors model.plan; do
                [ "$p" ] || cmp -s "whole-$1/$f" "cut-$1/$f" || p="$f is another"
        done
        echo "$p"
}
say resumes_f32 "$(resumed f32)"
say resumes_bf16 "$(resumed bf16)"

adapter() {
        local p at=("${here[@]}" --device cpu --lora r=2,targets=head --max_iters 6)
        p=$(tgc 0 '' train tiny.lua "${at[@]}" --out_dir lora)
        [ "$p" ] || p=$(tgc 0 '' train tiny.lua "${at[@]}" --ema 0.7 --out_dir lora-ema)
        [ "$p" ] || ! cmp -s lora/adapter/adapter_model.safetensors \
                lora-ema/adapter/adapter_model.safetensors || p="the adapter is not the average"
        [ "$p" ] || p=$(tgc 0 '' run lora-ema --device cpu --prompt-ids 1,2 -n 2)
        echo "$p"
}
say adapters "$(adapter)"

refused() {
        tgc 2 '--ema averages float32 weights, and --masters none keeps none of bf16' train \
                tiny.lua "${here[@]}" --dtype bf16 --masters none --ema 0.9 --out_dir no
        tgc 2 '--ema_use has no effect: it goes with --ema' train tiny.lua "${here[@]}" \
                --ema_use eval --out_dir no
        "$TGC" compile tiny.lua --mode train --block-size 8 -b 8 -q -o train.plan
        tgc 2 '--ema has no effect: train.plan keeps no average' train train.plan "${here[@]}" \
                --device cpu --ema 0.9 --out_dir no
        tgc 2 '--ema: the run in .* kept no average' train tiny.lua "${here[@]}" --device cpu \
                --resume --max_iters 8 --ema 0.9 --out_dir cpu-f32
        [ -e no/state.safetensors ] && echo "something was written"
}
say refused_by_name "$(refused 2>&1)"
exit $failed
