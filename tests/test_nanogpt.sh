#!/bin/bash
# test_nanogpt.sh: training as users of nanoGPT type it: its names, its count of steps, val.bin,
# --eval_only, samples, and a run that goes on by its folder alone.
. "$(dirname "$0")/shell.sh"
start nanogpt

seq 1 600 > text.txt
small=(--n_layer=1 --n_head=2 --n_embd=16 --dropout=0.2 --batch_size=2 --block_size=16 \
        --device=cpu -t 1)
run=(train gpt --data text.txt "${small[@]}" --eval_iters=2 --eval_interval=4 --log_interval=2 \
        --max_iters=8 --warmup_iters=2)
"$TGC" compile gpt -D n_layer=1 -D n_head=2 -D n_embd=16 --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip nanogpt: no C compiler"; exit 0; }

# ---- names ----

p=$(tgc 0 '' dump gpt --n_layer=1 --n_head=2 --n_embd=16 -D tied=False --manifest)
"$TGC" dump gpt -D n_layer=1 -D n_head=2 -D n_embd=16 -D tied=false --manifest > want
[ "$p" ] || cmp -s out want || p="another model"
[ "$p" ] || p=$(tgc 0 '' dump gpt --n-layer=1 --n-head=2 --n-embd=16 -D tied=False --manifest)
[ "$p" ] || cmp -s out want || p="another model with -"
[ "$p" ] || p=$(tgc 2 "the model has no parameter 'bias'" dump gpt --bias=False --manifest)
[ "$p" ] || p=$(tgc 2 'did you mean --max_iters' "${run[@]}" --max_iter=9)
[ "$p" ] || p=$(tgc 2 'did you mean --tuned[?] A parameter of the model is -D tied=False' dump gpt \
        --tied=False --graph)
[ "$p" ] || p=$(tgc 2 'not an option of this command, but of' train gpt --top-k=4)
[ "$p" ] || p=$(tgc 2 'parameter of the model has an equals sign: --n_layer=' train gpt \
        --n_layer 4)
[ "$p" ] || p=$(tgc 2 'x.plan is compiled already' train x.plan --data text.txt --n_layer=4)
say model_keys_are_defines "$p"

p=$(tgc 0 '' dump gpt --n_layer=1 --n_head=2 --n_embd=16 --dtype=bfloat16 --manifest)
[ "$p" ] || grep -q '^dtype bf16$' out || p="--dtype=bfloat16"
[ "$p" ] || p=$(tgc 2 'kernels are always compiled' train gpt --data text.txt --compile=False)
[ "$p" ] || p=$(tgc 2 'it is --resume' train gpt --data text.txt --init_from=resume)
[ "$p" ] || p=$(tgc 2 'nothing is downloaded' train gpt --data text.txt --init_from=gpt2-xl)
say words_of_nanogpt "$p"

# 0 / 0 of parameters without a gradient would be NaN in the checkpoint
p=$(tgc 2 'eps: 0 is too small' "${run[@]}" --eps=0)
[ "$p" ] || p=$(tgc 2 'ema: 1 is outside 0 to 0.9999999$' "${run[@]}" --ema=1)
[ "$p" ] || p=$(tgc 2 'min_lr 0.1: the rate falls to it from --learning_rate, which is 0.0006' \
        "${run[@]}" --min_lr=0.1)
[ "$p" ] || p=$(tgc 2 'cooldown_iters 9: the rate falls in the last of 8 steps .--max_iters' \
        "${run[@]}" --lr_schedule=wsd --lr_cooldown_iters=9)
say rates_that_cannot_be "$p"
p=$(tgc 0 'rises for 9 steps .--warmup_iters., and the run has 8: it ends at 0.000533, and never' \
        "${run[@]/--warmup_iters=2/--warmup_iters=9}" --out_dir=rises)
[ "$p" ] || p=$(tgc 0 'for 100 steps .the default of --warmup_iters., and the run has 8:' \
        "${run[@]/--warmup_iters=2/--weight_decay=0}" --out_dir=rises)
[ "$p" ] || p=$(tgc 0 '' "${run[@]/--warmup_iters=2/--warmup_iters=8}" --out_dir=rises)
[ "$p" ] || ! grep -q 'never reaches' err || p="a warning where the rate is reached: $(cat err)"
say a_warm_up_beyond_the_run "$p"

