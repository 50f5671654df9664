#!/bin/bash
# test_ubsan.sh: ir/, the evaluator above all, and the tokenizers under clang's sanitizer of
# undefined behaviour, which finds what gcc's does not: offsets of null pointers, floats that no
# integer holds.
cd "$(dirname "$0")/.." || exit 1
if ! clang --version > /dev/null 2>&1; then
        echo "skip undefined behaviour: there is no clang"
        exit 0
fi
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

holds() {       # holds WHAT TEST SOURCE...: the test program over these sources
        local what=$1 test=$2
        shift 2
        if clang -std=c11 -D_GNU_SOURCE -O0 -g -Itests -I. \
                -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all -o "$out/$test" \
                "tests/$test.c" "$@" > "$out/log" 2>&1 && "$out/$test" > "$out/log" 2>&1; then
                echo "ok undefined behaviour in $what: none in $(grep -c '^ok ' "$out/log") tests"
        else
                echo "not ok undefined behaviour in $what"
                tail -n 5 "$out/log"
        fi
}

holds ir/ test_ir ir/*.c -lm
holds runtime/tokenizer/ test_tokenizer_parts runtime/tokenizer/*.c runtime/util/*.c -lcjson \
        -lpcre2-8 -lutf8proc -lxxhash -lpthread -lm
