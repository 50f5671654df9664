#!/bin/bash
# test_quantize.sh: `tgc quantize`: a GGUF file to another one that runs; what is refused.
. "$(dirname "$0")/shell.sh"
top=$PWD
g=$top/tests/data/gguf
start quantize

# kinds.gguf has rows of 256, so every type fits
p=
for t in q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k q5_k_m q6_k iq4_nl \
        iq4_xs; do
        [ "$p" ] || p=$(tgc 0 'bits a value' quantize "$g/kinds.gguf" --type $t -o $t.gguf)
        [ "$p" ] || p=$(tgc 0 '' info $t.gguf)
        [ "$p" ] || grep -qi "file_type" out || p="no file type: $(cat out)"
done
say every_type "$p"

p=$(tgc 0 '' run q8_0.gguf --prompt-ids 1,5,9 --temp 0 -n 4 --print-ids --device cpu)
grep -q 'no C compiler' err && p=
[ "$p" ] || [ "$(wc -w < out)" -ge 4 ] || p="$(cat out)"
[ "$p" ] || p=$(tgc 0 '' quantize q8_0.gguf --type q8_0 -o again.gguf -q)
[ "$p" ] || cmp -s q8_0.gguf again.gguf || p="what is in blocks changes"
say a_file_that_runs "$p"

p=$(tgc 0 '' quantize "$g/kinds.gguf" --type q4_k_m --keep 'blk.0.attn_q.weight=q8_0' \
        --keep 'blk.*.attn_q.weight=f16' -o keep.gguf)
[ "$p" ] || p=$(tgc 0 '' info keep.gguf)
[ "$p" ] || grep -q 'blk.0.attn_q.weight.*Q8_0' out || p="$(grep attn_q out)"
[ "$p" ] || p=$(tgc 2 'PATTERN=TYPE' quantize "$g/kinds.gguf" --type q4_k_m --keep 'output.weight' \
        -o x.gguf)
[ "$p" ] || p=$(tgc 2 'PATTERN=TYPE' quantize "$g/kinds.gguf" --type q4_k_m \
        --keep 'blk.0.attn_q.weight=iq1_s' -o x.gguf)
[ "$p" ] || p=$(tgc 2 'no tensor has such a name' quantize "$g/kinds.gguf" --type q4_k_m \
        --keep 'nothing=f16' -o x.gguf)
say kept "$p"

# folders: kl of a random small model, whose logits are large
f=$top/tests/data/families/llama
p=
seq 1 64 > ids
for t in nf4:0.5 int4:32:0.5 fp8:0.05; do
        [ "$p" ] || p=$(tgc 0 '21 of 30 tensors' quantize "$f" --type ${t%:*} -o folder)
        [ "$p" ] || p=$(tgc 0 '' eval folder --ids ids --window 64 --kl "$f" --device cpu --json -q)
        grep -q 'no C compiler' err && p= && break
        kl=$(sed -n 's/.*"kl_mean":[ \t]*\([-0-9.e]*\).*/\1/p' out)
        [ "$p" ] || awk "BEGIN { exit !($kl > 0 && $kl < ${t##*:}) }" || p="$t: KL is $kl"
        rm -rf folder
done
[ "$p" ] || p=$(tgc 0 '18 of 30 tensors' quantize "$f" --type nf4 --keep '*.q_proj.weight' \
        -o folder)
[ "$p" ] || p=$(tgc 2 'quantised already' quantize folder --type fp8 -o folder2)
[ "$p" ] || p=$(tgc 2 'groups do not divide' quantize "$f" --type int4:128 -o folder3)
[ "$p" ] || p=$(tgc 2 'no linears' quantize "$top/tests/data/families/gpt2" --type nf4 -o folder3)
[ "$p" ] || p=$(tgc 2 "keep nothing: no tensor has such a name$" quantize "$f" --type nf4 \
        --keep nothing -o folder3)
[ "$p" ] || p=$(tgc 2 'give PATTERN alone' quantize "$f" --type nf4 --keep '*.q_proj.weight=f16' \
        -o folder3)
