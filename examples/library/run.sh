#!/bin/sh
# run.sh: a plan, a program, a story.
set -e
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
tgc=${TGC:-$top/build/tgc}
out=${OUT:-$(mktemp -d)}
"$tgc" compile "$top/tests/data/models/story" -o "$out/story.plan"
flags=$(pkg-config --cflags --libs tgc 2>/dev/null) || {
        make -s -C "$top" lib
        flags="-I$top/runtime $top/build/libtgc.a -lcjson -lpcre2-8 -lutf8proc -lxxhash"
        flags="$flags -lm -ldl -lpthread"
}
${CC:-cc} "$here/story.c" -o "$out/story" $flags
"$out/story" "$out/story.plan" "Once upon a time"
