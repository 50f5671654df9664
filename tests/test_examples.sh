#!/bin/bash
# test_examples.sh: every example runs as it stands, and says what its README promises.
. "$(dirname "$0")/shell.sh"
export TGC=$(readlink -f "${TGC:-build/tgc}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-examples-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C TGC_DEVICE=cpu
unset TGC_LOG

# run NAME PATTERN...: its standard output, or the error, has a line for each
run() {
        local name=$1 p=
        shift
        mkdir -p "$dir/$name"
        OUT=$dir/$name timeout 300 sh "examples/$name/run.sh" > "$dir/out" 2> "$dir/err" < \
                /dev/null || p="exit code $?: $(tail -3 "$dir/err")"
        for word; do
                [ "$p" ] || cat "$dir/out" "$dir/err" | grep -Eq -- "$word" ||
                        p="no '$word' in: $(tail -c 400 "$dir/out")"
        done
        say "example_$name" "$p"
}

run own_model '^([0-9]+) of \1 agree' '^kernel ' 'val' '^Once'
run finetune '^Rain in the'
before=$(grep -o 'perplexity[ :]*[0-9.]*' "$dir/out" | head -1 | grep -o '[0-9.]*$')
after=$(grep -o 'perplexity[ :]*[0-9.]*' "$dir/out" | tail -1 | grep -o '[0-9.]*$')
p=$(awk -v a="${before:-0}" -v b="${after:-0}" \
        'BEGIN { if (!(b > 0 && b < a / 2)) print "perplexity " a " before, " b " after" }')
[ "$p" ] || [ -s "$dir/finetune/weights/model.safetensors" ] || p="no weights were exported"
say finetuning_helps "$p"
run dpo '^and after'
p=$(grep -o '"logprob":[^,]*' "$dir/out" | cut -d: -f2 | paste -sd' ' |
        awk '{ if (!($3 - $4 > $1 - $2 + 1))
                print "happy less sad: " $1 - $2 " before, " $3 - $4 " after" }')
say preferences_are_learned "$p"
run grpo '^Once upon a time'
p=$(grep -o 'score [0-9.]*' "$dir/err" | cut -d' ' -f2 | paste -sd' ' |
        awk '{ if (!($NF > 1.5 * $1)) print "scores " $0 }')
say the_reward_rises "$p"
run distill '^KL of'
p=$(tail -2 "$dir/out" | paste -sd' ' | awk '{ if (!($2 < 0.8 * $1)) print "KL " $0 }')
say the_student_learns "$p"
N=40 run shakespeare '^ROMEO:'
if command -v python3 > /dev/null; then run json '^([0-9]+) of \1 agree' '^Once'; else echo \
        "skip example_json: no python3"; fi

# The library of the build, with the compiler of the system.
build=$(dirname "$TGC")
p=$(unset MAKEFLAGS MAKELEVEL MFLAGS; make --no-print-directory BUILD="${build#"$PWD"/}" \
        COMMIT="$(cat "$build/commit")" lib 2>&1 > /dev/null)
[ "$p" ] && say make_lib "$p"
mkdir "$dir/pc"
sed "s|^prefix=.*|prefix=$build|; s|^libdir=.*|libdir=$build|
        s|^includedir=.*|includedir=$PWD/runtime|; s|-L.*-ltgc|$build/libtgc.a|
        /^Libs:/s|\$| -lcjson -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread|" \
        "$build/tgc.pc" > "$dir/pc/tgc.pc"
PKG_CONFIG_PATH=$dir/pc run library '^Once upon a time.* .* '

for d in examples/*/; do
        p=
        [ -f "$d/README.md" ] && [ "$(wc -l < "$d/README.md")" -le 14 ] ||
                p="$d has no short README.md"
        [ -x "$d/run.sh" ] || p="$d has no run.sh"
        grep -q "($(basename "$d"))" examples/README.md || p="examples/README.md does not name $d"
        [ -z "$p" ] || say "example_$(basename "$d")_is_whole" "$p"
done
exit $failed