[ "$p" ] || p=$(tgc 8 'nosuch: no such file or folder' quantize nosuch --type nf4 -o folder3)
[ "$p" ] || [ ! -e folder3 ] || p="something was written"
say folders "$p"

# in blocks, as quantised
p=
for t in nf4:NF4 int4:32:I4_32 fp8:F8_64; do
        rm -rf folder
        [ "$p" ] || p=$(tgc 0 '' quantize "$f" --type ${t%:*} -o folder -q)
        [ "$p" ] || p=$(tgc 0 '' compile folder --weight-type keep --dtype f32 -o keep.plan -q)
        [ "$p" ] || p=$(tgc 0 '' info keep.plan)
        [ "$p" ] || grep -q "in blocks .* of ${t##*:}" out || p="no ${t##*:}: $(cat out)"
        [ "$p" ] || p=$(tgc 0 '' check keep.plan --device cpu)
        grep -q 'no C compiler' err && p= && break
        [ "$p" ] || p=$(tgc 0 '' check keep.plan --device emulate)
done
say folders_in_blocks "$p"

# llama2.c's version 2 stays as it is, too: C 64, F 96, one layer, V 64, groups of 32
matrix() { # of $1 values: bytes of some file, then scales of 0.01
        head -c "$1" "$top/tests/data/models/story/story.bin"
        for ((k = 0; k < $1; k += 32)); do printf '\012\327\043\074'; done
}
{
        printf '24ka\2\0\0\0\100\0\0\0\140\0\0\0\1\0\0\0'
        printf '\2\0\0\0\1\0\0\0\100\0\0\0\40\0\0\0\1\40'
        head -c 218 /dev/zero
        for ((k = 0; k < 192; k++)); do printf '\0\0\200\077'; done # norms: 1
        for n in 4096 4096 2048 2048 4096 6144 6144 6144; do matrix $n; done
} > v2.bin
p=$(tgc 0 '' compile v2.bin --weight-type keep -o keep.plan -q)
[ "$p" ] || p=$(tgc 0 '' info keep.plan)
[ "$p" ] || grep -q "in blocks .* of I8_32" out || p="no I8_32: $(cat out)"
[ "$p" ] || p=$(tgc 0 '' run keep.plan --prompt-ids 5,9 --temp 0 -n 16 --print-ids --device cpu)
if grep -q 'no C compiler' err; then p=; else
        mv out kept
        [ "$p" ] || p=$(tgc 0 '' run v2.bin --prompt-ids 5,9 --temp 0 -n 16 --print-ids \
                --device cpu)
        [ "$p" ] || [ "$(wc -w < out)" -ge 16 ] || p="$(cat out)"
        [ "$p" ] || cmp -s out kept || p="other ids: $(cat kept), decoded $(cat out)"
        [ "$p" ] || p=$(tgc 0 '' check keep.plan --device cpu)
        [ "$p" ] || p=$(tgc 0 '' check keep.plan --device emulate)
fi
say llama2c_in_blocks "$p"

# importance measured here: the file and --calibrate give the same bytes; errors are weighed by it
p=
cp -r "$f" speaks && cp "$top/examples/shakespeare/tokenizer.json" speaks
for i in 1 2 3 4; do echo "Before we proceed any further, hear me speak."; done > text
p=$(tgc 0 'means of' imatrix "$g/kinds.gguf" --ids ids --window 16 -o im.gguf --device cpu)
if grep -q 'no C compiler' err; then p=; else
        [ "$p" ] || p=$(tgc 0 '' info im.gguf)
        [ "$p" ] || grep -q 'general.type .* imatrix' out || p='info prints no general.type'
        [ "$p" ] || p=$(tgc 0 '' quantize "$g/kinds.gguf" --type q3_k_m --imatrix im.gguf -o a.gguf)
        [ "$p" ] || p=$(tgc 0 '' quantize "$g/kinds.gguf" --type q3_k_m -o b.gguf)
        [ "$p" ] || ! cmp -s a.gguf b.gguf || p="importance changes nothing"
        [ "$p" ] || p=$(tgc 0 '' quantize speaks --type int4:32 --calibrate text -o c.folder -q)
        [ "$p" ] || p=$(tgc 0 '' quantize "$f" --type int4:32 -o d.folder -q)
        [ "$p" ] || ! cmp -s c.folder/model.safetensors d.folder/model.safetensors ||
                p="calibration changes nothing"
