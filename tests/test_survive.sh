#!/bin/bash
# test_survive.sh: --keep, --max_time, SIGUSR1, --find_nan.
. "$(dirname "$0")/shell.sh"
start survive
tiny_model tiny.lua
seq 1 300 > text.txt
"$TGC" compile tiny.lua --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip survive: no C compiler"; exit 0; }
here=(--data text.txt --device cpu -t 1 -b 2 --block-size 6 --warmup_iters 0)

kept() {
        local p
        p=$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 10 --eval_interval 2 --keep 3 \
                --out_dir k --learning_rate 0.01 --lr_decay_iters 10)
        [ "$(echo k/ckpt-*)" = "$(echo k/ckpt-{10,6,8}.safetensors)" ] || p="$p$(echo k/ckpt-*)"
        cmp -s k/ckpt-10.safetensors k/ckpt.safetensors || p="$p the last is not ckpt.safetensors"
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 8 --eval_interval 2 \
                --out_dir eight --learning_rate 0.01 --lr_decay_iters 10)
        cmp -s k/ckpt-8.safetensors eight/ckpt.safetensors || p="$p ckpt-8 is not of step 8"
        p=$p$(tgc 0 '' train k --resume --max_iters 12 -q)
        [ "$(echo k/ckpt-*)" = "$(echo k/ckpt-{10,12,8}.safetensors)" ] || p="$p$(echo k/ckpt-*)"
        # those of a longer run that was there go
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 4 --eval_interval 2 --keep 3 \
                --out_dir k)
        [ "$(echo k/ckpt-*)" = "k/ckpt-2.safetensors k/ckpt-4.safetensors" ] ||
                p="$p$(echo k/ckpt-*)"
        echo "$p"
}
say keeps_the_last "$(kept)"
best() { # a rate that is far too high: the first steps are the best
        local p
        p=$(tgc 0 '' train tiny.lua "${here[@]}" --max_iters 8 --eval_interval 2 --keep 1 \
                --out_dir b --learning_rate 3 --grad_clip 0)
        python3 - << 'END' || p="$p $(grep step err)"
import os, re
losses = re.findall(r"step (\d+): train loss \S+, val loss (\S+)", open("err").read())
losses = {int(s): float(x) for s, x in losses if int(s)}
best = min(losses, key=losses.get)
first = float(re.search(r"step 0: .*val loss (\S+)", open("err").read())[1])
there = os.path.exists("b/best.safetensors")
assert there == (losses[best] < first), (losses, first)
END
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 8 --eval_interval 2 --keep 1 \
                --out_dir c --learning_rate 0.05)
        [ -f c/best.safetensors ] || p="$p no best.safetensors"
        echo "$p"
}
say keeps_the_best "$(best)"
adapters() {
        local p
        p=$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 6 --eval_interval 2 --keep 2 \
                --out_dir a --lora r=2,targets=head)
        [ "$(echo a/adapter-[0-9]*/*)" = \
                "$(echo a/adapter-{4,6}/adapter_{config.json,model.safetensors})" ] ||
                p="$p$(echo a/adapter*/*)"
        cmp -s a/adapter-6/adapter_model.safetensors a/adapter/adapter_model.safetensors ||
                p="$p the last is not adapter/"
        echo "$p"
}
say keeps_adapters "$(adapters)"

