# test_check.sh: models on every back end against the double-precision evaluator, and
# the emulator's promises: thread orders give the same bits, sanitizers find nothing,
# NVRTC takes what else there is than test_targets.c compiles.  A few cases; FULL=1: all of them.
#
# A line of tests/e2e/check/cases.txt: NAME DEVICE OPTIONS..., where the device sm_90a is the
# emulator in Hopper's forms; after the word full it is for FULL=1.
cd "$(dirname "$0")/.." || exit 1
TGC=${TGC:-build/tgc}
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$PWD/build/cache}
export TGC_CXXFLAGS=${TGC_CXXFLAGS--Og}         # compiles in a third of the time, runs long enough
cxxflags=$TGC_CXXFLAGS
quick_cxx=
[ -z "$FULL$CXX" ] && [ "$cxxflags" = -Og ] && command -v clang++ > /dev/null && quick_cxx=clang++
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

say() {         # say STATUS NAME [FILE]; with TIMES=1 the processor time until here
        [ -z "$TIMES" ] || { times > "$out/times"; echo "# until $2 $(tail -n 1 "$out/times")"; }
        if [ "$1" -eq 0 ]; then
                echo "ok $2"
        elif [ "$1" -eq 4 ]; then
                echo "skip $2: $(tail -n 1 "$3")"
        else
                echo "not ok $2 (exit $1)"
                grep -v ' ok$' "$3" | head -20
        fi
}

# A build with sanitizers: the leak checker stops where it meets the emulator's fibers, whose stacks
# it does not know. Other tests look for leaks, those that load emulated kernels into themselves
# included.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

while read -r name device options; do
        case $name in
        '' | \#*) continue ;;
        full)
                [ -n "$FULL" ] || continue
                read -r name device options <<< "$device $options"
                ;;
        esac
        # Hopper's forms, played
        unset TGC_EMULATE_ARCH
        played=$device TGC_CXXFLAGS=$cxxflags
        # built as for users: test_train, test_experts and some of test_infer; these quickly
        # (kernels/cpu/cpu_tgc.h)
        unset TGC_CFLAGS
        [ "$device" = cpu ] && [ -z "$FULL" ] && export TGC_CFLAGS="-O0 -DTGC_CALLS"
        # kernels run for a moment, on an emulator that is optimised: clang, where that is, compiles
        # them at -O0 in a quarter of the time of g++ -Og
        [ -z "$quick_cxx" ] || unset CXX
        [ "$device" != cpu ] && [ -n "$quick_cxx" ] && export CXX=$quick_cxx && TGC_CXXFLAGS=-O0
        [ "$device" = sm_90a ] && export TGC_EMULATE_ARCH=sm_90a && played=emulate
        # shellcheck disable=SC2086
        "$TGC" check $options --device "$played" > "$out/log" 2>&1
        rc=$?
        # a compiler that is there must take what is emitted
        [ $rc -eq 4 ] && grep -q refuses "$out/log" && rc=1
        say $rc "$name $device" "$out/log"
done < tests/e2e/check/cases.txt
unset TGC_EMULATE_ARCH TGC_CFLAGS
[ -z "$quick_cxx" ] || unset CXX
TGC_CXXFLAGS=$cxxflags

"$TGC" check models/gpt.lua --tf32 --dtype bf16 > "$out/log" 2>&1
[ $? -eq 2 ] && grep -q -- '--tf32 is for --dtype f32, and --dtype is bf16' "$out/log"
say $? "--tf32 with bf16 is a mistake" "$out/log"

TGC_EMULATE_ARCH=sm_80 "$TGC" check models/gpt.lua -D n_layer=1 -D ctx=8 --device emulate > \
        "$out/log" 2>&1
[ $? -eq 2 ] && grep -q 'TGC_EMULATE_ARCH=sm_80: the emulator plays sm_90a' "$out/log"
say $? "an architecture that the emulator does not play" "$out/log"

# ---- several sequences at once: a plan for them has a decode program for 2, 4, 8, 16 and all ----

for m in "gpt.lua --dtype bf16 -D n_embd=40" \
        "llama.lua --dtype f16 -D n_embd=48 -D n_kv_head=2 -D head_dim=12 -D n_ff=88" \
        "naive_moe.lua -D n_embd=40"; do
        # shellcheck disable=SC2086
        "$TGC" compile models/$m -D vocab=67 -D n_layer=1 -D n_head=4 -D ctx=32 -b 21 --mode infer \
                -o "$out/batch.plan" > "$out/log" 2>&1 &&
                "$TGC" check "$out/batch.plan" --device emulate > "$out/log" 2>&1 &&
                        grep -q '^decode4 .* ok$' "$out/log"
        say $? "21 sequences, ${m%% *}" "$out/log"
