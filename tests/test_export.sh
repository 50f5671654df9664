#!/bin/bash
# test_export.sh: `tgc export` writes a folder that tgc reads back with equal logits, and says what
# it could not write.
. "$(dirname "$0")/shell.sh"
data=$(readlink -f tests/data)
start export

# The same graph, manifest and bytes of weights are the same logits.
same_model() {  # the same but for config.json's word for the type, and the model's own text
        same=
        for x in "$1" "$2"; do "$TGC" export "$x" -q -o "$x.safetensors"; done
        cmp -s "$1.safetensors" "$2.safetensors" || same="other weights"
        for x in --manifest --graph; do
                [ "$same" ] || cmp -s <("$TGC" dump "$1" $x) <("$TGC" dump "$2" $x) ||
                        same="another $x"
        done
        [ ! "$same" ]
}

# Reading back is not enough, a row that tgc does not read may be lost: names, shapes and values are
# the folder's.
cat > tensors.py <<'END'
import glob, json, struct, sys
def read(folder):
    tensors = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                first, last = t["data_offsets"]
                tensors[name] = t["shape"], values(t["dtype"], data[8 + n + first:8 + n + last])
    return tensors
def values(dtype, data):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    size, kind = (2, "e") if dtype == "F16" else (4, "f")
    return struct.unpack("<%d%s" % (len(data) // size, kind), data)
want, got = read(sys.argv[1]), read(sys.argv[2])
assert want
wrong = sorted(name for name in {**want, **got} if want.get(name) != got.get(name))
if wrong:
    sys.exit("other tensors: " + " ".join(wrong[:4]))
END
same_tensors() { ! command -v python3 > /dev/null || python3 tensors.py "$1" "$2" 2>&1; }

for f in "$data"/families/*/; do
        name=$(basename "$f")
        p=$(tgc 0 '' compile "$f" -q -o a.plan)
        [ "$p" ] || p=$(tgc 0 '' export a.plan -q -o "$name")
        [ "$p" ] || p=$(tgc 0 '' compile "$name" -q -o b.plan)
        [ "$p" ] || same_model a.plan b.plan || p="$same"
        [ "$p" ] || p=$(same_tensors "$f" "$name")
        say "export_$name" "$p"
done

story=$data/models/story
p=$(tgc 0 '' compile "$story" -q -o s.plan)
[ "$p" ] || p=$(tgc 0 '' export s.plan -o hf)
[ "$p" ] || cmp -s "$story/tokenizer.json" hf/tokenizer.json || p="another tokenizer"
[ "$p" ] || p=$(tgc 0 '' run "$story" --device cpu -q -n 9 --temp 0 -p Once)
cp out want
[ "$p" ] || p=$(tgc 0 '' run hf --device cpu -q -n 9 --temp 0 -p Once)
grep -q 'no C compiler' err && p=
[ "$p" ] || cmp -s out want || p="another text: $(cat out)"
[ "$p" ] || p=$(tgc 0 '' export s.plan -q -o half --dtype bf16)
[ "$p" ] || grep -Eq '"(torch_)?dtype": *"bfloat16"' half/config.json ||
        p="$(grep dtype half/config.json)"
# nothing else of config.json changes: 1.0 is no 1
[ "$p" ] || cmp -s <(grep -v dtype half/config.json) <(grep -v dtype "$story/config.json") ||
        p="config.json: $(diff half/config.json "$story/config.json")"
say a_folder_runs_as_the_one_it_came_from "$p"

p=$(tgc 0 '' export s.plan -q -o bare --weights-only)
[ "$p" ] || [ "$(ls bare)" = model.safetensors ] || p="$(ls bare)"
[ "$p" ] || p=$(tgc 0 '' export s.plan -q -o bare.safetensors)
[ "$p" ] || cmp -s bare.safetensors bare/model.safetensors || p="other weights in a file"
[ "$p" ] || p=$(tgc 2 'not a folder' export s.plan -o b.safetensors --config hf/config.json)
say weights_alone "$p"

# A folder that is read is not written over.
mkdir read && cp "$data"/families/llama/{config.json,model.safetensors} read
cp read/model.safetensors whole
p=$(try 2 'read/ is the folder that export reads' "$TGC" export read -o read/ --dtype f16)
ln -s read link
[ "$p" ] || p=$(try 2 'link is the folder that export reads' "$TGC" export read -o link)
[ "$p" ] || p=$(try 2 'is a file of the folder that export reads' "$TGC" export read \
        -o read/model.safetensors)
[ "$p" ] || p=$(cd read && try 2 'is a file of the folder' "$TGC" export . -o model.safetensors)
[ "$p" ] || p=$(try 2 'read is the folder that quantize reads' "$TGC" quantize read --type int4:32 \
        -o read)
[ "$p" ] || cmp read/model.safetensors whole || p='it was written'
say a_folder_is_not_written_over_itself "$p"

# What a family's config.json does not say is in one of tgc's own.
p=$(tgc 0 '' compile "$story" -D eps=0.5 -q -o d.plan)
[ "$p" ] || p=$(tgc 0 'changed: config.json names llama.lua, the model' export d.plan -o changed)
[ "$p" ] || grep -q '"eps": *0.5' changed/config.json || p="eps: $(cat changed/config.json)"
[ "$p" ] || grep -q '"eos_token_id"' changed/config.json || p="no eos: $(cat changed/config.json)"
[ "$p" ] || [ -e changed/tokenizer.json ] || p="tokenizer.json was not written"
[ "$p" ] || p=$(tgc 0 '' compile changed -q -o e.plan)
[ "$p" ] || same_model d.plan e.plan || p="$same"
[ "$p" ] || p=$(tgc 0 '' compile changed -D eps=0.25 -q -o f.plan)
[ "$p" ] || ! cmp -s <("$TGC" dump d.plan --graph) <("$TGC" dump f.plan --graph) ||
        p="-D of the folder has no effect"
[ "$p" ] || p=$(tgc 0 '' export d.plan -q -o changed --config "$story/config.json")
[ "$p" ] || cmp -s changed/config.json "$story/config.json" || p="--config"
[ "$p" ] || p=$(tgc 0 'changed: the config.json that was there stays' export d.plan -o changed)
[ "$p" ] || cmp -s changed/config.json "$story/config.json" || p="it does not stay"
say a_changed_model_is_written_as_its_own "$p"

# A model of the user's own, with a file beside it and a name that is none for files of ours.
mkdir own
cat > own/part.lua <<'END'
return { act = function(x) return x:tanh() * 0.5 end }
END
cat > 'own/my model.lua' <<'END'
local b, part = require "blocks", require "part"
return { name = "mine",
        params = { vocab = 20, ctx = 16, width = 8, scale = 1.0, gate = "soft", twice = false },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "wte", p.vocab, p.width, { from = "table" })
                x = part.act(x) * p.scale
                if p.twice then x = part.act(x) end
                return b.outputs(b.linear(x, "logits", p.vocab, { from = "head" }), targets)
        end }
END
p=$(tgc 0 '' compile 'own/my model.lua' -D twice=true -D width=12 --mode infer -q -o o.plan)
"$TGC" dump o.plan --manifest | sed -n 's/^param \([^ ]*\) .*/\1/p' | grep -q wte || p="no wte"
cat > weights.py <<'END'
import json, struct
def put(name, tensors):
    head, at = {}, 0
    for n, s in tensors:
        size = 4 * s[0] * s[1]
        head[n] = {"dtype": "F32", "shape": s, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        n = at // 4
        f.write(struct.pack("<%df" % n, *[((i * 37) % 101 - 50) / 64 for i in range(n)]))
put("own.safetensors", [("table.weight", [20, 12]), ("head.weight", [20, 12])])
END
if command -v python3 > /dev/null; then
        python3 weights.py
        [ "$p" ] || p=$(tgc 0 '' compile 'own/my model.lua' -D twice=true -D width=12 --mode infer \
                --weights own.safetensors -q -o o.plan)
        [ "$p" ] || p=$(tgc 0 'mine: config.json names my_model.lua' export o.plan -o mine)
        [ "$p" ] || cmp -s 'own/my model.lua' mine/my_model.lua || p="another model"
        [ "$p" ] || cmp -s own/part.lua mine/part.lua || p="what it requires is not there"
        [ "$p" ] || p=$(tgc 0 '' compile mine -q -o m.plan)
        [ "$p" ] || same_model o.plan m.plan || p="$same"
        [ "$p" ] || p=$(tgc 0 '' export m.plan -q -o again)
        [ "$p" ] || diff -r mine again > out || p="a second time: $(head -3 out)"
        # its plan rebuilt from data has it too
        [ "$p" ] || p=$(tgc 0 '' dump o.plan --rebuild --html page.html)
        [ "$p" ] || grep -q 'part.act(x)' page.html || p="the page of a rebuilt plan has no model"
        # what is wrong in it has the file's name
        sed -i 's/"gate"/"gaet"/' mine/config.json
        why="my_model.lua: error: the model has no parameter 'gaet'; did you mean 'gate'"
        [ "$p" ] || p=$(tgc 3 "$why" compile mine -q -o x.plan)
        sed -i 's/"gaet"/"gate"/; s/"my_model.lua"/"..\/x.lua"/' mine/config.json
        [ "$p" ] || p=$(tgc 3 'tgc_model. is no .lua or .json file of this folder' compile mine -q \
                -o x.plan)
        sed -i 's#"../x.lua"#"gone.lua"#' mine/config.json
        [ "$p" ] || p=$(tgc 3 'gone.lua: config.json names it, and it is not there' compile mine \
                -q -o x.plan)
        say a_model_of_ones_own_is_a_folder "$p"

        "$TGC" dump o.plan --graph --json > own.json
        p=$(tgc 0 '' compile own.json --mode infer --weights own.safetensors -q -o j.plan)
        [ "$p" ] || p=$(tgc 0 'config.json names graph.json' export j.plan -o json)
        [ "$p" ] || p=$(tgc 0 '' compile json -q -o k.plan)
        [ "$p" ] || same_model j.plan k.plan || p="$same"
        [ "$p" ] || p=$(tgc 2 'a JSON graph has no parameters' compile json -D width=4 -q -o x.plan)
        say a_json_graph_is_a_folder "$p"
else
        echo "skip a_model_of_ones_own_is_a_folder: there is no python3"
fi

# ---- shards: in the order of the map, none above the limit but for a larger tensor, and an index
# ----

shards() {
        local p
        p=$(tgc 0 'model.safetensors.index.json: written, and [0-9]+ files' export s.plan \
                --max-shard-size 0.05MB -o cut)
        [ "$p" ] || [ ! -e cut/model.safetensors ] || p="the whole is there, too"
        [ "$p" ] || p=$(tgc 0 '' compile cut -q -o cut.plan)
        [ "$p" ] || same_model s.plan cut.plan || p="$same"
        [ "$p" ] || [ "$(grep -c '"model-000' cut/model.safetensors.index.json)" = "$("$TGC" dump \
                s.plan --manifest | grep -c '^map [^i]')" ] || p="not every tensor is in the index"
        if [ ! "$p" ] && command -v python3 > /dev/null; then
                p=$(python3 - <<'END'
import json, os, struct
index = json.load(open("cut/model.safetensors.index.json"))
files = sorted(set(index["weight_map"].values()))
names = ["model-%05d-of-%05d.safetensors" % (i + 1, len(files)) for i in range(len(files))]
assert files == names, files
total = 0
for f in files:
    data = open("cut/" + f, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    assert head.pop("__metadata__") == {"format": "pt"}
    assert sorted(head) == sorted(k for k, v in index["weight_map"].items() if v == f), f
    total += len(data) - 8 - n
    assert len(data) - 8 - n <= 50000 or len(head) == 1, (f, len(data))
assert total == index["metadata"]["total_size"], total
END
) 2> out || p="$(tail -2 out)"
        fi
        # another number of shards, then one file: nothing of the old stays
        [ "$p" ] || p=$(tgc 0 '' export s.plan -q --max-shard-size 100KB -o cut)
        [ "$p" ] || p=$(tgc 0 '' compile cut -q -o cut.plan)
        [ "$p" ] || same_model s.plan cut.plan || p="$same"
        [ "$p" ] || [ "$(ls cut | grep -c model-)" = "$(sed -n 's/.*-of-0*\([0-9]*\)\..*/\1/p' \
                cut/model.safetensors.index.json | head -1)" ] || p="$(ls cut)"
        [ "$p" ] || p=$(tgc 0 '' export s.plan -q -o cut)
        [ "$p" ] || [ "$(ls cut | grep model)" = model.safetensors ] || p="$(ls cut)"
        [ "$p" ] || p=$(tgc 0 '' export s.plan -q --max-shard-size 100KiB -o cut)
        [ "$p" ] || [ ! -e cut/model.safetensors ] || p="the old whole stays"
        [ "$p" ] || p=$(tgc 2 'give a size' export s.plan --max-shard-size 4XB -o cut)
        [ "$p" ] || p=$(tgc 2 'give a size' export s.plan --max-shard-size 0 -o cut)
        [ "$p" ] || p=$(tgc 2 'has no effect: a.safetensors is not a folder' export s.plan \
                --max-shard-size 1MB -o a.safetensors)
        echo "$p"
}
say shards_and_their_index "$(shards)"

printf 'ab "\\\n\303\251' > text
p=$(tgc 0 '' compile gpt -D n_layer=1 -D n_head=2 -D n_embd=8 -D ctx=8 --tokenizer char:text -q \
        -o c.plan)
[ "$p" ] || p=$(tgc 2 'no weights' export c.plan -o chars)
for i in 1 2 3 4 5 6 7 8; do cat text; done > long
[ "$p" ] || p=$(tgc 0 '' train c.plan --data long --device cpu -t 1 --max_iters 1 --eval_iters 0 \
        -q -o t)
if ! grep -q 'no C compiler' err; then
        [ "$p" ] || p=$(tgc 0 'config.json names gpt.lua' export t -o chars)
        [ "$p" ] || "$TGC" tokenize t < text > want
        [ "$p" ] || "$TGC" tokenize chars/tokenizer.json < text > out ||
                p="tokenizer.json cannot be read"
        [ "$p" ] || cmp -s out want || p="other ids: $(cat out)"
        [ "$p" ] || "$TGC" tokenize chars/tokenizer.json --ids < want | cmp -s - text ||
                p="another text"
        say characters_are_a_tokenizer_json "$p"
fi

exit $failed
