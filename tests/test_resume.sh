#!/bin/bash
# test_resume.sh: --resume takes the settings of the run from its state; what is given again and
# differs is said where it may change, and refused by name, with both values, where the run would be
# another one.
. "$(dirname "$0")/shell.sh"
start resume

tiny_model tiny.lua
seq 1 300 > text.txt
"$TGC" compile tiny.lua --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip resume: no C compiler"; exit 0; }

loud=(--data text.txt --device cpu -t 1)
here=("${loud[@]}" -q)
of_run=(-D n_embd=16 --dtype bf16 -O1 -b 3 --block-size 6 --seed 7 --val_fraction 0.2 \
        --learning_rate 0.01 --min_lr 0.002 --warmup_iters 3
        --lr_decay_iters 8 --weight_decay 0.2 --beta1 0.8 --beta2 0.9 --eps 1e-7 --grad_clip 0.7 \
                --eval_interval 2 --eval_iters 3
        --gradient_accumulation_steps 2 --no-always_save_checkpoint)

# Every setting comes from the state: the rest of the run is what it would have been.
same_run() {
        local p f
        p=$(tgc 0 '' train tiny.lua "${here[@]}" "${of_run[@]}" --max_iters 8 --out_dir whole \
                --log_csv whole.csv)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" "${of_run[@]}" --max_iters 4 \
                --out_dir cut --log_csv cut.csv)
        cp -r cut four
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --resume --max_iters 8 \
                --out_dir cut --log_csv cut.csv)
        for f in cut.csv cut/state.safetensors cut/ckpt.safetensors cut/model.plan; do
                [ -n "$p" ] || cmp -s $f ${f/cut/whole} ||
                        p="$f is another: $(diff cut.csv whole.csv | head -3)"
        done
        # finished, as the state says: nothing to do, with no option at all
        [ -z "$p" ] && p=$(tgc 0 'has 8 steps already, --max_iters is 8' train tiny.lua \
                --data text.txt --device cpu --resume --out_dir cut)
        echo "$p"
}
say settings_come_from_the_state "$(same_run)"

# The states of every optimiser are saved; what a plan trains with is its own.
optimisers() {
        local p= o model rule=(--max_iters 6 --lr_decay_iters 6 --eval_iters 1 --eval_interval 3 \
                --lr_schedule wsd --lr_cooldown_iters 2)
        for o in $(optimizers "$TGC" | grep -vx adamw); do
                model=(tiny.lua)
                # hidden matrices, for Muon
                [ $o = muon ] && model=(gpt -D n_layer=1 -D n_head=2 -D n_embd=16 -D vocab=11 \
                        -D ctx=8)
                [ -z "$p" ] && p=$(tgc 0 '' train "${model[@]}" "${here[@]}" "${rule[@]}" \
                        --optimizer $o --out_dir $o)
                [ -z "$p" ] && p=$(tgc 0 '' train "${model[@]}" "${here[@]}" "${rule[@]}" \
                        --optimizer $o --max_iters 3 --out_dir cut-$o)
                [ -z "$p" ] && p=$(tgc 2 "--optimizer adamw: the run before had --optimizer $o" \
                        train "${model[@]}" "${here[@]}" --resume --max_iters 6 --out_dir cut-$o \
                        --optimizer adamw)
                [ -z "$p" ] && p=$(tgc 0 '' train "${model[@]}" "${here[@]}" --resume \
                        --max_iters 6 --out_dir cut-$o)
                [ -n "$p" ] || cmp -s $o/state.safetensors cut-$o/state.safetensors ||
                        p="$o: another state"
        done
        [ -z "$p" ] && [ -z "$o" ] && p="no optimiser"
        [ -z "$p" ] && p=$(tgc 2 '--beta2 has no effect: SGD has none' train tiny.lua "${here[@]}" \
                --optimizer sgd --beta2 0.9 --out_dir no)
        echo "$p"
}
say every_optimiser_goes_on "$(optimisers)"

# Steps of large gradients are left out; the mean that they are compared with is in the state.
spikes() {
        local p rule=(--max_iters 40 --eval_iters 1 --eval_interval 20 --no-decay_lr \
                --skip_spikes 1.1)
        p=$(tgc 0 'gradient norm above 1.1 times its mean [0-9.]+: step skipped' train tiny.lua \
                "${loud[@]}" "${rule[@]}" --out_dir spikes)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" "${rule[@]}" --max_iters 29 \
                --out_dir cut-spikes)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --resume --max_iters 40 \
                --out_dir cut-spikes)
        [ -n "$p" ] || cmp -s spikes/model.plan cut-spikes/model.plan || p="other weights"
        [ -z "$p" ] && p=$(tgc 2 '--skip_spikes 1: give a number above 1' train tiny.lua \
                "${here[@]}" --skip_spikes 1 --out_dir no)
        echo "$p"
}
say spikes_are_skipped "$(spikes)"

