# test_limits.sh: sizes just above what a kernel holds in registers, in scratch or in shared memory:
# right, or refused by name and line.  FULL=1: the larger ones too.
cd "$(dirname "$0")/.." || exit 1
TGC=${TGC:-build/tgc}
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$PWD/build/cache}
export TGC_CFLAGS=${TGC_CFLAGS:--O0 -DTGC_CALLS} TGC_CXXFLAGS=${TGC_CXXFLAGS:--Og}
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
model=tests/e2e/check/limits.lua

say() { # say STATUS NAME
        if [ "$1" -eq 0 ]; then
                echo "ok $2"
        else
                echo "not ok $2 (exit $1)"
                grep -v ' ok$' "$out/log" | head -8
        fi
}

# right DEVICE KIND N K
right() {
        "$TGC" check $model -D kind="$2" -D n="$3" -D k="$4" --device "$1" --greedy 2 -q > \
                "$out/log" 2>&1
        rc=$?
        if [ $rc -eq 4 ] && ! grep -q refuses "$out/log"; then
                echo "skip $2 of $3, $4 on $1: $(tail -n 1 "$out/log")"
        else
                say $rc "$2 of $3, $4 on $1"
        fi
}

# refused KIND N TEXT: from Lua and from JSON
refused() {
        "$TGC" compile $model -D kind="$1" -D n="$2" -o "$out/plan" > "$out/log" 2>&1
        rc=$?
        grep -q "^$model:[0-9]*: error: $3" "$out/log" || rc=1$rc
        [ $rc -eq 3 ]
        say $? "$1 of $2 is refused"
        "$TGC" dump $model -D kind="$1" -D n="$2" --graph --json > "$out/m.json" 2> "$out/log" &&
                "$TGC" compile "$out/m.json" -o "$out/plan" > "$out/log" 2>&1
        rc=$?
        grep -q ":[0-9]*: error: $3" "$out/log" || rc=1$rc
        [ $rc -eq 3 ]
        say $? "$1 of $2 is refused as JSON"
}

# rows that a warp holds, and that a CPU's scratch memory does; more choices than a segment
right cpu topk 4097 3
right cpu topk 600 257
right cpu renorm 600 33
right emulate topk 257 3
right emulate renorm 257 33
right emulate moe 64 33
# norms whose backward has no room for sums in shared memory, and the widest
right emulate layernorm 12289 1
right cpu rmsnorm 65536 1
refused rmsnorm 65537 "rmsnorm: rows of 65537 columns are not supported (at most 65536)"
refused layernorm 70000 "layernorm: rows of 70000 columns"
refused group 129 "attention: 129 query heads to a key head are not supported (at most 128)"
refused heads 257 "attention: heads of width 257 are not supported (at most 256)"
refused keys 260 "attention: heads of width 260"
refused values 300 "attention: heads of width 300"
# values and columns of one map
right cpu slices 101 2
right emulate gates 8 70
[ -n "$FULL" ] || exit 0
right cpu topk 330000 2
right cpu group 128 1
right cpu heads 256 1
right cpu moe 600 300
right emulate topk 600 300
right emulate group 128 1
right emulate heads 256 1
right emulate rmsnorm 65536 1
right emulate softmax 65537 1
right emulate vocab 70000 1
right cpu vocab 330000 1
right emulate parts 70 1
right emulate reads 70 1
right cpu parts 70 1
