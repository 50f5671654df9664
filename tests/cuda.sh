#!/bin/bash
# cuda.sh BUILD: the tests that need a GPU; `make check-cuda`.
#
#   kernels   every kernel family by itself, compiled by nvcc, against plain loops in double
#   check     every model file, f32, bf16 and f16: logits, loss and gradients against the evaluator
#   same      optimisers, adapters, samples, drafts, grammars and embeddings: what the CPU says
#   data      reference ids, logits and training runs (tests/data, and ../shared/data where that is)
#   memory    a session leaves device memory as it was, to the byte; the sessions' other tests
#   sanitize  compute-sanitizer over a training and a decode step of a small Llama and a small MoE
#
# ONLY='REGEX' runs the cases whose names match it.
# TGC names another binary, JOBS how many cases run side by side (memory: alone). Parts: cuda.sh
# BUILD PART..., `data` also by program (data_test_infer). KERNEL_TESTS is a folder with the
# programs of `kernels`, built elsewhere.
build=$1
shift
parts=${*:-memory kernels check same data sanitize}
tgc=${TGC:-$build/tgc}
out=$build/cuda
mkdir -p "$out" build              # some tests write to build/
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$PWD/$build/cache}
cases=$out/cases results=$out/results
: > "$cases"
: > "$results"

# A case is a line `LIMIT NAME|COMMAND`; run_cases does all of them and forgets them.
try() { [[ ! $1 =~ ${ONLY:-} ]] || echo "${LIMIT:-200} $1|${*:2}" >> "$cases"; }
skip() { echo "skip $1: $2" | tee -a "$results"; }