# as editors of Windows begin a text
{ printf '\xef\xbb\xbf'; cat text.txt; } > mark.txt
p=$(tgc 0 'mark.txt: begins with a byte order mark .U.FEFF., which is left out' \
        "${run[@]/text.txt/mark.txt}" --out_dir=marked)
[ "$p" ] || [ "$(grep -c 'byte order mark' err)" = 1 ] || p="said $(grep -c 'order mark' err) times"
[ "$p" ] || p=$(tgc 0 '' "${run[@]}" --out_dir=unmarked)
[ "$p" ] || cmp -s unmarked/ckpt.safetensors marked/ckpt.safetensors || p="another model"
say a_mark_before_a_text "$p"

# UTF-16 is no text, also of a tokenizer
{ printf '\377\376'; printf 'a\0b\0'; } > wide.txt
p=$(tgc 3 'wide.txt: begins with UTF-16.s byte order mark; only UTF-8 is read' \
        "${run[@]/text.txt/wide.txt}" --out_dir=wide)
[ "$p" ] || p=$(tgc 3 'wide.txt: begins with UTF-16' tokenizer train wide.txt -o wide.json)
[ "$p" ] || p=$(tgc 3 'standard input: begins with UTF-16' tokenizer train - -o wide.json \
        < wide.txt)
say utf_16_is_refused "$p"

# a file without one window is named, also beside others
echo 1 > short.txt
p=$(tgc 3 'short.txt: 2 tokens; a window of 16 and its targets need 17' "${run[@]}" \
        --tokenizer=char:text.txt --data short.txt:3)
[ "$p" ] || p=$(tgc 3 'short.txt: 2 tokens; a window of 16' "${run[@]}" --tokenizer=char:text.txt \
        --val_data=short.txt)
say short_files "$p"

# ---- steps ----

p=$(tgc 0 '' "${run[@]}" --out_dir=whole --log_csv whole.csv)
[ "$p" ] || [ "$(grep -oE '^step [0-9]+: train loss [0-9.]+, val loss|^iter [0-9]+: loss' err |
        tr '\n' ';')" = \
'step 0: train loss '"$(sed -n 's/^step 0: train loss \([0-9.]*\),.*/\1/p' \
err)"', val loss;iter 0: loss;iter 2: loss;step 4: train loss '"$(sed \
-n 's/^step 4: train loss \([0-9.]*\),.*/\1/p' \
err)"', val loss;iter 4: loss;iter 6: loss;iter 7: loss;step 8: train loss '"$(sed \
-n 's/^step 8: train loss \([0-9.]*\),.*/\1/p' err)"', val loss;' ] ||
p="counted otherwise: $(cat err)"
[ "$p" ] || [ "$(grep -c '^[0-7],' whole.csv)" = 8 ] || p="$(cat whole.csv)"
# the log has both validations: of the weights before the first step, and after the last one
for w in '0 -1' '8 7'; do
        want=$(sed -n "s/^step ${w% *}: .*val loss //p" err)
        [ "$p" ] || awk -F, -v at="${w#* }" -v want="$want" \
                '$1 == at && sprintf("%.4f", $6) == want { ok = 1 } END { exit !ok }' whole.csv ||
                p="no row ${w#* } with $want: $(cat whole.csv)"
done
cp err whole.err
[ "$p" ] || p=$(tgc 0 '' plot whole.csv -o whole.svg)
say steps_are_counted_as_nanogpt_counts "$p"

# What --eval_only says of the weights before and after is what training said.
first=$(sed -n 's/^step 0: //p' whole.err) last=$(sed -n 's/^step 8: //p' whole.err)
p=$(tgc 0 "step 0: $first" "${run[@]}" --out_dir=none --eval_only=True)
[ "$p" ] || [ ! -e none ] || p="a folder was made"
[ "$p" ] || p=$(tgc 0 "step 8: $last" train whole --resume --eval_only)
[ "$p" ] || p=$(tgc 0 '' train whole --resume --eval_only --json -q)
[ "$p" ] || grep -q '"val_loss_nats_per_token":' out || p="$(cat out)"
say eval_only_validates_and_ends "$p"

# ---- going on ----