done

"$TGC" compile tests/e2e/check/views.lua -D kind=slices --mode infer -o "$out/slices.plan" > \
        "$out/log" 2>&1 &&
        "$TGC" check "$out/slices.plan" --device cpu > "$out/log" 2>&1
say $? "slices of an axis before the tokens" "$out/log"

# ---- orders: two training steps and the logits of a text, bit by bit ----

small="-D n_layer=1 -D n_embd=24 -D n_head=2 -D n_kv_head=1 -D head_dim=12 -D n_ff=20 -D ctx=16
        -D n_expert=3"
printf 'the quick brown fox jumps over the lazy dog; %.0s' 1 2 3 4 5 6 7 8 > "$out/text"
echo 1 2 3 4 5 6 7 8 9 > "$out/ids"
for order in forward backward 7; do
        # shellcheck disable=SC2086
        TGC_EMULATE_ORDER=$order "$TGC" train models/moe.lua $small --data "$out/text" \
                --tokenizer char --max_iters 2 --eval_iters 1 -b 2 --out_dir "$out/$order" \
                --device emulate -q > "$out/log" 2>&1 || { rc=$?; break; }
        TGC_EMULATE_ORDER=$order "$TGC" eval "$out/$order/model.plan" --ids "$out/ids" \
                --logits "$out/$order.npy" --device emulate -q > "$out/log" 2>&1 ||
                { rc=$?; break; }
        rc=0
        cmp "$out/forward/state.safetensors" "$out/$order/state.safetensors" >> "$out/log" 2>&1 ||
                rc=1
        cmp "$out/forward.npy" "$out/$order.npy" >> "$out/log" 2>&1 || rc=1
        [ $rc -eq 0 ] || break
done
say $rc "orders: the same bits" "$out/log"

# ---- sanitizers over the emulated kernels ----

asan=$(g++ -print-file-name=libasan.so 2> /dev/null)
if [ -z "$FULL" ]; then
        :
elif [ -e "$asan" ]; then
        for model in models/moe.lua tests/e2e/check/heads.lua tests/e2e/check/maps.lua; do
                opts=
                [ $model = models/moe.lua ] && opts="$small -D vocab=65"
                # shellcheck disable=SC2086
                LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 TGC_CXXFLAGS="-O1 -fsanitize=address" \
                        "$TGC" check $model $opts --device emulate > "$out/log" 2>&1
                say $? "sanitized $model" "$out/log"
        done
        # random indices of all kinds: memory is what matters, values depend on how a float was
        # rounded
        for seed in $(seq 1 "${SEEDS:-20}"); do
                flags="-O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
                LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 TGC_CFLAGS=$flags \
                        "$TGC" check tests/e2e/check/indices.lua -D seed=$seed --device cpu \
                        > "$out/log" 2>&1
                case $? in
                0 | 3 | 7) say 0 "sanitized indices $seed" "$out/log" ;;
                *) say 1 "sanitized indices $seed" "$out/log" ;;
                esac
        done
else
        echo "skip sanitized: g++ has no libasan"
fi

# ---- shared memory: what sm_86, sm_89 and sm_120 give a block ----

