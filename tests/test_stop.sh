#!/bin/bash
# test_stop.sh: `tgc run --stop TEXT` ends where the text begins, wherever the borders of tokens and
# of characters lie.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start stop
command -v python3 > /dev/null || { echo "skip stop: there is no python3"; exit 0; }
# Random weights say bytes of the vocabulary in any order: pieces of characters, too.
"$TGC" compile "$story" --weights random -q -o r.plan || { echo "not ok compile"; exit 1; }
run=("$TGC" run r.plan --device cpu -t 1 -q -s 3 --temp 5 --top-k 0 --top-p 1 --min-p 0 -n 60 \
        -p Once --ignore-eos)
"${run[@]}" > whole 2> err || { grep -q 'no C compiler' err &&
        { echo "skip stop: no C compiler"; exit 0; }; }

cat > cut.py <<'END'
import json, subprocess, sys
run = sys.argv[1:]
whole = open("whole", "rb").read()[:-1]
assert whole.startswith(b"Once") and max(whole) > 127 and len(whole) > 70, whole
own = whole[4:]
def said(stops, more=()):
    words = [w for s in stops for w in (b"--stop", s)]
    words = [w.encode() for w in run + list(more)] + words
    return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
def cut(stops):
    return whole[:4 + min([own.find(s) for s in stops if s in own], default=len(own))]
n = 0
for i in range(0, len(own), 3):
    s = own[i:i + 1 + i % 7]
    assert said([s]) == cut([s]) + b"\n", (s, said([s]))
    n += 1
two = [own[40:43], own[20:24]]
assert said(two) == cut(two) + b"\n"                      # the first to come
assert said([own[-3:] + b"x"]) == whole + b"\n"           # begun, and held back, at the end
assert said([b"Once"]) == cut([b"Once"]) + b"\n"          # the prompt is not looked at
assert said([b"absent"]) == whole + b"\n"
words = [own[i:i + 4] for i in range(len(own)) if own[i:i + 4].isalpha() and own[i:i + 4].isascii()]
o = json.loads(said(words[-1:], ["--json"]))
assert o["stopped_by"] == "stop", o
# bytes that are no characters are U+FFFD there, so the ends are compared
assert o["text"].endswith(cut(words[-1:])[-4:].decode()), (o["text"], cut(words[-1:]))
print(n)
END
p=$(python3 cut.py "${run[@]}" > said 2> err || tail -3 err)
[ "$p" ] || [ "$(cat said)" -ge 20 ] || p="$(cat said) texts"
say stops_where_the_text_begins "$p"

p=$(try 0 'prompt 1 token, decode 1 token at [1-9]' "$TGC" run r.plan --device cpu -t 1 -s 3 \
        --temp 0 -n 1 --prompt-ids 5 --ignore-eos)
say a_rate_of_one_token "$p"

p=$(try 2 '--stop: the text is empty' "${run[@]}" --stop '')
[ "$p" ] || p=$(try 2 'it is --stop TEXT' "${run[@]}" -r x)
[ "$p" ] || p=$(try 2 'has no tokenizer|no tokenizer' "$TGC" run gpt -D n_layer=1 -D n_head=1 \
        -D n_embd=8 -D vocab=9 --prompt-ids 1 --stop a --device cpu)
say errors_of_stop "$p"
exit $failed