go_on() {
        local p f
        p=$(tgc 0 '' "${run[@]}" --out_dir=cut --log_csv cut.csv --max_iters=4 --lr_decay_iters=8)
        mkdir elsewhere && cd elsewhere || return
        [ "$p" ] || p=$(tgc 0 '--max_iters 8: the run before had 4' train ../cut --resume \
                --max_iters 8)
        cd ..
        for f in cut/state.safetensors cut/ckpt.safetensors cut/model.plan cut.csv; do
                [ "$p" ] || cmp -s $f ${f/cut/whole} || p="$f is another"
        done
        [ "$p" ] || p=$(tgc 0 'has 8 steps already' train cut --resume)
        [ "$p" ] || p=$(tgc 2 'stays in' train cut --resume --out_dir other)
        mv text.txt moved.txt
        [ "$p" ] || p=$(tgc 8 'text.txt: no such file' train cut --resume)
        mv moved.txt text.txt
        # what is no log is not written to
        sed -i "s#^log_csv .*#log_csv $PWD/text.txt#" cut/run.txt
        [ "$p" ] || p=$(tgc 0 '' train cut --resume --max_iters 9)
        [ "$p" ] || seq 1 600 | cmp -s - text.txt || p="the text was written to"
        rm cut/run.txt
        [ "$p" ] || p=$(tgc 2 'cut: there is no run.txt' train cut --resume)
        echo "$p"
}
say a_folder_goes_on_alone "$(go_on)"

# ---- val.bin ----

bin() { awk 'BEGIN { for (i = 0; i < '"$1"'; i++) printf "%c%c", 1 + (i * '"$2"') % 60, 0 }' \
        /dev/null; }
val() {
        local p a b
        mkdir data && bin 300 7 > data/train.bin && bin 99 11 > data/val.bin
        local here=("${run[@]/#text.txt/data/train.bin}" --vocab=64)
        # awk writes no zeros everywhere: the size says whether it did
        [ "$(wc -c < data/val.bin)" = 198 ] ||
                { perl -e 'print pack("v*", map { 1 + $_ * 7 % 60 } 0..299)' > data/train.bin
                perl -e 'print pack("v*", map { 1 + $_ * 11 % 60 } 0..98)' > data/val.bin; }
        p=$(tgc 0 'data/val.bin: 99 tokens to validate on' "${here[@]}" --out_dir=bin)
        a=$(sed -n 's/^step 0: //p' err)
        [ "$p" ] || p=$(tgc 0 '' train bin --resume --max_iters 9)
        head -c 100 data/val.bin > v && mv v data/val.bin
        [ "$p" ] || p=$(tgc 3 'other tokens of data' train bin --resume --max_iters 10)
        [ "$p" ] || p=$(tgc 0 '' "${here[@]}" --eval_only)
        b=$(sed -n 's/^step 0: //p' err)
        [ "$p" ] || [ "$a" != "$b" ] || p="another val.bin has the same loss"
        [ "$p" ] || [ "${a%,*}" = "${b%,*}" ] || p="the training loss depends on val.bin: $a; $b"
        echo "$p"
}
say val_bin_is_the_validation_set "$(val)"

# ---- samples ----

samples() {
        local p f
        p=$(tgc 0 '' "${run[@]}" --out_dir=said --log_csv said.csv --sample_interval=4 \
                --sample_prompt 12 --sample_prompt $'3\n4' --sample_tokens 5)
        [ "$p" ] || [ "$(grep -cE '^step (4|8): sample: 12' err)" = 2 ] ||
                p="not two of the first: $(cat err)"
        [ "$p" ] || [ "$(grep -cE '^step (4|8): sample: 3$' err)" = 2 ] ||
                p="not two of the second: $(cat err)"
        # dropout goes on as it was
        for f in said/state.safetensors said/ckpt.safetensors said.csv; do
                [ "$p" ] || cmp -s $f ${f/said/whole} || p="$f is another with samples"
        done
        [ "$p" ] || p=$(tgc 0 '^step 12: sample: 3$' train said --resume --max_iters 12)
        [ "$p" ] || p=$(tgc 2 'has no tokenizer' "${run[@]/#text.txt/data/train.bin}" --vocab=64 \
                --sample_interval=4)
        echo "$p"
}
say samples_change_nothing "$(samples)"

exit $failed
