#!/bin/bash
# test_faults.sh: every command, again and again, each time with another allocation or another
# system call that fails (fault.c). Memory: the command does its work all the same, or exits with 5
# and says how much was asked for. System calls: it does its work, or exits with the code of its
# kind (8 files, 4 the compiler, 5 memory) and says what failed; a call that was only interrupted or
# came back short is made again. Never a signal, never half an output, never files left beside. Here
# a few of each command; TGC_LONG=1: one of each place in the code; TGC_LONG=all: every one.
# test_faults.sh alloc|call COMMAND...: these only; KEEP=1 keeps what went wrong in bad.*
. "$(dirname "$0")/shell.sh"
src=$(readlink -f tests/fault.c)
family=$(readlink -f tests/data/families/llama)
start faults
mkdir tmp out in
export TGC_CACHE_DIR=$dir/cache TMPDIR=$dir/tmp

if ! ${CC:-cc} -std=gnu11 -shared -fPIC -O1 "$src" -o fault.so -ldl 2> err || ldd "$TGC" |
        grep -q libasan; then
        echo "skip no_memory: no C compiler, or sanitizers"
        exit 0
fi

# ---- what the commands work on ----

tiny_model in/tiny.lua
seq 1 300 > in/text.txt
printf '{"prompt": "%s", "completion": "4"}\n{"text": "1%s"}\n' 12 23 34 45 56 67 > in/records.jsonl
"$TGC" dump in/tiny.lua --graph --json > in/tiny.json &&
"$TGC" compile in/tiny.lua -b 2 --tokenizer char:in/text.txt --target cpu -q -o in/tiny.plan &&
"$TGC" train in/tiny.plan --data in/text.txt --device cpu -t 1 -q --max_iters 1 --eval_interval 1 \
        --eval_iters 1 --out_dir in/run || {
        echo "not ok set_up"
        exit 1
}

# Their outputs go to out/ and to standard output.
on=(--device cpu -t 1)
declare -A command=(
        [compile]="compile in/tiny.lua -o out/a.plan -q -b 2 --tokenizer char:in/text.txt
                --weights in/run"
        [compile_cpu]="compile in/tiny.lua -o out/a.plan -q --target cpu --no-check"
        [compile_json]="compile in/tiny.json -o out/a.plan -q --no-check"
        [compile_hf]="compile $family -o out/a.plan --mode infer -q"
        [run]="run in/tiny.plan ${on[*]} -p 12 -n 4 --temp 0 -q"
        [run_json]="run in/tiny.plan ${on[*]} --prompt-ids 1,2 -n 3 --temp 0 --json"
        [train]="train in/tiny.plan --data in/text.txt ${on[*]} --max_iters 2 --eval_interval 2
                --eval_iters 1 --out_dir out/r --log_csv out/l.csv -q"
        [train_records]="train in/tiny.plan --data in/records.jsonl:2 --data in/text.txt
                --template none --no-packing ${on[*]} --max_iters 2 --eval_interval 2 --keep 1
                --tensorboard --out_dir out/r -q"
        [eval]="eval in/tiny.plan --data in/text.txt ${on[*]} --logits out/l.npy -q"
        [dump_graph]="dump in/tiny.lua --graph --json"
        [dump_fused]="dump in/tiny.plan --fused --why"
        [dump_c]="dump in/tiny.plan --c"
        [check]="check in/tiny.plan ${on[*]} --json"
        [bench]="bench in/tiny.plan ${on[*]} --decode --kernels --reps 1 --json"
        [tokenize]="tokenize in/tiny.plan"
        [tokenize_json]="tokenize in/tiny.plan --json"
        [info]="info in/tiny.plan --json"
        [info_model]="info in/tiny.lua"
        [export]="export in/run -o out/hf -q"
        [doctor]="doctor --json"
        [tune]="tune in/tiny.plan -o out/a.plan"
        [help]="help train"
        [man]="help --man"
        [version]="version"
)
# what they print is another each time, or tells of what failed
timed=" bench check doctor run_json train train_records "

