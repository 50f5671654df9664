#!/bin/bash
# test_sampling.sh: options of sampling, as llama.cpp's users type them, and what log-probabilities
# --json prints.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start sampling

"$TGC" compile "$story" -q --ctx-size 64 -o s.plan || { echo "not ok compile"; exit 1; }
run=("$TGC" run s.plan --device cpu -q -n 12 -s 1 -p "Once upon" --print-ids)
"${run[@]}" --temp 0 > greedy 2> err || { grep -q 'no C compiler' err &&
        { echo "skip sampling: no C compiler"; exit 0; }; }

same() {        # same FILE OPTIONS...: the ids of FILE
        local p
        p=$(try 0 '' "${run[@]}" "${@:2}")
        [ "$p" ] || cmp -s out "$1" || p="${*:2}: $(cat out), not $(cat "$1")"
        echo "$p"
}
differs() {
        local p
        p=$(try 0 '' "${run[@]}" "${@:2}")
        [ "$p" ] || ! cmp -s out "$1" || p="${*:2} changes nothing: $(cat out)"
        echo "$p"
}

p=$(same greedy --top-k 1)
[ "$p" ] || p=$(same greedy --temp 0 --top-k 5 --min-p 0.3 --repeat-last-n 5 --xtc-threshold 0.2 \
        --dry-base 2)
[ "$p" ] || p=$(same greedy --samplers "temp;top-k" --temp 0)
[ "$p" ] || p=$(same greedy --top-nsigma 0.01)
[ "$p" ] || p=$(same greedy --mirostat 2 --mirostat-ent 0 --mirostat-lr 0)
say what_is_greedy "$p"

id=$(cut -d' ' -f5 greedy)
p=$(differs greedy --temp 0 --logit-bias "$id-inf")
[ "$p" ] || ! cut -d' ' -f4- out | tr ' ' '\n' | grep -qx "$id" ||
        p="a banned token was said: $(cat out)"
[ "$p" ] || p=$(try 0 '' "${run[@]}" --logit-bias "$id+1000")
[ "$p" ] || [ "$(tr ' ' '\n' < out | tail -12 | sort -u)" = "$id" ] ||
        p="a token that must come did not: $(cat out)"
say biases "$p"

p=$(differs greedy --temp 0 --repeat-penalty 5 --presence-penalty 3)
[ "$p" ] || p=$(differs greedy --temp 0 --frequency-penalty 20 --repeat-last-n 100)
[ "$p" ] || p=$(differs greedy --xtc-probability 1 --xtc-threshold 0.01 --temp 0)
say penalties_and_xtc "$p"

p=$(try 2 "no sampler 'foo'" "${run[@]}" --samplers "top_k;foo")
[ "$p" ] || p=$(try 2 'TOKEN.BIAS' "${run[@]}" --logit-bias 5)
[ "$p" ] || p=$(try 2 'tokens 0 to' "${run[@]}" --logit-bias 500000+1)
[ "$p" ] || p=$(try 2 'mirostat 1 is not supported' "${run[@]}" --mirostat 1)
[ "$p" ] || p=$(try 2 '1 to 40 bytes' "${run[@]}" --dry-multiplier 1 \
        --dry-sequence-breaker "$(printf '%050d' 0)")
[ "$p" ] || p=$(try 2 'it is --typical' "${run[@]}" --typical-p 0.5)
say what_is_refused "$p"

p=$(try 0 '' "$TGC" run s.plan --device cpu -q -n 5 --temp 0 -p "Once upon" --json --logprobs 3)
[ "$p" ] || p=$(python3 - 2>&1 << 'PY'
import json, math
o = json.load(open("out"))
content = o["logprobs"]["content"]
said = o["ids"][o["prompt_tokens"]:]
assert [c["id"] for c in content] == said, "ids"
for c in content:
    top = c["top_logprobs"]
    p = [t["logprob"] for t in top]
    assert len(top) == 3 and top[0]["id"] == c["id"] and abs(p[0] - c["logprob"]) < 1e-6, c
    assert sum(math.exp(x) for x in p) <= 1.0001 and p[0] >= p[1] >= p[2], c
    assert bytes(c["bytes"]).decode("utf-8", "replace") == c["token"], c
PY
)
# a byte that is part of a character: id 221 is 0xda
[ "$p" ] || p=$(try 0 '' "$TGC" run s.plan --device cpu -q -n 2 --prompt-ids 1,379 --json \
        --logprobs 2 --logit-bias 221+1000)
[ "$p" ] || p=$(python3 - 2>&1 << 'PY'
import json
for c in json.load(open("out", encoding="utf-8"))["logprobs"]["content"]:
    assert c["id"] == 221 and c["token"] == "\ufffd" and c["bytes"] == [0xda], c
PY
)
say log_probabilities "$p"

printf 'root ::= " " ("she" | "he") (" " [a-z]+){2} "."\n' > g.gbnf
p=$(try 0 '' "$TGC" run s.plan --device cpu -q -n 60 -s 3 -p "Then" --grammar g.gbnf)
[ "$p" ] || grep -Eq '^Then (she|he)( [a-z]+)*\.?$' out || p="not of the grammar: $(cat out)"
printf 'root ::= x' > g2.gbnf
[ "$p" ] || p=$(try 3 'g2.gbnf:1:10: rule x is not defined' "$TGC" run s.plan --device cpu -q -p a \
        --grammar g2.gbnf)
[ "$p" ] || p=$(try 2 'be able to end' "$TGC" run s.plan --device cpu -q -p a --grammar g.gbnf \
        --ignore-eos)
say grammars "$p"

# of several texts each has its own place in the grammar
"$TGC" compile "$story" -q -b 3 --ctx-size 128 --target cpu -o m.plan
several=("$TGC" run m.plan --device cpu -q -n 60 --grammar g.gbnf --print-ids)
for s in 3 4 5 6; do "$TGC" run s.plan --device cpu -q -n 60 -s $s -p "Then" --grammar g.gbnf \
        --print-ids; done > want
p=$(try 0 '' "${several[@]}" -s 3 --parallel 4 -p "Then")
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
[ "$p" ] || [ "$(sort -u want | wc -l)" -gt 1 ] || p="all say the same"
for t in Then Once Then; do "$TGC" run s.plan --device cpu -q -n 60 -s 3 -p $t --grammar g.gbnf \
        --print-ids; done > want
[ "$p" ] || p=$(try 0 '' "${several[@]}" -s 3 -p Then -p Once -p Then)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
echo '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
        "required": ["a", "b"]}' > schema.json
[ "$p" ] || p=$(try 0 '' "$TGC" run m.plan --device cpu -q -n 100 -s 1 --parallel 3 -p "Then" \
        --json-schema schema.json --json)
[ "$p" ] || python3 -c 'import json
for line in open("out"):
        o = json.loads(line)
        if o["stopped_by"] == "eos":
                v = json.loads(o["text"][len("Then"):])
                assert isinstance(v["a"], int) and isinstance(v["b"], bool), v' 2> why ||
                        p="$(tail -1 why)"
say grammars_of_several_texts "$p"
exit $failed
