#!/bin/bash
# gpu_kernels.sh: build and run the kernels' tests and benches on the GPU at hand, next to PyTorch.
#
#       tests/bench/gpu_kernels.sh OUT [check] [sanitize] [bench]        (default: all three)
#
# From the repository's root; needs nvcc, for sm_90a, and python3 with torch. Logs go to OUT.
# Programs that BIN (a folder) already holds are not built.
out=${1:?folder for logs}
shift
what=" ${*:-check sanitize bench} "
bin=${BIN:-$(mktemp -d)}
flags="-std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A $(printf -- '-I%s ' \
        codegen/forms codegen/kernels/*/) -Iruntime -Itests"
mkdir -p "$out"

build() # NAME SOURCE FLAG...
{
        local name=$1 source=$2
        shift 2
        test -x "$bin/$name" && return
        nvcc "$@" $flags "$source" -o "$bin/$name" >"$out/build.$name" 2>&1 ||
                echo "$name does not build"
        grep -v '^$' "$out/build.$name" | grep -iv 'warning #' | head -5 >&2
}

report() # NAME LIMIT_S COMMAND...
{
        local name=$1 limit=$2
        shift 2
        timeout "$limit" "$@" >"$out/$name.txt" 2>&1
        echo "$name: status $?, $SECONDS s"
}

tests="kernels rows_test route_test update_test loss_test gemm_test gemv_test attention_test
        attention_tf32_test"
for t in $tests; do build $t tests/emulate/$t.cu -O1 & done
case $what in *bench*)
        for i in 1 2 3 4 5 6; do build gemm_$i tests/bench/gemm_bench.cu -O3 -DBENCH_PART=$i & done
        build attention_bench tests/bench/attention_bench.cu -O3 &
        build attention_f32 tests/bench/attention_bench.cu -O3 -DBENCH_FLOAT &
        build attention_tf32 tests/bench/attention_bench.cu -O3 -DBENCH_FLOAT -DTGC_TF32=1 &
        build attention_sm90 tests/bench/attention_sm90_bench.cu -O3 &
        for b in rows loss update; do build ${b}_bench tests/bench/${b}_bench.cu -O3 & done
        report torch 200 python3 tests/bench/torch_kernels.py
esac
wait
echo "built: $SECONDS s"
case $what in *check*)
        for t in $tests; do
                report $t 120 "$bin/$t"
                grep -v '^ok' "$out/$t.txt" | head -15
                tail -1 "$out/$t.txt"
        done
esac
case $what in *bench*)
        for i in 1 2 3 4 5 6; do report gemm_$i 150 "$bin/gemm_$i"; done
        report attention_bench 150 "$bin/attention_bench"
        for f in f32 tf32; do report attention_$f 60 "$bin/attention_$f"; done
        report attention_sm90 60 "$bin/attention_sm90"
        for b in rows loss update; do report ${b}_bench 150 "$bin/${b}_bench"; done
        grep -h WRONG "$out"/*.txt
esac
case $what in *sanitize*)
        for tool in memcheck racecheck; do
                for t in $tests; do report $tool.$t 60 compute-sanitizer --tool $tool "$bin/$t" & \
                        done
                wait
                tail -qn 1 "$out"/$tool.*.txt
        done
esac
test "$BIN" || rm -rf "$bin"
exit 0
