#!/bin/bash
# test_docs.sh: docs/graph-language.md is what tgc says of itself, and its examples are right, as
# they stand there.
. "$(dirname "$0")/shell.sh"
TGC=$(readlink -f "${TGC:-build/tgc}")
top=$PWD
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-docs-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C PATH=$(dirname \
        "$TGC"):$PATH
unset TGC_DEVICE TGC_LOG

p=$(sh scripts/docs.sh "$TGC" - | diff - docs/graph-language.md | head -5)
say the_reference_is_what_tgc_says "${p:+make docs writes it anew: $p}"

sh scripts/blocks.sh docs/graph-language.md "$dir/doc"
cp tests/data/text/stories.txt "$dir/doc/text.txt"
cd "$dir/doc" || exit 1
p=$(ls ./*.lua | wc -l)
[ "$p" -ge 10 ] && p= || p="$p examples"
say ten_examples "$p"

# Each agrees with the evaluator, says nothing of what it cannot do, and has a step and a decoder.
for f in *.lua *.json; do
        p=
        timeout 120 "$TGC" check "$f" --device cpu > ../out 2> ../err < /dev/null ||
                p="exit code $?: $(head -c 300 ../err) $(grep DIFFERS ../out | head -3)"
        [ "$p" ] || { grep -q '^step  *loss .* ok' ../out &&
                grep -q '^decode  *logits .* ok' ../out; } ||
                        p="not all programs: $(head -c 300 ../out)"
        [ "$p" ] || p=$(grep -v '^compiling [0-9]* kernels' ../err | head -c 300)
        say "checks_${f%.*}" "$p"
done

p=
timeout 300 bash -e run.sh > ../out 2> ../err < /dev/null || p="exit code $?: $(tail -3 ../err)"
[ "$p" ] || grep -q '^Once' ../out || p="no text: $(head -c 300 ../out)"
say the_commands_of_the_document "$p"

cd "$top" || exit 1
exit $failed
