#!/bin/bash
# test_kill.sh: training that is killed before each of its calls that change a file. Whenever that
# was, what is resumed and what is exported are of one step, and the resumed run ends with the bytes
# of one that nobody killed. Then: what signals and killed processes leave beside the files that
# commands write.
. "$(dirname "$0")/shell.sh"
src=$(readlink -f tests/fault.c)
start kill

temps() { find . -name '.*.tgc-*' -o -name '.*.tmp-*' -o -name '*.next-*'; }

tiny_model tiny.lua
seq 1 300 > text.txt
"$TGC" compile tiny.lua -b 2 --tokenizer char:text.txt -q -o tiny.plan ||
        { echo "not ok set_up"; exit 1; }
if ! ${CC:-cc} -shared -fPIC -O1 "$src" -o fault.so -ldl 2> err || ldd "$TGC" |
        grep -q libasan; then
        echo "skip killed_at_every_call: no C compiler, or sanitizers"
        exit 0
fi

# ---- killed at every call ----

train=(--data text.txt --device cpu -t 1 -q --eval_interval 2 --eval_iters 1 --lr_decay_iters 4 \
        --warmup_iters 1 --learning_rate 0.01)
weights() { "$TGC" compile tiny.lua -b 2 --tokenizer char:text.txt --weights "$1" -q -o w.plan &&
        sha256sum < w.plan; }
step_of() { head -c 8000 "$1/state.safetensors" | grep -aoE '"step":"[0-9]*"' | tr -dc 0-9; }

