#!/bin/bash
# test_silent.sh: what must not pass without a word: logits that are not finite, a context that is
# full, weights that are missing or that nothing uses.
. "$(dirname "$0")/shell.sh"
start silent

# tensors FILE NAME:ROWS[:COLS]...: a safetensors file of float32 zeros
tensors() {
        local file=$1 head='{' at=0 x name rows cols
        shift
        for x; do
                IFS=: read -r name rows cols <<< "$x"
                head+="\"$name\":{\"dtype\":\"F32\",\"shape\":[$rows${cols:+,$cols}],"
                head+="\"data_offsets\":[$at,$((at += rows * ${cols:-1} * 4))]},"
        done
        head=${head%,}\}
        while [ $((${#head} % 8)) -ne 0 ]; do head+=' '; done
        {
                printf "\\x$(printf %02x $((${#head} & 255)))\\x$(printf %02x \
                        $((${#head} >> 8)))\0\0\0\0\0\0%s" "$head"
                head -c $at /dev/zero
        } > "$file"
}

# poke FILE OFFSET BYTES: BYTES as printf writes them
poke() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null; }

tiny_model tiny.lua 65 24
tensors zero.st tok.weight:65:8 head.weight:65:8
data=$(($(stat -c %s zero.st) - 2 * 2080))              # of tok.weight; head.weight follows
"$TGC" compile tiny.lua --weights zero.st -o zero.plan --mode infer -q 2> err ||
        { echo "not ok set_up: $(cat err)"; exit 1; }
compiler=
"$TGC" run zero.plan --prompt-ids 1 -n 1 --device cpu > /dev/null 2>&1 && compiler=yes

# ---- logits that are not finite ----

# One NaN in the head is one logit; a token of +inf makes all of them so where the head is 1.
cp zero.st nan.st
poke nan.st $((data + 2080 + 7 * 32)) '\0\0\300\177'
cp zero.st inf.st
poke inf.st $((data + 2 * 32)) '\0\0\200\177'
for i in $(seq 0 64); do poke inf.st $((data + 2080 + i * 32)) '\0\0\200\077'; done
for w in nan inf; do "$TGC" compile tiny.lua --weights $w.st -o $w.plan --mode infer -q; done

not_finite() {          # DEVICE
        local w t p
        for w in nan inf; do
                for t in 0 0.8; do
                        p=$(try 6 'logits .* not finite' "$TGC" run $w.plan --prompt-ids 1,2 \
                                --temp $t -s 1 -n 20 --device "$1")
                        [ -z "$p" ] || { echo "$p"; return; }
                done
                p=$(try 6 'logits .* not finite' "$TGC" run $w.plan --prompt-ids 1,2 -n 20 --json \
                        --device "$1")
                [ -z "$p" ] && ! grep -q '"stopped_by":.*"non_finite"' out &&
                        p="no stopped_by in $(cat out)"
                [ -z "$p" ] || { echo "$p"; return; }
        done
        try 0 '' "$TGC" run zero.plan --prompt-ids 1,2 -n 3 --device "$1"
}
if [ "$compiler" ]; then
        say nan_and_infinite_logits_on_cpu "$(not_finite cpu)"
        say nan_and_infinite_logits_emulated "$(not_finite emulate)"
else
        echo "skip nan_and_infinite_logits: no C compiler"
fi

# ---- a context that is full ----

context_full() {
        local p n
        for n in 300 -1; do
                p=$(try 0 'context full \(24 tokens\)' "$TGC" run zero.plan --prompt-ids 1,2 -n $n \
                        --device cpu)
                [ -z "$p" ] || { echo "$p"; return; }
        done
        p=$(try 0 'context full \(10 tokens\)' "$TGC" run zero.plan --prompt-ids 1,2 -n 11 -c 10 \
                --device cpu)
        [ -z "$p" ] && p=$(try 0 '' "$TGC" run zero.plan --prompt-ids 1,2 -n 300 --json \
                --device cpu)
        [ -z "$p" ] && ! grep -q '"stopped_by":.*"context"' out &&
                p="no stopped_by context in $(cat out)"
        [ -z "$p" ] && p=$(try 0 '' "$TGC" run zero.plan --prompt-ids 1,2 -n 5 --json --device cpu)
        [ -z "$p" ] && ! grep -q '"stopped_by":.*"length"' out &&
                p="no stopped_by length in $(cat out)"
        [ -z "$p" ] && p=$(try 0 '' "$TGC" run zero.plan --prompt-ids 1,2 -n 23 --device cpu)
        [ -z "$p" ] && grep -q 'context full' err &&
                p="23 tokens after 2 fit a context of 24: $(cat err)"
        echo "$p"
}
if [ "$compiler" ]; then say a_full_context_is_said "$(context_full)"; else echo \
        "skip a_full_context_is_said: no C compiler"; fi

# ---- folders whose weights are missing, and tensors that nothing uses ----

mkdir hf
cat > hf/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 20, "hidden_size": 8,
 "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 2, "max_position_embeddings": 16,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}
JSON
l=model.layers.0
all=(model.embed_tokens.weight:20:8 model.norm.weight:8 $l.input_layernorm.weight:8 \
        $l.post_attention_layernorm.weight:8
     $l.self_attn.{q,k,v,o}_proj.weight:8:8 $l.mlp.{gate,up}_proj.weight:16:8 \
             $l.mlp.down_proj.weight:8:16)
echo 1 2 3 4 > ids

no_weights() {
        local c p words=$1
        for c in "compile hf -o x.plan" "compile hf -o x.plan --mode both" \
                "run hf --prompt-ids 1 -n 1 --device cpu" \
                "run hf -q --prompt-ids 1 -n 1 --device cpu" "eval hf --ids ids --device cpu" \
                "export hf -o y"; do
                p=$(try 3 "$words" "$TGC" $c)
                [ -z "$p" ] && [ -e x.plan ] && p="$c wrote a plan"
                [ -z "$p" ] || { echo "$p"; return; }
        done
        p=$(try 0 '' "$TGC" compile hf -o x.plan -q --weights random)
        rm -f x.plan
        echo "$p"
}
seq 1 100 > text.txt
train="--data text.txt --max_iters 1 --eval_iters 0 -b 1 --device cpu --out_dir trained"
scratch() {     # training from nothing is fine where there is nothing
        local p
        p=$(try 0 '' "$TGC" compile hf -o x.plan --mode train -q)
        rm -f x.plan
        [ -z "$p" ] && [ "$compiler" ] && p=$(try 0 'begins with random' "$TGC" train hf $train)
        touch hf/pytorch_model.bin
        [ -z "$p" ] && p=$(try 3 'pytorch_model.bin .*--init_from scratch' "$TGC" train hf $train)
        [ -z "$p" ] && [ "$compiler" ] && p=$(try 0 '' "$TGC" train hf $train --init_from scratch)
        [ -z "$p" ] && p=$(try 3 'pytorch_model.bin .*--weights random' "$TGC" compile hf \
                -o x.plan --mode train -q)
        rm -rf hf/pytorch_model.bin trained
        echo "$p"
}
say a_folder_without_weights "$(no_weights \
        'hf: no weights: neither model.safetensors nor model.safetensors.index.json')"
touch hf/pytorch_model.bin
say a_folder_with_pytorch_weights "$(no_weights \
        'model.safetensors.*pytorch_model.bin cannot be read')"
rm hf/pytorch_model.bin
tensors hf/model-00001-of-00002.safetensors "${all[@]}"
say a_folder_without_its_index "$(no_weights \
        'the index says what model-00001-of-00002.safetensors and the others hold')"
rm hf/model-*
say training_from_scratch "$(scratch)"

shards() {
        echo '{"weight_map": {"a": "a.safetensors", "b": "b.safetensors", "c": "c.safetensors"}}' \
                > hf/model.safetensors.index.json
        tensors hf/b.safetensors b:1
        try 3 'index.json: 2 of its 3 files are missing: a.safetensors, c.safetensors' \
                "$TGC" compile hf -o x.plan
        rm hf/model.safetensors.index.json hf/b.safetensors
}
say shards_that_are_missing "$(shards)"

unused() {
        local p
        tensors hf/model.safetensors "${all[@]}" extra.one:3 \
                model.layers.0.self_attn.rotary_emb.inv_freq:2 extra.two:1
        p=$(try 3 '2 tensors that the model does not use: extra.one, extra.two' "$TGC" compile hf \
                -o x.plan)
        [ -z "$p" ] && [ "$compiler" ] &&
                p=$(try 3 'does not use: extra.one' "$TGC" train hf $train)
        tensors hf/model.safetensors "${all[@]}" model.layers.0.self_attn.rotary_emb.inv_freq:2
        [ -z "$p" ] && p=$(try 0 '' "$TGC" compile hf -o x.plan)
        echo "$p"
}
say tensors_that_nothing_uses "$(unused)"

exit $failed
