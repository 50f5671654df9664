#!/bin/bash
# test_export.sh: `tgc export` writes a folder that tgc reads back with equal logits, and says what it could not write.
set -u
TGC=$(readlink -f "${TGC:-build/tgc}")
data=$(readlink -f tests/data)
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-export-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C
unset TGC_DEVICE TGC_LOG
failed=0

say() {         # say NAME PROBLEM: an empty problem is a pass
        if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1: $2"; failed=1; fi
}

# tgc CODE WORDS ARGUMENTS...: "" or what is wrong; WORDS is a regular expression for the message
tgc() {
        local want=$1 words=$2 rc
        shift 2
        timeout -k 2 60 "$TGC" "$@" > out 2> err < /dev/null
        rc=$?
        if [ $rc -ne "$want" ]; then
                echo "'${*: -5}' exits with $rc, not $want: $(head -c 400 err)"
        elif [ "$words" ] && ! grep -Eq -- "$words" err; then
                echo "'${*: -5}' does not say '$words': $(head -c 400 err)"
        fi
}

# The same manifest and the same bytes of weights are the same logits.
same_plan() { cmp -s <("$TGC" dump "$1" --manifest) <("$TGC" dump "$2" --manifest) && cmp -s "$1" "$2"; }

for f in "$data"/families/*/; do
        name=$(basename "$f")
        p=$(tgc 0 '' compile "$f" -q -o a.plan)
        [ "$p" ] || p=$(tgc 0 '' export a.plan -q -o "$name")
        [ "$p" ] || p=$(tgc 0 '' compile "$name" -q -o b.plan)
        [ "$p" ] || same_plan a.plan b.plan || {
                # but for config.json's word for the type, which is a section of its own
                for x in a b; do "$TGC" info $x.plan --json | grep -v '"path"\|file.config\|bytes' > $x.info; "$TGC" export $x.plan -q -o $x.safetensors; done
                cmp -s a.safetensors b.safetensors || p="other weights"
                [ "$p" ] || cmp -s <("$TGC" dump a.plan --manifest) <("$TGC" dump b.plan --manifest) || p="another manifest"
                [ "$p" ] || cmp -s <("$TGC" dump a.plan --graph) <("$TGC" dump b.plan --graph) || p="another graph"
        }
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
[ "$p" ] || grep -Eq '"(torch_)?dtype": *"bfloat16"' half/config.json || p="$(grep dtype half/config.json)"
# nothing else of config.json changes: 1.0 is no 1
[ "$p" ] || cmp -s <(grep -v dtype half/config.json) <(grep -v dtype "$story/config.json") || p="config.json: $(diff half/config.json "$story/config.json")"
say a_folder_runs_as_the_one_it_came_from "$p"

p=$(tgc 0 '' export s.plan -q -o bare --weights-only)
[ "$p" ] || [ "$(ls bare)" = model.safetensors ] || p="$(ls bare)"
[ "$p" ] || p=$(tgc 0 '' export s.plan -q -o bare.safetensors)
[ "$p" ] || cmp -s bare.safetensors bare/model.safetensors || p="other weights in a file"
[ "$p" ] || p=$(tgc 2 'no folder' export s.plan -o b.safetensors --config hf/config.json)
say weights_alone "$p"

p=$(tgc 0 '' compile "$story" -D eps=0.5 -q -o d.plan)
[ "$p" ] || p=$(tgc 0 'no config.json: .*changed by -D' export d.plan -o changed)
[ "$p" ] || [ ! -e changed/config.json ] || p="config.json was written"
[ "$p" ] || [ -e changed/tokenizer.json ] || p="tokenizer.json was not"
[ "$p" ] || p=$(tgc 0 '' export d.plan -q -o changed --config "$story/config.json")
[ "$p" ] || cmp -s changed/config.json "$story/config.json" || p="--config"
say what_config_json_does_not_say_is_not_written "$p"

printf 'ab "\\\n\303\251' > text
p=$(tgc 0 '' compile gpt -D n_layer=1 -D n_head=2 -D n_embd=8 -D ctx=8 --tokenizer char:text -q -o c.plan)
[ "$p" ] || p=$(tgc 2 'no weights' export c.plan -o chars)
for i in 1 2 3 4 5 6 7 8; do cat text; done > long
[ "$p" ] || p=$(tgc 0 '' train c.plan --data long --device cpu -t 1 --max_iters 1 --eval_iters 0 -q -o t)
if ! grep -q 'no C compiler' err; then
        [ "$p" ] || p=$(tgc 0 'no config.json: .*no Hugging Face folder' export t -o chars)
        [ "$p" ] || "$TGC" tokenize t < text > want
        [ "$p" ] || "$TGC" tokenize chars/tokenizer.json < text > out || p="tokenizer.json cannot be read"
        [ "$p" ] || cmp -s out want || p="other ids: $(cat out)"
        [ "$p" ] || "$TGC" tokenize chars/tokenizer.json --ids < want | cmp -s - text || p="another text"
        say characters_are_a_tokenizer_json "$p"
fi

exit $failed