# every_call NAME PLAN OPTIONS...: from a run of two steps to one of four
every_call() {
        local plan=$2 n rc f want at tries=0 extra=("${@:3}")
        rm -rf base whole
        "$TGC" train tiny.plan "${train[@]}" --max_iters 2 --out_dir base --log_csv base.csv \
                "${extra[@]}" || { echo "base fails"; return; }
        mkdir whole && cp base/* whole && cp base.csv whole.csv
        local two=$(weights base) go=("${train[@]}" --max_iters 4 --resume "${extra[@]}")
        "$TGC" train "${plan/OUT/whole}" "${go[@]}" --out_dir whole --log_csv whole.csv ||
                { echo "whole fails"; return; }
        local four=$(weights whole)
        [ "$two" != "$four" ] || { echo "steps 2 and 4 have the same weights"; return; }
        for ((n = 1; n < 200; n++)); do
                rm -rf out && mkdir out && cp base/* out && cp base.csv out.csv
                KILL_AT=$n LD_PRELOAD=$PWD/fault.so "$TGC" train "${plan/OUT/out}" "${go[@]}" \
                        --out_dir out --log_csv out.csv > /dev/null 2>&1
                rc=$?
                if [ $rc -ne 137 ] && [ $rc -ne 0 ]; then echo "call $n: exit $rc"; return; fi
                at=$(step_of out)
                want=$two
                [ "$at" = 4 ] && want=$four
                [ "$(weights out)" = "$want" ] ||
                        { echo "killed at call $n: the state is of step $at, the weights are not"; \
                                return; }
                [ $rc -eq 0 ] && break
                [ -e out/model.plan ] || compgen -G 'out/model.plan.next*' > /dev/null ||
                        [ "$plan" = tiny.plan ] || {
                        echo "killed at call $n: model.plan, which was trained, is lost"; return; }
                tries=$((tries + 1))
                "$TGC" train "${plan/OUT/out}" "${go[@]}" --out_dir out --log_csv out.csv 2> err ||
                        {
                        echo "killed at call $n: not resumed: $(head -c 300 err)"; return; }
                for f in state.safetensors ckpt.safetensors model.plan; do
                        cmp -s out/$f whole/$f || { echo "killed at call $n: $f is another"; \
                                return; }
                done
                cmp -s out.csv whole.csv || { echo "killed at call $n: the log is another: $(diff \
                        out.csv whole.csv | head -3)"; return; }
                [ -z "$(temps)" ] || { echo "killed at call $n: files stay: $(temps)"; return; }
        done
        [ $tries -ge 15 ] || echo "only $tries calls before the end"
}
say killed_at_every_call "$(every_call always tiny.plan)"
say killed_with_the_best_weights_alone "$(every_call best tiny.plan --no-always_save_checkpoint)"
say killed_while_a_plan_is_trained_in_place "$(every_call place OUT/model.plan)"

# ---- the folder belongs to one run, the state is whole ----

in_use() {
        local rc pid i
        rm -rf out
        "$TGC" train tiny.plan "${train[@]}" --max_iters 100000000 --out_dir out > /dev/null 2>&1 &
        pid=$!
        for ((i = 0; i < 500; i++)); do [ -e out/state.safetensors ] && break; sleep 0.02; done
        for o in "" --resume; do
                "$TGC" train tiny.plan "${train[@]}" --max_iters 4 --out_dir out $o 2> err
                rc=$?
                [ $rc -eq 2 ] && grep -q "out is in use by another run, process $pid" err ||
                        echo "exit $rc: $(cat err)"
        done
        kill -9 $pid
        wait $pid 2> /dev/null
        "$TGC" train tiny.plan "${train[@]}" --max_iters 4 --out_dir out 2> err ||
                echo "a stale lock stops it: $(cat err)"
}
say a_folder_in_use_is_refused "$(in_use 2> /dev/null)"

damaged() {
        local at size rc
        size=$(stat -c %s base/state.safetensors)
        for at in 300 $((size / 2)) $((size - 3)); do
                rm -rf out && cp -r base out
                printf '\x01' | dd of=out/state.safetensors bs=1 seek="$at" conv=notrunc 2> \
                        /dev/null
                "$TGC" train tiny.plan "${train[@]}" --max_iters 4 --out_dir out --resume 2> err
                rc=$?
                [ $rc -eq 3 ] && grep -q 'state.safetensors' err ||
                        echo "a byte at $at: exit $rc: $(cat err)"
        done
}
say a_damaged_state_is_refused "$(damaged)"

# ---- what is left beside what is written ----

# A stop before each call shows every moment; a signal then ends the process.
signals() {     # COMMAND...
        local s n rc
        for s in "INT 130" "TERM 143" "HUP 129"; do
                for n in 1 2 3 4 5; do
                        KILL_AT=$n KILL_WITH=${s% *} LD_PRELOAD=$PWD/fault.so "$TGC" "$@" > \
                                /dev/null 2> err
                        rc=$?
                        [ $rc -eq "${s#* }" ] || [ $rc -eq 0 ] ||
                                echo "$1: SIG${s% *} at call $n: exit $rc: $(head -c 200 err)"
                        [ -z "$(temps)" ] || { echo "$1: SIG${s% *} at call $n leaves $(temps)"; \
                                return; }
                done
        done
}
say signals_leave_nothing "$(signals compile tiny.lua -q -o s.plan; signals export base -o hf \
        -q; signals eval base --data text.txt --logits l.npy --device cpu)"

swept() {
        local n
        for n in 2 3; do        # the file is there, some of it is written
                KILL_AT=$n LD_PRELOAD=$PWD/fault.so "$TGC" compile tiny.lua -q -o s.plan > \
                        /dev/null 2>&1
        done
        [ -n "$(temps)" ] || echo "nothing was left to sweep"
        # not tgc's, of a process that lives, not tgc's
        touch .notes.tgc-1-1.txt .s.plan.tgc-$$-1 .tgc-x-1
        "$TGC" compile tiny.lua -q -o other.plan || echo "does not compile"
        [ "$(temps | sort | tr '\n' ' ')" = "./.notes.tgc-1-1.txt ./.s.plan.tgc-$$-1 " ] ||
                echo "there are $(temps)"
        rm -f .notes* .s.plan* .tgc-x-1
}
say what_killed_runs_left_is_swept "$(swept 2> /dev/null)"

exit $failed