run_case() {
        local limit=${1%% *} name=${1#* } log
        local command=${name#*|}
        name=${name%%|*}
        log=$out/$(echo "$name" | tr ' /' '__').log
        if ! timeout -k 5 "$limit" bash -c "$command" > "$log" 2>&1; then
                echo "not ok $name"
                grep -v '^ok \|^skip ' "$log" | tail -8 | sed 's/^/        /'
        elif grep -q '^skip ' "$log" && ! grep -q '^ok ' "$log"; then
                echo "skip $name: $(sed -n 's/^skip //p' "$log" | head -1)"     # nothing in it ran
        else
                echo "ok $name"
        fi
}
export -f run_case
export out

run_cases() { # JOBS
        tr '\n' '\0' < "$cases" | xargs -0 -r -P "$1" -I{} bash -c 'run_case "$1"' - {} |
                tee -a "$results"
        : > "$cases"
}

of_64="-D vocab=65 -D ctx=64 -D n_layer=2 -D n_embd=64 -D n_head=4"
of_32="-D vocab=65 -D ctx=32 -D n_layer=2 -D n_head=4 -D n_embd=64"
tiny_llama="models/llama.lua $of_64 -D n_kv_head=2 -D head_dim=16 -D n_ff=96"
tiny_moe="models/moe.lua $of_64 -D n_kv_head=2 -D head_dim=16 -D n_ff=48 -D n_expert=4"
odd="-D vocab=67 -D ctx=33 -D n_layer=1"
models=(
        "models/gpt.lua -D vocab=65 -D ctx=64 -D n_layer=2 -D n_head=4 -D n_embd=64"
        "$tiny_llama"
        "models/llama.lua $odd -D n_embd=36 -D n_head=6 -D n_kv_head=3 -D head_dim=6 -D n_ff=50"
        "$tiny_moe"
        "models/naive_gpt.lua -D vocab=65 -D ctx=32 -D n_layer=2 -D n_head=4 -D n_embd=64"
        "models/naive_gpt.lua -D variant=custom $of_32"
        "models/naive_moe.lua $of_32 -D n_expert=4"
        "models/lhk_gpt.lua -D vocab=65 -D ctx=32 -D n_layer=2 -D n_head=4 -D n_embd=64 -D n_ff=128"
        "models/tinylm.lua -D vocab=65 -D ctx=64 -D n_layer=2 -D n_head=4 -D n_embd=64"
)

kernels() {
        local build_it at
        if [ -z "$KERNEL_TESTS" ] && ! command -v nvcc > /dev/null; then skip kernels "no nvcc"; \
                return; fi
        for t in kernels rows_test route_test update_test loss_test gemm_test gemv_test \
                stored_gemv_test stored_gemm_test stored_stream_test fp8_gemm_test attention_test \
                attention_tf32_test ring_repeat_test; do
                build_it=(nvcc -O1 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1
                        $(printf -- '-I%s ' codegen/forms codegen/kernels/*/) -Iruntime \
                                -Iruntime/weights -Itests -Itests/emulate
                        "tests/emulate/$t.cu" -o "$out/$t" '&&')
                at=$out
                [ -x "$KERNEL_TESTS/$t" ] && build_it=() at=$KERNEL_TESTS
                LIMIT=500 try "kernels $t" "${build_it[@]}" "$at/$t"
        done
}

check() {
        # twelve layers of eight experts, two a token, at the size naive.cu runs: it says 200 tokens
        # after 16, each of which the evaluator must choose too
        try "check naive_moe 12x768 says 200 tokens" $tgc compile models/naive_moe.lua -D ctx=256 \
                --mode infer --target cuda -o "$out/moe.plan" '&&' $tgc check "$out/moe.plan" \
                --tokens 16 --greedy 200 --device cuda
        # a prompt that prefill_long takes
        try "check llama after 560 tokens" $tgc compile models/llama.lua -D vocab=65 -D ctx=600 \
                -D n_layer=2 -D n_embd=64 -D n_head=4 -D n_kv_head=2 -D head_dim=16 -D n_ff=96 \
                --mode infer --dtype bf16 --target cuda -o "$out/long.plan" '&&' $tgc check \
                "$out/long.plan" --tokens 560 --greedy 16 --device cuda
        # products in pairs of blocks that share K, of one sequence and of three, then of chunks
        # with a cache before them
        local wide="models/gpt.lua -D vocab=300 -D n_layer=1 -D n_embd=768 -D n_head=12"
        wide="$wide --mode infer --target cuda"
        try "check gpt after 560 tokens" $tgc compile $wide -D ctx=600 --dtype bf16 \
                -o "$out/joint.plan" '&&' $tgc check "$out/joint.plan" --tokens 560 --greedy 8 \
                --device cuda
        try "check 3 gpts after 130 tokens" $tgc compile $wide -D ctx=150 -b 3 --dtype f16 \
                -o "$out/joint3.plan" '&&' $tgc check "$out/joint3.plan" --tokens 130 --greedy 8 \
                --device cuda
        try "check gpt after chunks of 200 tokens" $tgc compile $wide -D ctx=600 --chunk-size 200 \
                --dtype bf16 -o "$out/chunks.plan" '&&' $tgc check "$out/chunks.plan" --tokens 560 \
                --greedy 8 --device cuda
        try "check a loss in four chunks" bash tests/e2e/train/chunks.sh "$tgc" "$out"
        try "check training with --offload" bash tests/e2e/train/offload.sh "$tgc" "$out"
        # a loss long enough for the second form that products have on sm_90a
        for v in 8200 8193; do
                LIMIT=400 try "check gpt V=$v" $tgc check models/gpt.lua -D vocab=$v -D ctx=1024 \
                        -D n_layer=1 -D n_head=4 -D n_embd=256 -b 4 --block-size 1024 --dtype bf16 \
                        --device cuda
        done
        # experts' products there, gathered and in order, K and rows no multiple of a tile; every
        # token takes all experts, or 16-bit rounding would choose others for some
        try "check naive_moe, 3 experts of 999 slots" $tgc check models/naive_moe.lua -D n_layer=1 \
                -D n_embd=520 -D n_head=13 -D vocab=65 -D ctx=333 -D n_expert=3 -D top_k=3 \
                --dtype bf16 -b 3 --block-size 333 --device cuda
        try "check moe, 4 experts of 900 slots" $tgc check models/moe.lua -D n_layer=1 -D vocab=65 \
                -D ctx=300 -D n_embd=584 -D n_head=4 -D n_kv_head=2 -D head_dim=64 -D n_ff=1288 \
                -D n_expert=4 -D top_k=4 --dtype f16 -b 3 --block-size 300 --device cuda
        # attention of float32 by tf32, three products or one
        local heads="-D n_embd=256 -D n_head=4 -D n_kv_head=2 -D head_dim=128"
        for m in "gpt.lua -D n_embd=128 -D n_head=2 -b 3 --block-size 200" \
                 "gpt.lua -D n_embd=128 -D n_head=2 -b 3 --block-size 200 --tf32" \
                 "llama.lua $heads -D n_ff=96 -D window=90 -b 2 --block-size 170"; do
                try "check $m" $tgc check models/$m -D vocab=65 -D ctx=200 -D n_layer=1 \
                        --device cuda
        done
        # attention's second form on sm_90a: heads of 64 and 128, lengths that are no multiple of a
        # tile
        for m in "llama.lua -D head_dim=128 --dtype f16 -b 2 --block-size 200" \
                 "llama.lua -D head_dim=64 --dtype bf16 -b 3 --block-size 300"; do
                try "check $m" $tgc check models/$m -D vocab=65 -D ctx=300 -D n_layer=1 \
                        -D n_embd=256 -D n_head=4 -D n_kv_head=2 -D n_ff=96 --device cuda
        done
        # and its gradients', which wants more blocks, as a block of 256 queries does; the last two
        # are one launch
        for m in "-D head_dim=64 -D n_head=16 -b 4 --block-size 200" \
                "-D head_dim=64 -D n_head=16 -b 9 --block-size 130" \
                "-D head_dim=128 -D n_head=16 -b 3 --block-size 333" \
                "-D head_dim=64 -D n_head=8 -b 5 --block-size 300" \
                "-D head_dim=128 -D n_head=8 -b 3 --block-size 333"; do
                try "check llama $m" $tgc check models/llama.lua $m -D n_kv_head=8 -D vocab=64 \
                        -D ctx=333 -D n_layer=1 -D n_embd=64 -D n_ff=128 --dtype bf16 --device cuda
        done
        # sequences that shared memory holds whole, a head in halves or not
        for m in "-b 3 --block-size 65 --dtype f16" "-b 7 --block-size 130 --dtype bf16" \
                "-b 3 --block-size 192 --dtype bf16" "-b 9 --block-size 200 --dtype bf16" \
                "-b 2 --block-size 256 --dtype f16"; do
                try "check llama $m" $tgc check models/llama.lua $m -D head_dim=64 -D n_head=8 \
                        -D n_kv_head=8 -D vocab=64 -D ctx=256 -D n_layer=1 -D n_embd=64 \
                        -D n_ff=128 --device cuda
        done
        # at once, of nearly as many heads as there are teams of blocks
        try "check llama, 64 heads of 777" $tgc check models/llama.lua -b 8 --block-size 777 \
                -D head_dim=64 -D n_head=8 -D n_kv_head=8 -D vocab=64 -D ctx=777 -D n_layer=1 \
                -D n_embd=64 -D n_ff=128 --dtype bf16 --device cuda
        # values of another width than keys, and DeepSeek's widths
        for m in "" "-D dk=24 -D dv=16 --dtype bf16" \
                "-D dk=12 -D dv=7 --dtype f16 -O0" \
                "-D dk=48 -D dv=64 -D ctx=48 --documents 3 --tokens 29 --dtype bf16" \
                "-D dk=192 -D dv=128 -D turned=64 -D ctx=150 -b 2 --block-size 150 --dtype bf16"
        do
                # shellcheck disable=SC2086
                try "check widths.lua $m" $tgc check tests/e2e/check/widths.lua $m -D dropout=0.1 \
                        --greedy 8 --device cuda
        done
        try "check products over blocks, two in a launch" $tgc check models/llama.lua -D n_layer=2 \
                -D n_embd=2048 -D n_head=64 -D n_kv_head=16 -D head_dim=64 -D n_ff=256 \
                -D vocab=256 -D ctx=16 --dtype f16 -b 1 --weight-type q4_k_m --tokens 1 \
                --greedy 12 --device cuda
        # ... of every way that codes reach the tensor cores, rows of W no multiple of a tile, one
        # sequence and five
        for w in "int4:128 --dtype f16" "int4:32 --dtype bf16" "nf4 --dtype f16" \
                "nf4 --dtype bf16" "fp8 --dtype f16" "q8_0 --dtype bf16"
        do
                # shellcheck disable=SC2086
                try "check products over blocks, $w" $tgc check models/llama.lua -D n_layer=1 \
                        -D n_embd=2304 -D n_head=18 -D n_kv_head=6 -D head_dim=128 -D n_ff=6400 \
                        -D vocab=999 -D ctx=40 -b 5 --weight-type $w --tokens 1 --greedy 12 \
                        --device cuda
        done
        # ... a prompt in blocks that stay, and 200 sequences, some of whose products are in such
        for w in int4:128 q4_k_m q6_k q8_0 nf4 fp8; do
                try "check a prompt over blocks, $w" $tgc check models/llama.lua -D n_layer=1 \
                        -D n_embd=1024 -D n_head=8 -D n_kv_head=8 -D head_dim=128 -D n_ff=1536 \
                        -D vocab=300 -D ctx=1200 --dtype bf16 -b 1 --weight-type $w \
                        --tokens 1100 --device cuda
        done
        LIMIT=500 try "check 200 sequences over blocks" $tgc check models/llama.lua -D n_layer=1 \
                -D n_embd=1024 -D n_head=8 -D n_kv_head=8 -D head_dim=128 -D n_ff=8192 \
                -D vocab=300 -D ctx=20 --dtype bf16 -b 200 --weight-type int4:128 --tokens 5 \
                --device cuda
        # activations of fp8, a scale for a token and for 128 columns; on sm_90a by fp8 tensor cores
        # from 48 rows on: rows and columns that are no multiple of a tile, a prompt in chunks, K
        # cut (70 sequences decode together), large sizes
        for w in fp8 fp8:128; do
                for dt in f32 bf16 f16; do
                        try "check --act fp8, $w $dt" $tgc check models/llama.lua -D n_layer=1 \
                                -D n_embd=384 -D n_head=6 -D n_kv_head=2 -D head_dim=64 \
                                -D n_ff=640 -D vocab=999 -D ctx=200 --dtype $dt -b 3 \
                                --weight-type $w --act fp8 --tokens 67 --device cuda
                done
        done
        # ... in blocks that stay, a prompt of 1,100 tokens
        for w in fp8 fp8:128; do
                try "check --act fp8 in blocks that stay, $w" $tgc check models/llama.lua \
                        -D n_layer=1 -D n_embd=1024 -D n_head=8 -D n_kv_head=8 -D head_dim=128 \
                        -D n_ff=1536 -D vocab=300 -D ctx=1200 --dtype bf16 -b 1 --weight-type $w \
                        --act fp8 --tokens 1100 --device cuda
        done
        # ... many sequences, whose 60 kernels compile for minutes; a long prompt
        LIMIT=500 try "check --act fp8, 70 sequences" $tgc check models/llama.lua -D n_layer=1 \
                -D n_embd=384 -D n_head=3 -D n_kv_head=1 -D head_dim=128 -D n_ff=640 \
                -D vocab=257 -D ctx=40 --dtype bf16 -b 70 --weight-type fp8:128 --act fp8 \
                --tokens 9 --device cuda
        LIMIT=500 try "check --act fp8, 1100 tokens" $tgc check models/llama.lua -D n_layer=1 \
                -D n_embd=640 -D n_head=5 -D n_kv_head=1 -D head_dim=128 -D n_ff=1408 \
                -D vocab=300 -D ctx=1200 --dtype bf16 -b 1 --weight-type fp8:128 --act fp8 \
                --tokens 1100 --device cuda
        try "check gate.lua" $tgc check tests/e2e/check/gate.lua --dtype bf16 -b 6 --block-size 58 \
                --tokens 58 --device cuda
        for dt in f32 bf16; do try "check pairs.lua $dt" $tgc check tests/e2e/check/pairs.lua \
                --dtype $dt --greedy 8 --device cuda; done
        for dt in f32 bf16; do try "check parts.lua $dt" $tgc check tests/e2e/check/parts.lua \
                --dtype $dt --recompute cheap --device cuda; done
        try "check widths.lua, masks" $tgc check tests/e2e/check/widths.lua -D mask=true \
                --tokens 29 --device cuda
        # documents: the portable form, then Hopper's: forward, dq with dkv, both in one launch
        try "check documents" $tgc check tests/e2e/check/heads.lua --documents 3 --tokens 29 \
                -D window=3 --device cuda
        try "packed documents learn what they learn apart" TGC_TEST_DEVICE=cuda \
                "$build/tests/test_documents"
        for m in "-D head_dim=64 -D n_kv_head=8 -b 3 --block-size 300 --dtype f16" \
                 "-D head_dim=64 -D n_kv_head=4 -b 6 --block-size 300 -D window=90 --dtype bf16" \
                 "-D head_dim=64 -D n_kv_head=8 -b 2 --block-size 530 --dtype bf16" \
                 "-D head_dim=128 -D n_kv_head=4 -b 6 --block-size 260 --dtype bf16" \
                 "-D head_dim=128 -D n_kv_head=8 -b 4 --block-size 300 --dtype bf16" \
                 "-D head_dim=64 -D n_kv_head=8 -b 7 --block-size 130 --dtype bf16"; do
                try "check documents $m" $tgc check models/llama.lua $m --documents 3 -D n_head=8 \
                        -D vocab=64 -D ctx=530 -D n_layer=1 -D n_embd=64 -D n_ff=128 --device cuda
        done
        # one token's q, k, v and attention in one launch, with a cache of several parts: a query to
        # a key, two, four, all
        heads="-D n_embd=256 -D n_head=4 -D n_kv_head=1 -D head_dim=64"
        for m in "gpt.lua -D n_embd=768 -D n_head=12 --dtype bf16" \
                "tinylm.lua -D n_embd=256 -D n_head=4 --dtype f16" \
                "llama.lua -D n_embd=288 -D n_head=6 -D n_kv_head=3 -D head_dim=48 -D n_ff=512" \
                "llama.lua -D n_embd=256 -D n_head=8 -D n_kv_head=2 -D head_dim=32 -D n_ff=512" \
                "llama.lua $heads -D n_ff=512 --dtype bf16" \
                "falcon.lua -D n_embd=64 -D n_head=4 -D n_kv_head=1 -D n_ff=256"; do
                # shellcheck disable=SC2086
                try "check $m says 200 tokens" $tgc check models/$m -D n_layer=2 -D vocab=300 \
                        -D ctx=320 --tokens 16 --greedy 200 --device cuda
        done
        # several queries a kv head by a launch of their own: parts of the cache in one cluster and
        # in two; a window
        local window="-D head_dim=128 -D n_head=3 -D n_kv_head=1 -D window=800"
        for m in "-D head_dim=64 -D n_head=8 -D n_kv_head=2 -b 2 --dtype bf16 --tokens 700" \
                 "-D head_dim=64 -D n_head=8 -D n_kv_head=2 -b 2 --dtype bf16 --tokens 1301" \
                 "$window -b 3 --dtype f16 --tokens 1001"; do
                # shellcheck disable=SC2086
                try "check llama $m" $tgc check models/llama.lua $m -D n_embd=128 -D n_ff=64 \
                        -D n_layer=1 -D vocab=67 -D ctx=2048 --greedy 8 --device cuda
        done
        # experts' weights before the launch before has ended; all experts, as above: of 115 tokens
        # one may be so near to two of them that 16 bits choose the other, and what it says then
        # differs by a tenth
        try "check moe says 100 tokens" $tgc check models/moe.lua -D n_layer=2 -D n_embd=256 \
                -D n_head=4 -D n_kv_head=2 -D head_dim=64 -D n_ff=1024 -D n_expert=4 -D top_k=4 \
                -D vocab=300 -D ctx=160 -b 1 --dtype bf16 --tokens 16 --greedy 100 --device cuda
        try "check moe, two of four experts, says 100 tokens" $tgc check models/moe.lua \
                -D n_layer=2 -D n_embd=256 -D n_head=4 -D n_kv_head=2 -D head_dim=64 -D n_ff=1024 \
                -D n_expert=4 -D vocab=300 -D ctx=160 -b 1 --tokens 16 --greedy 100 --device cuda
        # the next tokens of several sequences
        local moe="moe.lua -D n_embd=64 -D n_head=4 -D n_kv_head=2 -D head_dim=16 -D n_ff=48"
        heads="-D n_embd=288 -D n_head=6 -D n_kv_head=3 -D head_dim=48"
        for m in "gpt.lua -D n_embd=768 -D n_head=12 --dtype bf16" \
                "falcon.lua -D n_embd=64 -D n_head=4 -D n_kv_head=1 -D n_ff=256 --dtype f16" \
                "llama.lua $heads -D n_ff=4352 --dtype bf16" \
                "$moe -D n_expert=4 -D top_k=4 --dtype bf16" "$moe -D n_expert=4" \
                "gpt.lua -D n_embd=64 -D n_head=4"; do
                plan=$out/batch$((n_batch = n_batch + 1)).plan
                try "check $m, 40 sequences" $tgc compile models/$m -D n_layer=2 -D vocab=300 \
                        -D ctx=64 -b 40 --mode infer -o "$plan" '&&' $tgc check "$plan" \
                        --device cuda
        done
        # calls that decode and read prompts: heads whose rows have several queries, or one
        for m in "llama.lua -D n_embd=256 -D n_head=8 -D n_kv_head=2 -D head_dim=64 -D n_ff=512 \
--dtype bf16" "llama.lua -D n_embd=256 -D n_head=4 -D n_kv_head=1 -D head_dim=128 -D n_ff=512 \
-D window=40 --dtype f16" "gpt.lua -D n_embd=96 -D n_head=4"; do
                plan=$out/mixed$((n_batch = n_batch + 1)).plan
                try "check $m, mixed calls" $tgc compile models/$m -D n_layer=2 -D vocab=300 \
                        -D ctx=96 -b 6 --fast --mode infer -o "$plan" '&&' $tgc check "$plan" \
                        --device cuda
        done
        # logits by kernels/gemv/gemv_narrow.cuh
        heads="-D n_embd=288 -D n_head=6 -D n_kv_head=6 -D head_dim=48"
        for m in "llama.lua -D vocab=12000 $heads -D n_ff=96 --dtype bf16" \
                 "gpt.lua -D vocab=30000 -D n_embd=128 -D n_head=4"; do
                try "check $m" $tgc check models/$m -D n_layer=1 -D ctx=64 --tokens 8 --greedy 40 \
                        --device cuda
        done
        for keys in false true; do
                try "check apart.lua keys=$keys" $tgc check tests/e2e/check/apart.lua \
                        -D keys=$keys --greedy 60 --device cuda
        done
        for m in "gpt.lua -D ctx=300 -D n_embd=256 -D n_head=4 --block-size 300" \
                "naive_gpt.lua -D ctx=64 -D n_embd=128 -D n_head=4" \
                "naive_moe.lua -D ctx=64 -D n_embd=128 -D n_head=4 -D n_expert=4"; do
                try "check $m --tf32" $tgc check models/$m --tf32 -D vocab=65 -D n_layer=1 -b 4 \
                        --device cuda
        done
        try "check gpt.lua --tf32, large products' kernels" $tgc check models/gpt.lua --tf32 \
                -D vocab=67 -D n_layer=1 -D n_embd=72 -D n_head=2 -b 16 --block-size 41 \
                --tuned tests/e2e/check/tf32.txt --device cuda
        try "check weighted.lua" $tgc check tests/e2e/check/weighted.lua --device cuda
        for m in "${models[@]}"; do
                for dt in f32 bf16 f16; do
                        for o in 3 0; do
                                [ $o = 0 ] && [ $dt = f16 ] && continue
                                try "check $m $dt -O$o" $tgc check $m --dtype $dt -O$o --greedy 20 \
                                        --device cuda
                        done
                done
        done
}

same() {
        local n b dt plan
        # sequences in company say what they say alone, mixed calls of --fast too
        if [ -x "$build/tests/test_batch" ]; then
                LIMIT=500 try "same sequences in company" TGC_TEST_DEVICE=cuda \
                        "$build/tests/test_batch" on_the_gpu
        else
                skip "same sequences in company" "test_batch is not built"
        fi
        for n in $(bash tests/e2e/devices/same.sh "$tgc" "$out/same" cuda list); do
                try "same $n" bash tests/e2e/devices/same.sh "$tgc" "$out/same" cuda "$n"
        done
        # weights in blocks of every type: one row of x, several, tiles of 8 and 16 of them
        for b in 1 4 7 12; do
                for dt in f32 bf16; do
                        plan=$out/kinds$b$dt.plan
                        try "check kinds.gguf, blocks kept, $b x $dt" $tgc compile \
                                tests/data/gguf/kinds.gguf --weight-type keep --dtype $dt -b $b \
                                --mode infer -o "$plan" '&&' $tgc check "$plan" --device cuda
                done
        done
}

data() {
        local all="test_infer test_infer_models test_infer_vectors test_experts test_train:pytorch"
        for t in ${*:-$all}; do
                set -- ${t/:/ }
                [ -x "$build/tests/$1" ] || { skip "data $1" "not built"; continue; }
                LIMIT=550 try "data $t" TGC=$tgc TGC_TEST_DEVICE=cuda "$build/tests/$1" $2
        done
}

# In one process, so that what is left behind would show: after it ends the driver takes everything
# back.
memory() {
        [ -x "$build/tests/test_session" ] || { skip memory "test_session is not built"; return; }
        LIMIT=500 try "memory and the sessions' tests on the GPU" "$build/tests/test_session" cuda
        # before the first step a run says within 5% what the driver counts at its end
        cat > "$out/forecast.sh" << 'END'
        "$1" train gpt --data tests/data/text/stories.txt --tokenizer char --dtype bf16 -b 4 \
                --block_size 256 --max_iters 6 --val_fraction 0 --json --device cuda \
                --out_dir "$2/forecast" ${@:3} > "$2/forecast.json" || exit
        awk -F '[:,]' '/memory_forecast_bytes/ { f = $2 } /memory_driver_bytes/ { d = $2 }
                END { print f, d; exit !(d > 0 && d > 0.95 * f && d < 1.05 * f) }' \
                "$2/forecast.json"
END
        for more in "-D n_layer=4 -D n_embd=512 -D n_head=8" "--gradient_accumulation_steps 2"; do
                try "forecast of memory $more" bash "$out/forecast.sh" "$tgc" "$out" "$more"
        done
        run_cases 1
}

sanitize() {
        if ! command -v compute-sanitizer > /dev/null; then skip sanitize "no compute-sanitizer"; \
                return; fi
        for tool in memcheck racecheck; do
                for m in "$tiny_llama" "$tiny_moe"; do
                        for dt in f32 bf16; do
                                # an empty cache off, so that the kernels are there; one step each
                                # of training and decoding
                                try "$tool $m $dt" TGC_SYNC=1 compute-sanitizer --tool $tool \
                                        --error-exitcode 99 "${TGC_BIN:-$tgc}" check $m \
                                        --dtype $dt --device cuda --tokens 3
                        done
                done
        done
}

for p in $parts; do
        case $p in data_*) data "${p#data_}" ;; *) $p ;; esac
done
run_cases "${JOBS:-$((($(nproc) + 1) / 2))}"
count() { grep -c "^$1 " "$results"; }
echo "$(count ok) passed, $(count 'not ok') failed, $(count skip) skipped"
! grep -q '^not ok ' "$results"
