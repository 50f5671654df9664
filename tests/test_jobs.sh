#!/bin/bash
# test_jobs.sh: the jobs of tests/bench/jobs at their small sizes, with TGC_LONG: they end, and
# write what they promise.
. "$(dirname "$0")/shell.sh"
start jobs
[ "${TGC_LONG:-}" ] || { echo "skip jobs: they take a minute; TGC_LONG=1 runs them"; exit 0; }
command -v python3 > /dev/null || { echo "skip jobs: no python3"; exit 0; }
job() { # NAME OUTPUT...
        timeout 600 python3 "$top/tests/bench/jobs/$1.py" --tgc "$TGC" --device cpu --out "$1" > \
                out 2> err || { tail -3 err; return; }
        for f in "${@:2}"; do [ -s "$1/$f" ] || echo "no $f"; done
}
figures() {
        job tinylm kv_cache.svg norm.svg memory.svg loss.svg job.csv
        for f in tinylm/*.svg; do python3 \
                -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$f" ||
                echo "$f is no XML"; done
        awk -F, '$2 == "cached" { c = $4 } $2 == "read again" { a = $4 }
                END { if (!(a > 3 * c)) print c " ms from the cache, " a " without" }' \
                tinylm/job.csv
}
say tinylm "$(figures 2>&1)"
tone() {
        job swiglu results.csv benchmark.csv masters.svg chat.md
        head -1 swiglu/benchmark.csv | grep \
                -qx 'Timestamp,Mode,Wall_Time_s,Total_Tokens,Tokens_Sec,Tokens_Min' ||
                head -1 swiglu/benchmark.csv
        [ "$(grep -c '^## ' swiglu/chat.md)" -eq 3 ] || cat swiglu/chat.md
}
say swiglu "$(tone 2>&1)"
replies() {
        job replies results.csv profile.csv
        grep -q 'the same weights, byte for byte' out || tail -3 out
        [ "$(wc -l < replies/results.csv)" -eq 5 ] || cat replies/results.csv
}
say replies "$(replies 2>&1)"
exit $failed
