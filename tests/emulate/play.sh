#!/bin/bash
# play.sh NAME [FLAG...]: builds tests/emulate/NAME.cu with the emulator and runs it;
# --gpu NAME [FLAG...]: with nvcc, for the GPU that is here.
# CXX (clang++, else g++), ARCH (90a), TGC_EMULATE_ORDER.
set -e
cd "$(dirname "$0")/../.."
gpu=
[ "$1" != --gpu ] || { gpu=yes; shift; }
name=$1
shift
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
IFS=' ' read -r -a flags <<< "$(make -s kernel-includes)"
flags+=(-std=c++17 -Icodegen/forms -Iruntime -Iruntime/weights -Itests)
if [ "$gpu" ]; then
        nvcc "${flags[@]}" -gencode="arch=compute_${ARCH:-90a},code=sm_${ARCH:-90a}" "$@" \
                "tests/emulate/$name.cu" -o "$out/test"
else
        cxx=${CXX:-$(command -v clang++ || echo g++)}
        flags+=(-fno-strict-aliasing -fopenmp -w -g)
        "$cxx" "${flags[@]}" -O2 -c codegen/kernels/emulate/emulate_core.cpp -o "$out/core.o"
        "$cxx" "${flags[@]}" "$@" -x c++ -include codegen/kernels/emulate/emulate.h \
                "tests/emulate/$name.cu" -x none "$out/core.o" -o "$out/test"
fi
"$out/test"
