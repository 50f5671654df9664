#!/bin/bash
# test_ubsan.sh: ir/, the evaluator above all, under clang's sanitizer of undefined behaviour, which
# finds what gcc's does not: offsets of null pointers, floats that no integer holds.
cd "$(dirname "$0")/.." || exit 1
if ! clang --version > /dev/null 2>&1; then
        echo "skip undefined behaviour in ir/: there is no clang"
        exit 0
fi
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
if clang -std=c11 -D_GNU_SOURCE -O0 -g -Itests -I. -fsanitize=undefined,float-cast-overflow \
        -fno-sanitize-recover=all -o "$out/test_ir" tests/test_ir.c ir/*.c -lm > "$out/log" 2>&1 &&
        "$out/test_ir" > "$out/log" 2>&1; then
        echo "ok undefined behaviour in ir/: none in $(grep -c '^ok ' "$out/log") tests"
else
        echo "not ok undefined behaviour in ir/"
        tail -n 5 "$out/log"
fi
