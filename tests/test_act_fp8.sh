#!/bin/bash
# test_act_fp8.sh: --act fp8: what meets weights of fp8 is rounded to e4m3 with scales of its own.
# (Values: test_ir, test_cpu_rows, emulate/rows_test.cu; by hand e2e/quant/act_fp8.py.)
. "$(dirname "$0")/shell.sh"
start act_fp8
command -v python3 > /dev/null || { echo "skip act_fp8: no python3"; exit 0; }

# Three folders of a small Llama: `rows` as compressed-tensors has it, a scale for each row,
# `blocks` as DeepSeek has it, and `both`, whose last linear has scales of rows.
python3 - <<'PY'
import json, os, random, struct

C, F, V, H = 256, 384, 70, 4
random.seed(1)

def bf16(values):
    return b"".join(struct.pack("<f", x)[2:] for x in values)

def codes(n): # no NaN, and none that is large
    return bytes(random.randrange(0x28, 0x40) | random.choice((0, 0x80)) for _ in range(n))

def write(folder, scheme, quantization):
    def table(size): return "BF16", [V, C], bf16(random.gauss(0, size) for _ in range(V * C))
    tensors = {"model.embed_tokens.weight": table(1), "lm_head.weight": table(.05),
               "model.norm.weight": ("BF16", [C], bf16([1] * C))}
    layer = "model.layers.0."
    for norm in "input_layernorm", "post_attention_layernorm":
        tensors[f"{layer}{norm}.weight"] = ("BF16", [C], bf16([1] * C))
    for name, rows, cols in (("self_attn.q_proj", C, C), ("self_attn.k_proj", C // 2, C),
                             ("self_attn.v_proj", C // 2, C), ("self_attn.o_proj", C, C),
                             ("mlp.gate_proj", F, C), ("mlp.up_proj", F, C),
                             ("mlp.down_proj", C, F)):
        tensors[f"{layer}{name}.weight"] = ("F8_E4M3", [rows, cols], codes(rows * cols))
        blocks = scheme == "blocks" or scheme == "both" and name != "mlp.down_proj"
        shape = [-(-rows // 128), cols // 128] if blocks else [rows, 1]
        scales = [random.uniform(.02, .06) for _ in range(shape[0] * shape[1])]
        tensors[layer + name + (".weight_scale_inv" if quantization["quant_method"] == "fp8"
                                else ".weight_scale")] = (
            "F32", shape, b"".join(struct.pack("<f", x) for x in scales))
    os.makedirs(folder)
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)
    with open(f"{folder}/config.json", "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": C,
                   "intermediate_size": F, "num_hidden_layers": 1, "num_attention_heads": H,
                   "num_key_value_heads": H // 2, "vocab_size": V, "max_position_embeddings": 64,
                   "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
                   "torch_dtype": "bfloat16", "quantization_config": quantization}, f)

activations = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}

def compressed(strategy, **more):
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "dynamic": False, **more}
    group = {"targets": ["Linear"], "input_activations": activations, "weights": weights}
    return {"quant_method": "compressed-tensors", "format": "float-quantized",
            "ignore": ["lm_head"], "config_groups": {"group_0": group}}

write("rows", "rows", compressed("channel"))
write("both", "both", compressed("block", block_structure=[128, 128]))
write("blocks", "blocks", {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                           "weight_block_size": [128, 128]})
PY

# Words are looked for in all that is said.
tgc() {
        local problem
        problem=$(try "$1" '' "$TGC" "${@:3}")
        if [ "$problem" ]; then
                echo "$problem"
        elif ! cat out err | grep -Eq -- "$2"; then
                echo "'${*: -5}' does not say '$2': $(cat out err | head -c 400)"
        fi
}

keep="--weight-type keep"
say made_for "$(tgc 0 'made for +activations in fp8 with dynamic scales' info rows; tgc 0 \
        '"made_for_fp8_activations":.*"dynamic"' info blocks --json)"
say a_token "$(tgc 0 'activations fp8 where weights are, a scale a token' info rows $keep \
        --act fp8)"
say blocks_of_128 "$(tgc 0 'a scale each 128 columns' info blocks $keep --act fp8)"
for f in rows blocks; do
        say check_$f "$(tgc 0 '3 of 3 agree' check $f $keep --act fp8 --device cpu; tgc 0 \
                '3 of 3 agree' check $f $keep --act fp8 --device emulate; tgc 0 '3 of 3 agree' \
                check $f $keep --act fp8 --dtype bf16 --device emulate)"
done

# The plan says it, and is the same again.
say rebuild "$(tgc 0 '' compile blocks $keep --act fp8 -b 3 -o blocks.plan; tgc 0 \
        'a scale each 128 columns' info blocks.plan; tgc 0 '4 of 4 agree' check blocks.plan \
        --rebuild --device cpu)"

# It changes something, and does so with a text alone as in company (on a GPU weights in blocks have
# other kernels for other numbers of rows).
run() { "$TGC" run "$@" --device cpu --temp 0 -n 12 --print-ids 2> err; }
printf '{"prompt_ids":[%s]}\n' 3,9,44 5 60,61,62,63,64 > prompts
logits() { "$TGC" eval rows $keep --ids ids --device cpu -q --logits "$@" > /dev/null; }
say another_text "$(seq 1 60 > ids; logits plain.npy; logits act.npy --act fp8
        [ -s plain.npy ] && [ -s act.npy ] && ! cmp -s plain.npy act.npy || echo 'the same logits')"
say in_company "$(run blocks.plan --prompts prompts > all; for p in 3,9,44 5 60,61,62,63,64; do
        run blocks.plan --prompt-ids $p; done > each; [ "$(wc -l < all)" = 3 ] || cat err
        cmp all each 2>&1)"

# ---- refused ----
say two_kinds "$(tgc 2 'of 128 columns, those of .*down_proj.*two kinds of scales' info both $keep \
        --act fp8)"
say no_fp8 "$(tgc 2 "no linear's weight is stored as fp8" compile llama --weights random \
        --weight-type q8_0 --act fp8 --mode infer -o x.plan)"
say decoded "$(tgc 2 'act has no effect: .*--weight-type keep' run rows --weight-type decode \
        --act fp8 --prompt-ids 1)"
say trains "$(tgc 2 'fp8 is for inference alone' compile rows $keep --lora r=4 --mode train \
        --act fp8 -o x.plan)"