# The scale of the loss in f16: it doubles each step here, so that gradients overflow and steps are
# left out.
loss_scale() {
        local p rule=(--dtype f16 --max_iters 24 --lr_decay_iters 24 --eval_iters 1 \
                --eval_interval 12 --loss_scale_window 1)
        p=$(tgc 0 'gradients beyond f16, step skipped' train tiny.lua "${loud[@]}" "${rule[@]}" \
                --out_dir f16)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" "${rule[@]}" --max_iters 17 \
                --out_dir cut-f16)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --resume --max_iters 24 \
                --out_dir cut-f16)
        [ -n "$p" ] || cmp -s f16/state.safetensors cut-f16/state.safetensors || p="another state"
        [ -z "$p" ] && p=$(tgc 6 'not finite' train tiny.lua "${here[@]}" "${rule[@]:0:8}" \
                --loss_scale 1e30 --max_iters 24 --out_dir no)
        why='--loss_scale has no effect: it is for --dtype f16, and this plan is bf16'
        [ -z "$p" ] && p=$(tgc 2 "$why" train tiny.lua "${here[@]}" --dtype bf16 \
                --loss_scale 8 --out_dir no)
        echo "$p"
}
# Weights of 16 bits alone: the same bits after a resume, rounding by chance included.
masters() {
        local p= m rule=(--dtype bf16 --max_iters 8 --lr_decay_iters 8 --eval_iters 1 \
                --eval_interval 4 --learning_rate 0.01)
        for m in none stochastic; do
                [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" "${rule[@]}" --masters $m \
                        --out_dir $m)
                [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" "${rule[@]}" --masters $m \
                        --max_iters 4 --out_dir cut-$m)
                [ -z "$p" ] && p=$(tgc 2 "--masters f32: the run before had --masters $m" train \
                        tiny.lua "${here[@]}" --resume --max_iters 8 --out_dir cut-$m --masters f32)
                [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --resume --max_iters 8 \
                        --out_dir cut-$m)
                [ -n "$p" ] || cmp -s $m/state.safetensors cut-$m/state.safetensors ||
                        p="$m: another state"
        done
        [ -z "$p" ] && cmp -s none/ckpt.safetensors stochastic/ckpt.safetensors &&
                p="both round alike"
        echo "$p"
}
say weights_without_masters_go_on "$(masters)"
say the_scale_of_f16_goes_on "$(loss_scale)"

refused() {
        local o p
        while read -r o; do
                p=$(tgc 2 "--${o%%|*}: the run before had --${o##*|}" train tiny.lua "${here[@]}" \
                        --resume --max_iters 8 --out_dir four --${o%%|*})
                [ -z "$p" ] || { echo "$p"; return; }
        done <<'LIST'
dtype f32|dtype bf16
optimize 3|optimize 1
val_fraction 0.1|val_fraction 0.2
seed 8|seed 7
batch-size 2|batch-size 3
block-size 5|block-size 6
ctx-size 7|ctx-size 0
gradient_accumulation_steps 1|gradient_accumulation_steps 2
LIST
        p=$(tgc 3 'trained another model than tiny.lua' train tiny.lua "${here[@]}" --resume \
                --out_dir four -D n_embd=8)
        # a plan has settings of its own
        "$TGC" compile tiny.lua -D n_embd=16 -b 3 --block-size 6 -O1 --tokenizer char:text.txt -q \
                -o f32.plan
        "$TGC" compile tiny.lua -D n_embd=16 -b 3 --block-size 6 --dtype bf16 \
                --tokenizer char:text.txt -q -o o3.plan
        [ -z "$p" ] && p=$(tgc 2 '--dtype f32: the run before had --dtype bf16' train f32.plan \
                "${here[@]}" --resume --out_dir four)
        [ -z "$p" ] && p=$(tgc 2 '--optimize 3: the run before had --optimize 1' train o3.plan \
                "${here[@]}" --resume --out_dir four)
        [ -z "$p" ] && p=$(tgc 0 '' train tiny.lua "${here[@]}" --max_iters 2 --out_dir plain)
        [ -z "$p" ] && p=$(tgc 2 '--tf32 1: the run before had --tf32 0' train tiny.lua \
                "${here[@]}" --resume --out_dir plain --tf32)
        { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' \
                "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 1, 8), }"; head -c 192 \
                /dev/zero; } > o.npy
        [ -z "$p" ] && p=$(tgc 2 '--batch_offsets: the run before had none' train tiny.lua \
                "${here[@]}" --resume --out_dir plain --max_iters 3 --batch_offsets o.npy)
        echo "$p"
}
say another_run_is_refused_by_name "$(refused)"

# Tiles that were measured are the run's: a plan with others, or with none, would give other bits.
tuned() {
        local p of=(-D n_embd=16 --dtype bf16 -b 3 --block-size 6 --tokenizer char:text.txt -q)
        printf 'tgc-choices 1\ngpu Some GPU\nchoose bf16:<=8x11x16:nt:store:4 W64x64x64/1\n' > \
                choices.txt
        "$TGC" compile tiny.lua "${of[@]}" -o untuned.plan
        "$TGC" compile tiny.lua "${of[@]}" --tuned choices.txt -o tuned.plan
        p=$(tgc 0 '' train tuned.plan "${here[@]}" --max_iters 2 --out_dir tuned)
        [ -z "$p" ] && p=$(tgc 2 '--tuned: the run before had other ones' train untuned.plan \
                "${here[@]}" --resume --max_iters 3 --out_dir tuned)
        [ -z "$p" ] && p=$(tgc 0 '' train tuned.plan "${here[@]}" --resume --max_iters 3 \
                --out_dir tuned)
        [ -z "$p" ] && p=$(tgc 0 '' train untuned.plan "${here[@]}" --max_iters 2 --out_dir untuned)
        [ -z "$p" ] && p=$(tgc 2 '--tuned: the run before had none' train tuned.plan "${here[@]}" \
                --resume --max_iters 3 --out_dir untuned)
        echo "$p"
}
say tuned_tiles_are_the_run_s "$(tuned)"

overridden() {
        local p
        cp -r four over
        p=$(tgc 0 '--learning_rate 0.02: the run before had 0.01' train tiny.lua "${loud[@]}" \
                --resume --max_iters 8 --out_dir over --learning_rate 0.02 --grad_clip 0.7 \
                --log_csv over.csv)
        [ -z "$p" ] && ! grep -Fq -- '--max_iters 8: the run before had 4' err &&
                p="no word about --max_iters: $(cat err)"
        [ -z "$p" ] && grep -q -- '--grad_clip' err && p="--grad_clip is what it was: $(cat err)"
        # the rate of step 4 is of the new highest and the old lowest
        [ -z "$p" ] && [ "$(sed -n 's/^4,\([0-9.e-]*\),.*/\1/p' over.csv)" != 0.0182811529 ] &&
                p="lr is $(sed -n 2p over.csv)"
        cp -r four longer
        [ -z "$p" ] && p=$(tgc 0 "the run's schedule stays: from step 8 on" train tiny.lua \
                "${loud[@]}" --resume --max_iters 9 --out_dir longer)
        echo "$p"
}
say what_is_given_again_is_said "$(overridden)"

# What is said of the run is so; the adapter that a resumed run writes is the one it would be.
words() {
        local of=("${here[@]}" --lora r=2 --block-size 16 --max_iters 2 --warmup_iters 9)
        tgc 8 'nowhere: no such folder, so there is nothing to resume' train nowhere --resume
        cp -r "$top"/tests/data/models/story m
        tgc 0 '' train m "${of[@]}" --max_iters 1 --out_dir cut-lora
        tgc 2 'cut-lora/run.txt says what the run in it learns from' train cut-lora --resume \
                --data text.txt
        tgc 3 'other tokens of data than .*, or another --val_data' train cut-lora --resume \
                --val_data text.txt
        tgc 0 'steps 1 to 1' train cut-lora --resume --eval_only
        grep -q 'memory: 0 B' err && grep memory err
        tgc 0 '' train m "${of[@]}" --out_dir whole-lora --lr_decay_iters 1
        tgc 0 '' train cut-lora --resume --max_iters 2
        grep schedule err                               # it warms up until step 9
        diff -r whole-lora/adapter cut-lora/adapter
        sed -i '/^called/d' cut-lora/run.txt            # as older ones are
        tgc 0 '' train cut-lora --resume --max_iters 3 -q
        grep -q "\"base_model_name_or_path\".*\"$PWD/m\"" cut-lora/adapter/adapter_config.json ||
                cat cut-lora/adapter/adapter_config.json
}
say what_is_said_of_a_run "$(words 2>&1)"

exit $failed
