#!/bin/bash
# run.sh BUILD [NAME...]: run every test program and script, or those named, JOBS at a time, and add
# up their lines.
#
# Each prints `ok NAME`, `not ok NAME` or `skip NAME: reason`; one that ends badly
# without saying so counts as a failure. The last line is the sum, after "$SUM_OF: " where that is
# set.
build=$1
shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/out" "$tmp/err" "$tmp/times" "$tmp/report"       # of each by its name
export TGC=$build/tgc TGC_CACHE_DIR=${TGC_CACHE_DIR:-$PWD/$build/cache} \
        OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
# two programs, two threads each: who waits leaves its core to another
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# programs run beside each other: what units share is compiled once
export TGC_COMPILERS=${TGC_COMPILERS:-1}
own_cxx=$CXX${TGC_CXXFLAGS+yes}
# what is emulated runs for a moment: -O2 takes three times as long in all
export TGC_CXXFLAGS=${TGC_CXXFLAGS--Og}

count() { cat "${@:2}" | grep -c "^$1 "; }      # count WORD FILE...

# Programs about the command line, files, what is left behind and where documents begin, or about
# single blocks, not about the C kernels: what these are built with matters to other programs alone,
# and calls that are calls (kernels/cpu/cpu_tgc.h) are compiled in a fifth of the time.
quick_c=" test_chat_command.sh test_context_shift.sh test_draft test_embed test_eval.sh
        test_act_fp8.sh test_gguf_write.sh test_imatrix test_jobs.sh test_objectives.sh
        test_quantize.sh test_records.sh test_sampling.sh test_score test_survive.sh
        test_train_log.sh test_batch test_cli test_cli_run test_documents test_hostile.sh
        test_infer_vectors test_docs.sh test_ema.sh test_examples.sh test_frozen.sh
        test_export.sh test_gguf.sh test_kill.sh test_library.sh test_load test_lora_switch.sh
        test_locale test_lora test_options test_nanogpt.sh test_prompts.sh test_resume.sh
        test_silent.sh test_train test_trust test_tune "

run() { # NAME COMMAND...
        local out=$tmp/out/$1 err=$tmp/err/$1 t0=$SECONDS rc cpu
        [[ " ${quick_c//$'\n'/ } " = *" $1 "* ]] &&
                export TGC_CFLAGS="${TGC_CFLAGS--O0 -DTGC_CALLS}"
        # clang, where that is, takes at -O0 a quarter of the time of g++ -Og for what is emulated.
        # g++ has test_infer_emulate; test_check.sh, test_emulate and test_random choose themselves
        case $1 in
        test_random) [ "$own_cxx" ] || unset TGC_CXXFLAGS ;;
        test_check.sh | test_emulate | test_infer_emulate) ;;
        *)
                [ -z "$own_cxx" ] && command -v clang++ > /dev/null &&
                        export CXX=clang++ TGC_CXXFLAGS=-O0
                ;;
        esac
        timeout -k 5 "${TEST_TIMEOUT:-1200}" "${@:2}" > "$out" 2> "$err" < /dev/null
        rc=$?
        times > "$tmp/times/$1"
        cpu=$(awk '{ for (i = 1; i <= 2; i++) { split($i, t, "[ms]"); s += 60 * t[1] + t[2] } }
                END { printf "%.0f", s }' "$tmp/times/$1")
        # a function of a test that ended there said nothing, as one that found nothing
        grep -q 'unbound variable$' "$err" &&
                echo "not ok $1: $(grep -m 1 'unbound variable$' "$err")" >> "$out"
        [ $rc -ne 0 ] && ! grep -q '^not ok ' "$out" && echo "not ok $1 (exit $rc)" >> "$out"
        {
                printf '%-28s %4d passed  %d failed  %d skipped  %4d s  %4d s of processor\n' "$1" \
                        "$(count ok "$out")" "$(count 'not ok' "$out")" "$(count skip "$out")" \
                        $((SECONDS - t0)) "$cpu"
                if grep -q '^not ok ' "$out"; then
                        grep -v '^ok ' "$out" | head -40
                        tail -20 "$err"
                fi
        } > "$tmp/report/$1"
        cat "$tmp/report/$1"            # in one piece
}

# The longest first, so that none of them is alone at the end.
for t in tests/test_targets.c tests/test_{check.sh,random.c,lora.c,emulate.c,train.c,infer.c} \
        tests/test_{draft.c,examples.sh,objectives.sh,batch.c} tests/test_*.c tests/test_*.sh; do
        name=$(basename "$t" .c)
        [ $# -eq 0 ] || [[ " $* " = *" $name "* ]] || continue
        [ ! -e "$tmp/out/$name" ] || continue
        : > "$tmp/out/$name"
        while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
        case $t in *.sh) run "$name" bash "$t" & ;; *) run "$name" "$build/tests/$name" & ;; esac
done
wait
for t in "$tmp"/out/*; do
        echo "== ${t##*/}"
        cat "$t" "$tmp/err/${t##*/}"
done > "$build/check.log"
[ -n "$TGC_TEST_SHARED" ] || [ -e "${TGC_TEST_DATA:-../shared/data}" ] ||
        echo "tests over ../shared/data are left out: it is not there"
grep -h '^skip ' "$tmp"/out/* | sort | uniq -c | sort -rn | head -20
# A lone clone leaves out 15 tests, none of a feature, where clang, nvcc and chromium are there, and
# more where one is not.
skipped=$(count skip "$tmp"/out/*)
if [ -n "$CI" ] && [ $# -eq 0 ] && [ "$skipped" -gt "${MOST_SKIPS:-24}" ] &&
        [ -z "$TGC_TEST_SHARED" ]; then
        echo "not ok skips: $skipped, and ${MOST_SKIPS:-24} are allowed" | tee "$tmp/out/skips"
fi
failed=$(count 'not ok' "$tmp"/out/*)
echo "${SUM_OF:+$SUM_OF: }$(count ok "$tmp"/out/*) passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