# Steps go on while the files of a checkpoint are made, and while they go to a slow disk; what
# cannot be written ends the run with its exit code. SLOW: what is slow, once, until three more
# steps are in the log, or so many lines.
slow_disk() { # SLOW STEPS INTERVAL [LINES]
        local p saves
        cat > slow.c << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static volatile int saving; /* between the start of the first save and the steps that went on */
int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
        static int once;
        int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
        saving = !once++;
        return real(t, attr, fn, arg);
}
ssize_t write(int fd, const void *data, size_t n) /* steps write to the log */
{
        ssize_t (*real)(int, const void *, size_t);
        *(void **)&real = dlsym(RTLD_NEXT, "write");
        if (saving && gettid() == getpid())
                usleep(1000);
        return real(fd, data, n);
}
static int lines(void)
{
        int c, n = 0;
        FILE *f = fopen("slow/log.csv", "r");
        while (f && (c = getc(f)) != EOF)
                n += c == '\n';
        return f ? fclose(f), n : 0;
}
static void wait_for_steps(const char *what)
{
        static int once;
        struct stat before, now;
        const char *upto = getenv("LINES_OF_LOG");
        if (!getenv("SLOW") || strcmp(getenv("SLOW"), what) || gettid() == getpid() || once++ ||
            stat("slow/log.csv", &before))
                return;
        for (int ms = 0; ms < 30000; ms++, usleep(1000))
                if (upto ? lines() >= atoi(upto)
                         : !stat("slow/log.csv", &now) && now.st_size > before.st_size + 150) {
                        close(creat("went-on", 0600));
                        break;
                }
        saving = 0;
}
int fsync(int fd)
{
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
        char link[64], path[4096] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const int state = readlink(link, path, sizeof path - 1) > 0 &&
                          strstr(path, ".state.safetensors");
        if (getenv("FULL") && state)
                return errno = ENOSPC, -1;
        wait_for_steps("disk");
        return real(fd);
}
int XXH3_64bits_update(void *x, const void *data, size_t n) /* of the state's checksum */
{
        int (*real)(void *, const void *, size_t);
        *(void **)&real = dlsym(RTLD_NEXT, "XXH3_64bits_update");
        wait_for_steps("files");
        return real(x, data, n);
}
END
        ${CC:-cc} -shared -fPIC -O1 slow.c -o slow.so -ldl || return
        rm -rf slow went-on
        p=$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters $2 --eval_interval $3 \
                --val_fraction 0 --out_dir plain)
        [ $# -lt 4 ] || export LINES_OF_LOG=$4
        SLOW=$1 LD_PRELOAD=$PWD/slow.so "$TGC" train tiny.lua "${here[@]}" --max_iters $2 \
                --eval_interval $3 --val_fraction 0 --out_dir slow 2> err || p="$p$(tail -1 err)"
        [ -e went-on ] || p="$p steps waited: $(tail -2 err)"
        saves="checkpoints: $(($2 / $3)); steps waited [0-9.]+ s for them"
        grep -qE "^$saves, their files took [0-9.]+ s$" err || p="$p $(tail -2 err)"
        cmp -s plain/ckpt.safetensors slow/ckpt.safetensors &&
                cmp -s plain/model.plan slow/model.plan || p="$p other files"
        [ "$(ls slow)" = "$(ls plain)" ] || p="$p $(ls slow)"
        echo "$p"
}
[ "$(ldd "$TGC" | grep -c libasan)" != 0 ] ||
        say steps_do_not_wait_for_the_disk "$(slow_disk disk 1500 500 2>&1)"
[ "$(ldd "$TGC" | grep -c libasan)" != 0 ] ||
        say steps_do_not_wait_for_files_to_be_made "$(slow_disk files 1500 500 2>&1)"
# a save every other step: of the first the disk waits until the sixth step is in the log
[ "$(ldd "$TGC" | grep -c libasan)" != 0 ] ||
        say a_second_save_does_not_wait_for_the_first "$(slow_disk disk 12 2 7 2>&1)"
full_disk() {
        local p
        p=$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 2 --eval_interval 2 \
                --lr_decay_iters 4 --out_dir f)
        cp f/state.safetensors f/ckpt.safetensors .
        FULL=1 LD_PRELOAD=$PWD/slow.so "$TGC" train tiny.lua "${here[@]}" -q --resume \
                --max_iters 2000000 --eval_interval 2 --out_dir f > out 2> err
        [ $? -eq 8 ] && grep -q '^tgc: error: .*state.safetensors: fsync: No space left on device' \
                err || p="$p exit $?: $(tail -2 err)"
        cmp -s f/state.safetensors state.safetensors || p="$p the state is another"
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" -q --resume --max_iters 4 --eval_interval 2 \
                --out_dir f)
        p=$p$(tgc 0 '' train tiny.lua "${here[@]}" -q --max_iters 4 --eval_interval 2 \
                --lr_decay_iters 4 --out_dir g)
        cmp -s f/ckpt.safetensors g/ckpt.safetensors || p="$p another end"
        echo "$p$(find . -name '.*.tgc-*' -o -name '*.next-*')"
}
[ "$(ldd "$TGC" | grep -c libasan)" != 0 ] || say a_full_disk_ends_the_run "$(full_disk 2>&1)"

