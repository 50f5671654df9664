#!/bin/bash
# run.sh BUILD: run every test program and script, add up their lines.
#
# Each prints `ok NAME`, `not ok NAME` or `skip NAME: reason`; one that ends badly
# without saying so counts as a failure.  The last line is the sum.
build=$1
passed=0 failed=0 skipped=0
log=$build/check.log
: > "$log"
export TGC=$build/tgc TGC_CACHE_DIR=${TGC_CACHE_DIR:-$PWD/$build/cache} OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

run() {
        local name=$1 out=$build/check.out t0=$SECONDS rc
        shift
        timeout -k 5 "${TEST_TIMEOUT:-1200}" "$@" > "$out" 2> "$out.err" < /dev/null
        rc=$?
        local p f s
        p=$(grep -c '^ok ' "$out") f=$(grep -c '^not ok ' "$out") s=$(grep -c '^skip ' "$out")
        if [ $rc -ne 0 ] && [ "$f" -eq 0 ]; then
                f=1
                echo "not ok $name (exit $rc)" >> "$out"
        fi
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        printf '%-28s %4d passed  %d failed  %d skipped  %4d s\n' "$name" "$p" "$f" "$s" $((SECONDS - t0))
        if [ "$f" -gt 0 ]; then
                grep -v '^ok ' "$out" | head -40
                tail -20 "$out.err"
        fi
        { echo "== $name"; cat "$out" "$out.err"; } >> "$log"
}

for t in "$build"/tests/test_*; do
        [ -x "$t" ] && case $t in *.d|*.o) ;; *) run "$(basename "$t")" "$t" ;; esac
done
for t in tests/test_*.sh; do
        [ -e "$t" ] && run "$(basename "$t")" bash "$t"
done
if [ $skipped -gt 0 ]; then
        grep '^skip ' "$log" | sort | uniq -c | sort -rn | head -20
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