# makes_no_graph FILE: of models/, a part of other files
makes_no_graph() {
        case $1 in
        */blocks.lua | */config*.lua | */decoder.lua | */families.lua | */gguf*.lua) ;;
        *) return 1 ;;
        esac
}
for model in models/*.lua; do
        makes_no_graph "$model" && continue
        for dtype in f32 bf16; do
                "$TGC" dump "$model" --program --dtype $dtype --mode both -b 8 -D ctx=1024 \
                        -D n_layer=3 --block-size 1024 2>> "$out/err"
        done
done | awk '/^kernel / {
                    n++
                    for (i = 2; i < NF; i++)
                            if ($i == "smem" && $(i + 1) > 99 * 1024) {
                                    print $2, $(i + 1)
                                    bad = 1
                            }
            }
            END { print n + 0, "kernels"; exit bad || !n }' > "$out/log"
say $? "shared memory of real sizes" "$out/log"

# ---- on Hopper, one token's attention is done by the kernel that makes its q, k and v ----

llama="models/llama.lua -D n_layer=3 -D n_embd=256 -D n_head=8 -D n_kv_head=2 -D head_dim=32"
falcon="models/falcon.lua -D n_layer=3 -D n_embd=64 -D n_head=4 -D n_kv_head=1 -D n_ff=256"
for m in "3 models/gpt.lua -D n_layer=3" "3 $llama -D ctx=512" \
        "0 tests/e2e/check/apart.lua" "0 tests/e2e/check/apart.lua -D keys=true" \
        "0 $falcon -D vocab=300"; do
        # none: what attention gives is multiplied by a gate made later; others read k; a product
        # makes the MLP's inputs, too
        want=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump $m --program --dtype bf16 --mode infer -q | awk -v want="$want" '
                /^form sm_90a .* cluster 8$/ { cluster[$3] = 1 }
                /^program/ { in_decode = $2 == "decode" }
                /^run/ && in_decode && cluster[$2] { one++ }
                /^run k[0-9]*_attention/ && in_decode && / sm_90a 0 / { none++ }
                END { print one + 0, "launches in clusters,", none + 0, "with nothing to do"
                      exit one != want || none != want }' > "$out/log"
        say $? "attention of one token: $m" "$out/log"
done

# ---- ... and of several sequences Hopper has a form of its own ----

# no: four queries without tensor cores
for m in "yes models/gpt.lua -D n_layer=1 -b 8" "yes models/llama.lua -D n_layer=1 -b 8 -c 2048" \
        "no models/llama.lua -D n_layer=1 -D head_dim=96 -b 8 -c 2048"; do
        want=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump $m --cuda --dtype bf16 --mode infer -q | awk -v want="$want" '
                /^ *attention_decode_(cluster|ring)</ { n++ }
                /^ *attention_decode_task</ { all++ }
                END { print n + 0, "of Hopper beside", all + 0
                      exit !all || (n > 0) != (want == "yes") }' > "$out/log"
        say $? "caches of several sequences: $m" "$out/log"
done

# ---- a small vocabulary's logits, loss and gradients are one launch; what is beside it there waits
# by itself ----

for m in "1 tinylm.lua -b 8 -D vocab=65 --block-size 192 --dtype bf16" \
        "1 naive_gpt.lua -b 16 -D vocab=80 --block-size 64" \
        "0 tinylm.lua -b 8 -D vocab=129 --block-size 192 --dtype bf16" \
        "0 tinylm.lua -b 8 -D vocab=65 --block-size 192" \
        "0 tinylm.lua -b 64 -D vocab=65 --block-size 192 --dtype bf16"; do
        # none: too many columns; w in float32 too large for a block; rows so many that dw wants
        # parts of K
        want=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump models/$m --cuda --mode train -q | awk -v want="$want" '
                /^extern "C"/ { waits = short = 0 }
                /^ *pdl_wait\(\);/ { waits++; last = NR }
                /^ *ce_small_vocab_task</ { n++; short = 1; bad += waits }
                /^ *bucket_task</ && short { beside++; bad += last != NR - 1 }
                END { print n + 0, "kernels,", beside + 0, "with others beside;",
                            bad + 0, "wait where they should not"
                      exit n != want || bad || n && !beside }' > "$out/log"
        say $? "loss of a small vocabulary: $m" "$out/log"
done

# ---- on Hopper, a product whose rows are a few tiles wide does the norm that reads them ----

for m in "12 models/tinylm.lua -b 8 --block-size 192 --dtype bf16" \
        "4 models/naive_gpt.lua -b 16 --block-size 64" \
        "8 models/naive_gpt.lua -b 8 --block-size 64" \
        "0 models/gpt.lua -b 4 -D n_layer=2 --block-size 1024 --dtype bf16" \
        "0 models/tinylm.lua -b 1 -D n_embd=1152 --dtype bf16"; do
        # half: blocks that would share multiprocessors; none: tiles that blocks take in turns, rows
        # wider than a cluster
        want=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump $m -D vocab=65 --program --mode train -q | awk -v want="$want" '
                /^program/ { in_step = $2 == "step" }
                /^run k[0-9]*_(rms|layer)norm / && in_step && / sm_90a 0 / { none++ }
                END { print none + 0, "norms with nothing to do"; exit none != want }' > "$out/log"
        say $? "norms of products: $m" "$out/log"
done

# ---- on Hopper, large products leave their results to the copy engine, and where consumers take
# turns their reads; q, k and v that are turned do not lie as they come ----

for m in "12 1 2 gpt.lua" \
        "13 1 3 llama.lua -D n_embd=1024 -D n_ff=4096 -D n_head=16 -D n_kv_head=4"; do
        # how many leave one result, at least, two, and their reads, at least
        one=${m%% *} m=${m#* }
        two=${m%% *} m=${m#* }
        reads=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump models/$m -D vocab=50304 -D n_layer=2 -b 16 --dtype bf16 --cuda --mode train \
                -q | grep -oE '(boxed|fetched)<[0-9]*>\(epilogue.*map_[cd]\)' |
                awk -v one="$one" -v two="$two" -v reads="$reads" \
                        '{ n[/map_d/]++; r += /fetched.*map_r/ }
                        END { print n[0] + 0, "of one,", n[1] + 0, "of two,", r + 0, "of reads"
                              exit n[0] < one || n[1] != two || r < reads }' > "$out/log"
        say $? "results by the copy engine: $m" "$out/log"
done

# ---- sums that nothing waits for gather, in a large step as well ----

"$TGC" dump models/gpt.lua -D vocab=50304 --dtype bf16 -b 32 --program --mode train -q | awk '
        /^program/ { in_step = $2 == "step" }
        /^run k[0-9]*_(norm|colsum_parts)/ && in_step { n++ }
        END { print n + 0, "launches of sums"; exit !n || n > 12 }' > "$out/log"
say $? "sums of a large step" "$out/log"

# ---- one token's weights stay in L2 where they all fit: its products say so, and nothing else does
# ----

# at least so many kernels; none: 248 MB
for m in "2 models/tinylm.lua -D n_layer=1" "0 models/gpt.lua"; do
        want=${m%% *} m=${m#* }
        # shellcheck disable=SC2086
        "$TGC" dump $m --cuda --dtype bf16 --mode infer -q | awk -v want="$want" '
                /^#define TGC_WEIGHTS_STAY/ { stay++; next_one = 1 }
                /^#include/ && next_one { next_one = 0; if ($2 !~ /gemv|attend/) other++ }
                END { print stay + 0, "kernels,", other + 0, "others"
                      exit want ? stay < want || other : stay }' > "$out/log"
        say $? "weights that stay in L2: $m" "$out/log"
done

# ---- of one token, who is asked to announces the next launch only when it has waited itself ----

"$TGC" dump models/moe.lua --cuda --dtype bf16 --mode infer -D n_layer=1 -D n_embd=768 \
        -D n_ff=3072 -D head_dim=96 -D n_head=8 -D n_kv_head=8 -q | awk '
        /^\/\/@ unit/ { late_before = late; late = waits = calls = 0 }
        /^#define TGC_PDL_AFTER_WAIT 1/ { late = 1 }
        /^ *pdl_launch\(\);/ { both += late }
        /^ *pdl_wait\(\);/ { waits = 1 }
        /^ *grouped_rows_task<.*a.gates/ { n++; bad += waits || !late_before }
        END { print n + 0, "kernels that know their experts early,", bad + 0, "too early or late,",
                    both + 0, "that announce twice"
              exit !n || bad || both }' > "$out/log"
say $? "experts' weights come early" "$out/log"

"$TGC" dump models/llama.lua --cuda --dtype bf16 --mode infer -D n_layer=2 -q | awk '
        /^\/\/@ unit/ { bound = 0 }
        /__launch_bounds__\(256, 3\)/ { bound = 1 }
        /^ *gemv_task<bf16, 1, 3072, / { n++; bad += !bound }
        /^ *gemv_task<bf16, 1, 16384, / { n++; bad += bound }
        END { print n + 0, "kernels,", bad + 0, "with other bounds"; exit n < 3 || bad }' > \
                "$out/log"
say $? "blocks that are there at once: models/llama.lua" "$out/log"

# ---- NVRTC ----

nvrtc() {       # nvrtc MODEL ARCH OPTIONS...
        local model=$1 arch=$2 rc
        shift 2
        "$TGC" compile "$model" -c 64 -b 2 "$@" --target "$arch" -o "$out/plan" -q > "$out/log" 2>&1
        rc=$?
        [ $rc -eq 4 ] && grep -q refuses "$out/log" && rc=1
        [ $rc -eq 2 ] && grep -q 'does not know the architecture' "$out/log" && rc=4
        say $rc "NVRTC $arch $model $*" "$out/log"
}

if [ -z "$FULL" ]; then
        nvrtc tests/e2e/check/gate.lua sm_90a --dtype bf16 --mode train
        exit
fi
for arch in sm_80 sm_90a sm_120; do
        nvrtc models/gpt.lua $arch --tf32 --mode train -D n_layer=1 -b 8 --block-size 1024 -c 1024
done
for arch in sm_80 sm_86 sm_89 sm_90a sm_100 sm_120; do
        for dtype in f32 bf16 f16; do
                for model in heads maps pairs; do
                        nvrtc tests/e2e/check/$model.lua $arch --dtype $dtype
                done
        done
        for model in models/*.lua; do
                makes_no_graph "$model" && continue
                nvrtc "$model" $arch --dtype bf16 -D n_layer=1 -D vocab=4096
        done
        for model in gpt llama moe; do
                nvrtc models/$model.lua $arch --dtype bf16 --mode train -D n_layer=1 -D vocab=4099 \
                        -b 8 -c 1024
        done
        nvrtc models/llama.lua $arch --dtype f16 --mode train -D n_layer=1 -D vocab=4099 \
                -D head_dim=128 -b 2 -c 512
done