run() { timeout -k 2 60 "$TGC" ${command[$1]} > out/stdout 2> err < in/text.txt; }
shopt -s nullglob dotglob globstar
# into echo_to: no process is made
listing() { local x=("$TGC_CACHE_DIR"/**); echo_to=${x[*]}; }
fresh() {
        local x=(out/* tmp/*)
        [ "${x[*]}" = "" ] || [ "${x[*]}" = out/stdout ] || { rm -rf out tmp; mkdir out tmp; }
        listing
        [ "$echo_to" = "${cached:-}" ] ||
                { rm -rf "$TGC_CACHE_DIR"; cp -r cache.kept "$TGC_CACHE_DIR"; listing; \
                        cached=$echo_to; }
}
temps() { local x=(out/**/.*.tgc-* in/**/.*.tgc-* {out,in}/**/*.tmp-* tmp/*); echo_to=${x[*]}; }
outputs() {
        local x=()
        [[ $timed == *" $1 "* ]] && x=(! -name stdout)
        (cd out && find . -type f ! -name '*.csv' ! -name log.jsonl ! -name 'events.*' \
                ! -name .lock "${x[@]}" -print0 | sort -z | xargs -0 -r sha256sum)
}

# judge COMMAND KIND RC: "" or what is wrong
judge() {
        local rc=$3 hit said
        read -r hit < log
        said=$(< err)
        said=${said:0:300}
        temps
        if [ "$echo_to" ]; then echo "files stay: $echo_to"; fi
        if [ "$rc" -eq "${usual[$1]}" ] && [ "$rc" -ne 0 ] &&
                [ "${said:0:60}" = "${words[$1]}" ]; then return; fi
        case $rc in
        0)      [ "$(outputs "$1")" = "${whole[$1]}" ] || echo "exit 0, other outputs" ;;
        5)      [ "$2" = alloc ] || [[ $hit =~ ENOMEM|EAGAIN|mmap ]] || echo "exit 5: $said"
                [[ $said =~ [0-9]\ bytes|GB|Cannot\ allocate\ memory|Resource\ temporarily ]] ||
                        echo "exit 5, without a size: $said" ;;
        4|8)    [ "$2" = call ] && [ "$said" ] || echo "exit $rc: $said"
                [[ $hit =~ EINTR|SHORT ]] && ! [[ $hit =~ close ]] &&
                        echo "not done again: exit $rc: $said" ;;
        *)      echo "exit $rc: $said" ;;
        esac
}

declare -A whole usual words
sweep() {       # sweep alloc|call COMMAND PLACES ROUNDS: of each place as many rounds
        local kind=$1 c=$2 places=$3 rounds=$4 step n total r bad count=0 refused=0 list
        rm -rf out tmp
        mkdir out tmp
        run "$c"
        usual[$c]=$?
        words[$c]=$(head -c 60 err)
        [ "${usual[$c]}" -eq 0 ] || [ "$c" = tune ] ||
                { echo "does not work: $(head -c 300 err)"; return; }
        rm -rf cache.kept out
        mkdir out
        cp -r "$TGC_CACHE_DIR" cache.kept
        listing
        local cached=$echo_to
        rm -f log list
        FAULT=$kind FAULT_LOG=$dir/log FAULT_LIST=${TGC_LONG:+$dir/list} LD_PRELOAD=$dir/fault.so \
                run "$c"
        [ $? -eq "${usual[$c]}" ] || { echo "exits with another code undisturbed: $(head -c 200 \
                err)"; return; }
        whole[$c]=$(outputs "$c")
        total=$(sed -n 's/^calls //p' log)
        [ "$total" ] || { echo "counts no calls"; return; }
        if [ "${TGC_LONG:-}" = 1 ]; then list=$(sort -k2,2 -s list | awk '!seen[$2]++ { print $1 }')
        elif [ "${TGC_LONG:-}" ]; then list=$(seq 1 "$total")
        else
                step=$((total / places + 1))
                list=$(seq $((1 + (${#c} * 7) % step)) "$step" "$total")
        fi
        for n in $list; do
                for ((r = 0; r < rounds; r++)); do
                        fresh
                        rm -f log
                        FAULT=$kind FAULT_AT=$n FAULT_ROUND=$r FAULT_LOG=$dir/log \
                                FAULT_TRACE=${KEEP:-} LD_PRELOAD=$dir/fault.so run "$c"
                        local rc=$?
                        [ -e log ] || continue          # not that many this time
                        count=$((count + 1))
                        [ $rc -eq 0 ] || refused=$((refused + 1))
                        bad=$(judge "$c" "$kind" $rc)
                        if [ "$bad" ]; then
                                rm -rf out tmp
                                mkdir out tmp
                                echo "$kind $n of $total, $(head -1 log): $bad"
                                [ "${KEEP:-}" ] && { head -1 log; echo "$bad"; cat log; } > \
                                        "$dir/bad.$kind.$c.$n.$r"
                        fi
                done
        done
        echo "$kind $c: $count failures of $total calls, $refused refused" >> "$dir/figures"
}

mkdir -p cache.kept
kinds="alloc call"
[ $# -eq 0 ] || { kinds=$1; shift; }
names=${*:-$(printf '%s\n' "${!command[@]}" | sort)}
for k in $kinds; do
        for c in $names; do
                case $k in alloc) args=(4 1) ;; *) args=(2 3) ;; esac
                say "${k}_$c" "$(sweep $k "$c" "${args[@]}" 2>&1 | head -${SHOW:-5})"
        done
done
# What the kernel kills for want of memory is no refused source.
killed_compiler() {
        cat > cc1 << 'END'
#!/bin/sh
[ "$1" = --version ] && { echo "cc 1"; exit 0; }
echo "cc: fatal error: Killed signal terminated program cc1" >&2
exit 1
END
        chmod +x cc1
        CC=$dir/cc1 TGC_CACHE_DIR=$dir/none "$TGC" compile in/tiny.lua -q --target cpu \
                -o out/k.plan 2> err
        local rc=$?
        [ $rc -eq 5 ] && grep -q 'had no memory for unit' err || echo "exit $rc: $(head -c 300 err)"
        [ ! -e out/k.plan ] || echo "a plan was written"
}
say a_compiler_killed_for_memory "$(killed_compiler)"

[ -z "${KEEP:-}" ] || { echo "# $dir"; cat figures; }
exit $failed