fi
[ "$p" ] || p=$(tgc 2 'leave nothing to choose' quantize "$f" --type nf4 --calibrate text \
        -o x.folder)
if [ -e im.gguf ]; then
        [ "$p" ] || p=$(tgc 2 'imatrix im.gguf has no effect: all tensors become Q8_0' quantize \
                "$g/kinds.gguf" --type q8_0 --imatrix im.gguf -o x.gguf)
        [ "$p" ] || p=$(tgc 0 '' imatrix "$g/bloom.gguf" --ids ids --window 16 -o other.gguf \
                --device cpu)
        [ "$p" ] || p=$(tgc 3 'other.gguf: the importance matrix has means for none of 1 tensors' \
                quantize "$g/kinds.gguf" --type q8_0 --keep 'blk.0.attn_q.weight=q4_0' \
                --imatrix other.gguf -o x.gguf)
fi
[ "$p" ] || p=$(tgc 2 'has what it would measure' quantize "$g/kinds.gguf" --type q4_0 \
        --imatrix im.gguf --calibrate text -o x.gguf)
[ "$p" ] || p=$(tgc 2 'window 65: the context is 64' imatrix "$g/gpt2.gguf" --ids ids --window 65 \
        -o x.gguf)
# without --window at most the context
seq 1 90 | tr '\n' ' ' > ids90
for o in '' '--window 64'; do
        [ "$p" ] || p=$(tgc 0 '' imatrix "$g/gpt2.gguf" --ids ids90 $o -o "w$o.gguf" --device cpu)
done
[ "$p" ] || cmp -s w.gguf "w--window 64.gguf" || p="no --window is another than the context"
[ "$p" ] || p=$(tgc 2 'give -o' imatrix "$f" --ids ids)
[ "$p" ] || p=$(tgc 2 'one of --data' imatrix "$f" -o x.gguf)
[ "$p" ] || p=$(tgc 2 'has no tokenizer' imatrix "$g/gpt2.gguf" --data text -o x.gguf)
say importance "$p"

# A launch of such products has as many blocks as they ask for, 171 here, on GPUs of 132
# multiprocessors and of fewer.
"$TGC" dump "$top/models/llama.lua" -D n_layer=2 -D n_embd=2048 -D n_head=64 -D n_kv_head=16 \
        -D head_dim=64 -D n_ff=256 -D vocab=256 -D ctx=16 --dtype f16 -b 1 --weight-type q4_k_m \
        --mode infer --program -q > program
p=
grep -q '^run k[0-9]*_matmul_and_1 .* sm_90a 171 ' program || p="no launch of two"
! grep '^form sm_90a .* threads 288 .* persistent' program || p="$p some stay"
say all_blocks_of_a_launch_run "$p"

p=$(tgc 2 'Q4_K_M' quantize "$g/kinds.gguf" --type q9_9 -o x.gguf)
[ "$p" ] || p=$(tgc 2 'give -o' quantize "$g/kinds.gguf" --type q4_0)
[ "$p" ] || p=$(tgc 2 'give --type' quantize "$g/kinds.gguf" -o x.gguf)
[ "$p" ] || p=$(tgc 2 'quantize takes' quantize "$top/models/gpt.lua" --type q4_0 -o x.gguf)
printf 'not an imatrix' > bad.dat
[ "$p" ] || p=$(tgc 3 'not an importance matrix' quantize "$g/kinds.gguf" --type q4_0 \
        --imatrix bad.dat -o x.gguf)
[ "$p" ] || [ ! -e x.gguf ] || p="something was written"
say refused "$p"
exit $failed