# What is said before the first step is what the device's allocator gave in the end.
memory() { # DEVICE OPTIONS...
        "$TGC" train tiny.lua --data text.txt -t 1 -b 2 --block-size 6 --warmup_iters 0 \
                --max_iters 3 --eval_interval 3 --device "$1" --json --out_dir mem "${@:2}" > out \
                2> err || tail -2 err
        awk -F '[:,]' -v what="$*" '
                /memory_forecast_bytes/ { f = $2 } /memory_allocated_bytes/ { a = $2 }
                END { if (!(f > 1000 && a >= f && a < 1.05 * f))
                        print what ": forecast " f ", allocated " a }' out
}
say memory_is_as_forecast "$(memory cpu; memory cpu --dtype bf16 --ema 0.9 \
        --gradient_accumulation_steps 3; memory cpu --sample_interval 2 --sample_prompt 1 2> \
        /dev/null
        memory emulate --dtype bf16 --gradient_accumulation_steps 3 -D n_embd=64 --max_iters 2; \
                memory emulate --dtype f16 --max_iters 2)"

timed() {
        local p s
        p=$(tgc 0 '--max_time 2s: stopped after step [0-9]+; go on with' train tiny.lua \
                "${here[@]}" --max_iters 100000000 --eval_interval 100000000 --lr_decay_iters 100 \
                --max_time 2s --out_dir t)
        [ -f t/state.safetensors ] && [ -f t/model.plan ] || p="$p nothing was saved"
        s=$(tail -1 t/log.csv | cut -d, -f1)
        p=$p$(tgc 0 '' train t --resume --max_iters $((s + 3)) -q)
        [ "$(tail -1 t/log.csv | cut -d, -f1)" = $((s + 2)) ] || p="$p it went on wrongly"
        for x in 0 -3 5x 1d nan; do p=$p$(tgc 2 '--max_time .*: give a time' train tiny.lua \
                "${here[@]}" --max_time=$x --out_dir no); done
        echo "$p"
}
say ends_in_time "$(timed)"

asked() {
        local i pid
        "$TGC" train tiny.lua "${here[@]}" --max_iters 100000000 --eval_interval 100000000 \
                --lr_decay_iters 100 --out_dir u 2> err &
        pid=$!
        for ((i = 0; i < 300; i++)); do [ "$({ wc -l < u/log.csv; } 2> /dev/null ||
                echo 0)" -gt 3 ] && break; sleep 0.1; done
        [ ! -f u/state.safetensors ] || echo "saved before it was asked"
        kill -USR1 $pid
        for ((i = 0; i < 300; i++)); do grep -q 'saved, as SIGUSR1 asked' err &&
                break; sleep 0.1; done
        [ -f u/state.safetensors ] && [ -f u/ckpt.safetensors ] ||
                { echo "nothing was saved"; cat err; }
        kill -0 $pid || echo "it ended"
        kill -INT $pid
        wait $pid
        [ $? = 130 ] || echo "exit code"
}
say saves_when_asked "$(asked)"

cat > nan.lua << 'LUA'
local b = require "blocks"
return {
        name = "nan", params = { vocab = 11, ctx = 8, n_embd = 8, how = "mul" },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, { std = 0.5, from = "tok" })
                local big = x:exp() * 1e30
                local y = p.how == "mul" and big * big
                        or p.how == "log" and (x - x):log()
                        or (x - x):sqrt()
                local logits = b.linear(x + y, "logits", p.vocab, { std = 0.02, from = "head" })
                return b.outputs(logits, targets)
        end,
}
LUA
found() {
        local t=(train nan.lua "${here[@]}" -q --no-check --max_iters 3 --out_dir n --find_nan)
        local says='element [0-9]+ is inf, its inputs are [0-9.e+]+ at most'
        tgc 6 "iter 0: .* --find_nan: row 0: %[a-z0-9._]+ = mul\(.*nan.lua:8: $says" "${t[@]}"
        tgc 6 'log\(.*\)  nan.lua:9: element 0 is -inf' "${t[@]}" -D how=log
        tgc 6 'nan.lua:10: element [0-9]+ is -?(inf|nan)' "${t[@]}" -D how=sqrt # its gradient
        tgc 6 'in a row' "${t[@]:0:${#t[@]}-1}"
}
say finds_the_first_nan "$(found)"
exit $failed
