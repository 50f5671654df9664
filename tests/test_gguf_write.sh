#!/bin/bash
# test_gguf_write.sh: GGUF files made of folders. Of each architecture's file a folder is exported,
# and a file made of that: the same weights to the bit, tensors and keys as the package gguf wrote
# them (data/make_gguf.py).
. "$(dirname "$0")/shell.sh"
top=$PWD
d=$top/tests/data
start gguf_write

# keys FILE: what it says of the model, sorted; vocabularies are the next test's
keys() {
        "$TGC" info "$1" 2> /dev/null | sed -n '/^metadata/,/^tensors/p' |
                grep -v 'general\.\|tokenizer\.\|vocab_size\|^[mt]' | sort
}
tensors() { "$TGC" info "$1" 2> /dev/null | sed -n '/^tensors/,$p' |
        grep '^  .*\.\(weight\|bias\)' | awk '{ print $1, $3 }' | sort; }

for g in "$d"/gguf/*.gguf; do
        m=$(basename "$g" .gguf)
        # no model, and encoders, which are not written
        case $m in blocks | minilm | nomic | roberta) continue ;; esac
        p=$(tgc 0 '' compile "$g" --dtype f32 -o a.plan -q)
        [ "$p" ] || p=$(tgc 0 '' export a.plan -o a.folder -q)
        [ "$p" ] || p=$(tgc 0 '' quantize a.folder --type f32 -o b.gguf -q)
        [ "$p" ] || p=$(tgc 0 '' compile b.gguf --dtype f32 -o b.plan -q)
        [ "$p" ] || p=$(tgc 0 '' export b.plan -o b.folder -q)
        [ "$p" ] || p=$(cmp a.folder/model.safetensors b.folder/model.safetensors 2>&1)
        tensors "$g" > want
        tensors b.gguf > got
        # glm's file has q, k and v in one tensor, which is read and not written
        [ "$p" ] || [ $m = glm ] || p=$(diff want got)
        # olmoe's folders have no head_dim; hunyuan's file says that it does not scale; phi3's of
        # the test has not all that the converter writes
        keys "$g" | grep -v 'olmoe.attention.[kv]\|hunyuan-dense.rope.scaling' > want
        keys b.gguf | grep -v 'phi3.rope.scaling.original' > got
        [ "$p" ] || p=$(diff want got)
        say $m "$p"
        rm -rf a.folder b.folder
done

# the vocabulary: the same ids, the same answers
say_ids() { "$TGC" tokenize "$1" < text | tr -s ' \n' ' '; }
"$TGC" compile "$d/gguf/kinds.gguf" --dtype f32 -o a.plan -q 2> /dev/null
"$TGC" export a.plan -o speaks -q 2> /dev/null
"$TGC" tokenizer train "$d/text/stories.txt" --vocab-size 400 --special '<|end|>' -o speaks -q 2> \
        /dev/null
cat > speaks/tokenizer_config.json << 'END'
{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}", "eos_token": "<|end|>"}
END
head -c 500 "$d/text/stories.txt" > text
p=$(tgc 0 '' quantize speaks --type f16 -o s.gguf -q)
[ "$p" ] || p=$(tgc 0 '' compile speaks -o a.plan -q)
[ "$p" ] || p=$(tgc 0 '' compile s.gguf -o b.plan -q)
[ "$p" ] || [ "$(say_ids a.plan)" = "$(say_ids b.plan)" ] || p="ids differ: $(say_ids a.plan |
        head -c 100)"
[ "$p" ] || "$TGC" info s.gguf 2> /dev/null | grep -q 'tokenizer.chat_template .*m.content' ||
        p='no template'
[ "$p" ] || "$TGC" info s.gguf 2> /dev/null | grep -q 'tokenizer.ggml.pre .*gpt-2' ||
        p='not cut as gpt-2'
[ "$p" ] || "$TGC" info s.gguf 2> /dev/null | grep -q 'tokenizer.ggml.tokens .*512 of' ||
        p='not 512 tokens'
say vocabulary "$p"

p=$(tgc 0 'bits a value: .*F32.*Q8_0' quantize speaks --type q8_0 --keep 'blk.0.*=f16' -o q.gguf)
[ "$p" ] || p=$(tgc 2 'tensor has such a name' quantize speaks --type q8_0 --keep 'model.*=f16' \
        -o x.gguf)
[ "$p" ] || p=$(tgc 0 '' quantize speaks --type q4_0 -o q4.gguf -q)
[ "$p" ] || p=$(tgc 0 '' quantize speaks --type q4_0 --calibrate text -o c4.gguf -q)
[ "$p" ] || p=$(tgc 0 '' imatrix speaks --data text -o im.gguf -q)
if grep -q 'no C compiler' err; then p=; else
        [ "$p" ] || p=$(tgc 0 '' quantize speaks --type q4_0 --imatrix im.gguf -o i4.gguf -q)
        [ "$p" ] || cmp -s c4.gguf i4.gguf || p='--calibrate is not imatrix and --imatrix'
        [ "$p" ] || p=$(tgc 0 '' run q.gguf -p Once -n 4 --device cpu -q)
fi
say types "$p"

# of a plan: its vocabulary and template go along
p=$(tgc 0 'bits a value' export a.plan --gguf e.gguf)
[ "$p" ] || p=$(tgc 0 '' quantize speaks --type f16 -o s.gguf -q)
[ "$p" ] || p=$(tgc 0 '' compile e.gguf -o b.plan -q)
[ "$p" ] || [ "$(say_ids a.plan)" = "$(say_ids b.plan)" ] || p='ids differ'
tensors s.gguf > want
tensors e.gguf > got
[ "$p" ] || p=$(diff want got)
[ "$p" ] || "$TGC" info e.gguf 2> /dev/null | grep -q 'tokenizer.chat_template .*m.content' ||
        p='no template'
[ "$p" ] || p=$(tgc 0 'Q8_0' export a.plan --gguf e8.gguf --type q8_0)
[ "$p" ] || p=$(tgc 2 'a GGUF file has Q4_0' export a.plan --gguf x.gguf --type nf4)
[ "$p" ] || p=$(tgc 0 '' compile "$top/models/llama.lua" -D n_layer=1 -D n_embd=32 -D n_ff=32 \
        -D n_head=2 -D n_kv_head=1 -D head_dim=16 -D vocab=64 --weights random -o l.plan -q)
[ "$p" ] || p=$(tgc 2 'weights' export l.plan --gguf x.gguf)
say export "$p"

# and back: the vocabulary as tokenizer.json, the template in tokenizer_config.json
p=$(tgc 0 '' export s.gguf -o back)
[ "$p" ] || [ "$(say_ids back)" = "$(say_ids a.plan)" ] ||
        p="other ids: $(say_ids back | head -c 99)"
[ "$p" ] || grep -q '"eos_token": .*"chat_template": ".*m.content' back/tokenizer_config.json ||
        p=$(head -c 300 back/tokenizer_config.json)
[ "$p" ] || p=$(tgc 0 'back2: no tokenizer: .* byte-level BPE alone' export "$d/gguf/kinds.gguf" \
        -o back2)
say a_vocabulary_goes_back_to_a_folder "$p"

# a tied folder's only tensor may be called as the head's; two must be the same
cp -r "$d/families/llama_tied_bias" tied
chmod -R u+w tied
p=$(tgc 0 '' quantize tied --type f32 -o tied.gguf -q)
sed -i 's/"model.embed_tokens.weight":/"lm_head.weight":           /' tied/model.safetensors
[ "$p" ] || p=$(tgc 0 '' quantize tied --type f32 -o head.gguf -q)
[ "$p" ] || cmp tied.gguf head.gguf || p='another file'
seq 1 32 > ids
[ "$p" ] || p=$(tgc 0 'means of' imatrix tied --ids ids --window 16 -o im.gguf --device cpu)
grep -q 'no C compiler' err && p=
[ "$p" ] || "$TGC" info im.gguf 2> /dev/null | grep -q token_embd.weight.in_sum2 ||
        p='no token_embd'
cp -r "$d/families/llama" two
chmod -R u+w two
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' two/config.json
[ "$p" ] || p=$(tgc 3 'lm_head.weight differs from model.embed_tokens' quantize two --type f32 \
        -o x.gguf)
[ "$p" ] || [ ! -e x.gguf ] || p='something was written'
say tied "$p"

p=$(tgc 3 'window is 8, and would be 0' quantize "$d/families/mistral" --type f16 -o x.gguf)
[ "$p" ] || p=$(tgc 3 'no architecture in GGUF files that tgc writes' quantize "$d/families/opt" \
        --type f16 -o x.gguf)
[ "$p" ] || p=$(tgc 3 'k_layernorm.bias: has no name in GGUF files of phi2' quantize \
        "$d/families/phi" --type f16 -o x.gguf)
[ "$p" ] || p=$(tgc 2 'leave nothing to choose' quantize speaks --type f16 --calibrate text \
        -o x.gguf)
[ "$p" ] || p=$(tgc 2 'no way to cut text' quantize "$top/examples/shakespeare" --type f16 \
        -o x.gguf)
[ "$p" ] || [ ! -e x.gguf ] || p='something was written'
say refused "$p"
exit $failed
