#!/bin/bash
# test_train_log.sh: what a run writes down: log.csv, log.jsonl, TensorBoard's events, scores of
# answers, the row of --summary_csv; a resumed run goes on with all of them.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start log
cp -r "$story" m && rm -f m/*.bin
printf '%s' '{% for m in messages %}Once {{ m.content }}.
{% endfor %}' > m/chat_template.jinja
printf 'there was a cat\n\na dog\r\n' > q.txt
cp "$top/tests/data/text/stories.txt" text.txt
here=(--data text.txt --device cpu -t 1 -b 2 --block-size 32 --warmup_iters 0 --lr_decay_iters 8 \
        --eval_interval 4 --eval_iters 2)
asks=(--sample_interval 2 --sample_tokens 6 --eval_prompt q.txt \
        --eval_score 'the=1, a=0.5,zebra=-3' --tensorboard)
"$TGC" train m "${here[@]}" "${asks[@]}" --max_iters 8 --out_dir whole --summary_csv sum.csv 2> \
        err ||
        { grep -q 'no C compiler' err && { echo "skip log: no C compiler"; exit 0; }; cat err; }
cp err loud

cat > events.py << 'END'
import glob, json, struct, sys
def crc(b):
    c = 0xffffffff
    for x in b:
        c ^= x
        for _ in range(8): c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return (((c >> 15) | (c << 17)) + 0xa282ead8) & 0xffffffff
assert crc(b"123456789") == (((0xe3069283 >> 15) | (0xe3069283 << 17)) + 0xa282ead8) & 0xffffffff
def varint(b, i):
    x = s = 0
    while True:
        x |= (b[i] & 127) << s; s += 7; i += 1
        if b[i - 1] < 128: return x, i
def fields(b):
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        n = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0: v, i = varint(b, i)
        else:
            if n is None: n, i = varint(b, i)
            v = b[i:i + n]; i += n
        yield key >> 3, v
scalars, starts = {}, []
def order(p): return p.split(".")[3], int(p.split(".")[-1])
for path in sorted(glob.glob(sys.argv[1] + "/events.*"), key=order):
    b, i = open(path, "rb").read(), 0
    first = True
    while i < len(b):
        n, c = struct.unpack("<QI", b[i:i + 12])
        assert c == crc(b[i:i + 8]), "length"
        data = b[i + 12:i + 12 + n]
        assert struct.unpack("<I", b[i + 12 + n:i + 16 + n])[0] == crc(data), "data"
        i += 16 + n
        e = dict(fields(data))
        assert 1e9 < struct.unpack("<d", e[1])[0] < 1e11
        if first: assert e[3] == b"brain.Event:2"
        first = False
        if 7 in e:
            starts.append(e[2])
            for tag in scalars: scalars[tag] = {s: v for s, v in scalars[tag].items() if s < e[2]}
        for k, v in fields(e.get(5, b"")):
            x = dict(fields(v))
            scalars.setdefault(x[1].decode(), {})[e[2]] = struct.unpack("<f", x[2])[0]
want = {}
for line in open(sys.argv[1] + "/log.jsonl"):
    r = json.loads(line)
    for tag in ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "score"):
        if tag in r: want.setdefault(tag, {})[r["step"] + 1] = r[tag]
for tag in set(want) | set(scalars):
    a, b = want.get(tag, {}), scalars.get(tag, {})
    assert a.keys() == b.keys(), (tag, a.keys(), b.keys())
    assert all(abs(a[s] - b[s]) <= 1e-6 * abs(a[s]) for s in a), tag
print(len(starts), " ".join(sorted(want)))
END
events() { python3 events.py "$1" 2>&1 | tail -1; }
say events "$(x=$(events whole); [ "$x" = "0 grad_norm loss lr score tokens_per_s val_loss" ] ||
        echo "$x")"
rows() {
        python3 - << 'END' 2>&1
import csv, json
rows = [json.loads(x) for x in open("whole/log.jsonl")]
steps = [r for r in rows if "score" not in r]
table = list(csv.DictReader(open("whole/log.csv")))
assert [int(r["step"]) for r in table] == [r["step"] for r in steps] == list(range(-1, 8)), steps
for a, b in zip(table, steps):
    for k in ("loss", "lr", "val_loss"):
        assert (a[k] == "") == (k not in b) and (not a[k] or abs(float(a[k]) - b[k]) < 1e-7), (a, b)
assert [r["tokens"] for r in steps[1:]] == [64 * i for i in range(1, 9)]
assert steps[-1]["seconds"] > 0
assert [r["step"] for r in rows if "score" in r] == [1, 3, 5, 7], rows
END
}
say rows "$(rows)"
scores() { # what is printed counts: the answers' words alone
        python3 - << 'END' 2>&1
import json, re
text = open("loud", errors="replace").read()
want = [r["score"] for r in map(json.loads, open("whole/log.jsonl")) if "score" in r]
parts = re.split(r"step \d+: score (\S+), of 2 answers\n", text)
assert len(want) == 4
assert [float(x) for x in parts[1::2]] == [float("%.4g" % x) for x in want], parts[1::2]
for part, score in zip(parts[0::2], want):
    answers = re.findall(r"sample: Once (?:there was a cat|a dog)\.\n(.*?)(?=step|\Z)", part, re.S)
    assert len(answers) == 2, part
    low = [a.lower() for a in answers]
    s = sum(a.count("the") + 0.5 * a.count("a") - 3 * a.count("zebra") for a in low) / 2
    assert abs(s - score) < 1e-9, (answers, s, score)
END
}
say scores "$(scores)"
resumed() {
        local p
        p=$(tgc 0 '' train m "${here[@]}" "${asks[@]}" --max_iters 4 --out_dir cut)
        cp cut/log.jsonl four.jsonl
        printf '{"step":4,"loss":1}\n{"step":5,' >> cut/log.jsonl # what a killed process left
        p=$p$(tgc 0 '' train cut --resume --max_iters 8)
        cmp -s cut/log.csv whole/log.csv || p="$p log.csv is another"
        python3 - << 'END' || p="$p log.jsonl is another"
import json
times = ("seconds", "tokens_per_s")
def rows(p): return [{k: v for k, v in json.loads(x).items() if k not in times} for x in open(p)]
assert rows("cut/log.jsonl") == rows("whole/log.jsonl")
END
        [ "$(events cut)" = "1 grad_norm loss lr score tokens_per_s val_loss" ] ||
                p="$p $(events cut)"
        echo "$p"
}
say resume_goes_on "$(resumed 2>&1)"
summary() {
        tgc 0 '' train m "${here[@]}" --max_iters 2 --out_dir s --summary_csv sum.csv
        head -1 sum.csv |
                grep -qx 'Timestamp,Mode,Wall_Time_s,Total_Tokens,Tokens_Sec,Tokens_Min' ||
                cat sum.csv
        [ "$(grep -cE '^20[0-9-]{8} [0-9:]{8},tgc f32,[0-9.]+,(512|128),[0-9.]+,[0-9.]+$' \
                sum.csv)" = 2 ] || cat sum.csv
}
say summary "$(summary)"
say bad_score "$(tgc 2 "'rude': give WORD=WEIGHT" train m "${here[@]}" --sample_interval 2 \
        --eval_prompt q.txt --eval_score rude --out_dir no)"
say no_prompts "$(printf '\n\n' > none.txt; tgc 3 'none.txt: no prompts' train m "${here[@]}" \
        --sample_interval 2 --eval_prompt none.txt --out_dir no)"
say a_nul_in_a_prompt "$(printf 'Once\0\nupon\n' > nul.txt
        tgc 0 '' train m "${here[@]}" --max_iters 2 --sample_interval 2 --sample_tokens 2 \
                --eval_prompt nul.txt --out_dir nul.d
        grep -q upon err || cat err)"
say no_prompt_file "$(tgc 8 'gone.txt' train m "${here[@]}" --sample_interval 2 \
        --eval_prompt gone.txt --out_dir no)"
say log_cannot_be_written "$(mkdir -p no2/log.jsonl; tgc 8 'no2/log.jsonl' train m "${here[@]}" \
        --max_iters 1 --out_dir no2)"
exit $failed
