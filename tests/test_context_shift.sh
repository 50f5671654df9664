#!/bin/bash
# test_context_shift.sh: `--context-shift` says what runs say that begin with the tokens it keeps.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start shift
command -v python3 > /dev/null || { echo "skip shift: there is no python3"; exit 0; }
"$TGC" compile "$story" -q -o s.plan || { echo "not ok compile"; exit 1; }
"$TGC" run s.plan --device cpu -q -p x -n 1 > out 2> err || { grep -q 'no C compiler' err &&
        { echo "skip shift: no C compiler"; exit 0; }; }

# Each piece of the text as a run of its own, from what stays of the context.
cat > pieces.py << 'END'
import json, subprocess, sys
tgc, plan, ctx, n, keep, bos = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
def run(ids, n, more=()):
    a = [tgc, "run", plan, "--device", "cpu", "-q", "--temp", "0", "--ignore-eos",
         "-c", str(ctx), "-n", str(n), "--json", "--prompt-ids", ",".join(map(str, ids)), *more]
    p = subprocess.run(a, capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)
prompt = [bos, 5, 9, 12, 7, 20]
got = run(prompt, n, ["--context-shift", "--keep", str(keep)])
want, held, shifts = list(prompt), list(prompt), 0
k = len(prompt) if keep < 0 or keep > len(prompt) else min(keep + (bos == 1), len(prompt))
while len(want) - len(prompt) < n:
    room = ctx - len(held) + 1
    left = n - (len(want) - len(prompt))
    said = run(held, min(room, left))["ids"][len(held):]
    want += said
    held += said
    if left > room:
        gone = (len(held) - k) // 2
        held = held[:k] + held[k + gone:]
        shifts += 1
assert got["ids"] == want, (got["ids"], want)
assert got["context_shifts"] == shifts > 0 and got["stopped_by"] == "length", got
END
bos=$("$TGC" tokenize s.plan <<< '' | cut -d' ' -f1)
for line in "24 70 0" "24 70 3" "25 60 -1" "16 100 9"; do
        set -- $line
        say "pieces_${1}_${2}_keep_$3" "$(python3 pieces.py "$TGC" s.plan "$1" "$2" "$3" \
                "${bos:-1}" 2>&1 | tail -2)"
done
say without "$(tgc 0 'context full \(24 tokens\); --context-shift goes on' run s.plan --device cpu \
        -c 24 -p Once --temp 0 --ignore-eos -n 60)"
say says_how_often "$(tgc 0 'context of 24 tokens shifted [2-9] times' run s.plan --device cpu \
        -c 24 -p Once --temp 0 --ignore-eos -n 60 --context-shift)"
say keeps_too_much "$(tgc 2 'at most 6 tokens can stay' run s.plan --device cpu -c 10 \
        -p 'Once upon a time there was' --keep -1 --context-shift -n 40)"
say keep_alone "$(tgc 2 'keep has no effect: it goes with --context-shift' run s.plan -p x \
        --keep 3)"
say several "$(tgc 2 'context-shift has no effect' run s.plan -p x -p y --context-shift)"

# A grammar goes on where it was.
printf 'root ::= ("a" | "b")+ "c"\n' > g.gbnf
say grammar "$(tgc 0 '' run s.plan --device cpu -q -c 12 -p Once --temp 3 --top-k 0 --top-p 1 \
        --min-p 0 -s 3 -n 60 --context-shift --grammar g.gbnf
        grep -Eq '^Once[ab]{12,}c?$|^Once[ab]*c$' out || cat out)"

# Sampling goes on as well: other random numbers in each piece.
say sampled "$("$TGC" run s.plan --device cpu -q -c 16 -p Once --temp 1 -s 5 --ignore-eos -n 80 \
        --context-shift > a && "$TGC" run s.plan --device cpu -q -c 16 -p Once --temp 1 -s 5 \
        --ignore-eos -n 80 --context-shift > b
        cmp a b; [ "$(wc -c < a)" -gt 80 ] || cat a)"

# Conversations that outgrow the context.
printf '{%% for m in messages %%}{{ m.content }} {%% endfor %%}' > t.jinja
for i in 1 2 3 4 5; do echo "Once there was a cat $i"; done > lines
say chat_full "$(tgc 2 'context-shift drops its older half' chat s.plan --device cpu -c 48 \
        --template t.jinja --temp 0 --ignore-eos -n 20 < lines)"
say chat_shifts "$("$TGC" chat s.plan --device cpu -c 48 --template t.jinja --temp 0 --ignore-eos \
        -n 60 --context-shift < lines > out 2> err || cat err
        grep -q 'shifted' err || cat err; [ "$(grep -c . out)" -ge 5 ] || cat out)"
whole=$("$TGC" chat s.plan --device cpu -q --template t.jinja --temp 0 --ignore-eos -n 40 \
        -p 'Once there was' < /dev/null)
piece=${whole:12:4}
cut=$("$TGC" chat s.plan --device cpu -q --template t.jinja --temp 0 --ignore-eos -n 40 \
        -p 'Once there was' --stop "$piece" < /dev/null)
say chat_stop "$([ "$cut" = "${whole%%"$piece"*}" ] || echo "'$cut' of '$whole', --stop '$piece'")"
say chat_stop_empty "$(tgc 2 'stop: the text is empty' chat s.plan --template t.jinja --stop '')"
say chat_grammar "$("$TGC" chat s.plan --device cpu -q --template t.jinja --temp 0 -n 30 \
        --grammar g.gbnf < lines > out 2> err || cat err
        [ "$(grep -Ec '^[ab]+c?$' out)" = 5 ] || cat out)"
echo '{"type": "boolean"}' > b.json
say chat_schema "$("$TGC" chat s.plan --device cpu -q --template t.jinja --temp 0 -n 30 \
        --json-schema b.json -p Once < /dev/null > out 2> err || cat err
        grep -Eq '^(true|false) *$' out || cat out)"
say chat_both "$(tgc 2 'chat: --grammar and --json-schema: one of them' chat s.plan \
        --template t.jinja --grammar g.gbnf --json-schema b.json)"
exit $failed
