# test_deep.sh: many ops in a row, many layers: no stack as deep, and time that grows with them, not
# with their square or cube. A limit of processor time is several times what it takes; before, it
# took minutes.
cd "$(dirname "$0")/.." || exit 1
TGC=${TGC:-build/tgc}
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
ulimit -s 8192

# within SECONDS NAME ARGUMENTS...: programs are written in that processor time
within() {
        seconds=$1 name=$2
        shift 2
        if (ulimit -t "$seconds"; exec "$TGC" dump "$@" --program -q) > "$out/log" 2>&1; then
                echo "ok $name"
        else
                echo "not ok $name (exit $?)"
                tail -n 3 "$out/log"
        fi
}

# sanitizers take several times as long
more=1
"$TGC" --version > /dev/null 2>&1
grep -qa __asan_init "$TGC" && more=10

deep=tests/e2e/check/deep.lua
within $((45 * more)) "20,000 elementwise ops" $deep -D kind=maps -D n=20000 --mode train
within $((45 * more)) "sums of a value with itself" $deep -D kind=twice -D n=3000 --mode train
within $((45 * more)) "transposed and reshaped 3,000 times" $deep -D kind=turns -D n=3000 \
        --mode train
within $((45 * more)) "concatenated and sliced 2,000 times" $deep -D kind=slices -D n=2000 \
        --mode train
within $((45 * more)) "60,000 slices of slices" $deep -D kind=chain -D n=60000 --mode train
within $((45 * more)) "wider 2,000 times" $deep -D kind=wider -D n=2000 --mode infer
small="-D n_embd=64 -D n_head=2 -D vocab=256 -D ctx=64"
# 1,000 layers take 5 to 16 s of a core, by machine; with squares it is minutes
wide="-D n_kv_head=1 -D head_dim=32 -D n_ff=96"
# shellcheck disable=SC2086
within $((45 * more)) "GPT-2 of 1,000 layers" models/gpt.lua $small -D n_layer=1000 --mode train \
        --dtype bf16
# shellcheck disable=SC2086
within $((45 * more)) "Llama of 1,000 layers" models/llama.lua $small $wide -D n_layer=1000 \
        --mode infer
# shellcheck disable=SC2086
within $((45 * more)) "experts of 1,000 layers" models/moe.lua $small $wide -D n_layer=1000 \
        --mode train
