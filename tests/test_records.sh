#!/bin/bash
# test_records.sh: what `tgc train` reads: records and their answers, rows of several, .bin files,
# shards, sources with weights, files for validation; what is wrong with them is said with file and
# line.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start records
cp -r "$story" m && rm -f m/*.bin
cat > m/chat_template.jinja << 'END'
{% for m in messages %}{% if m.role == 'user' %}Once {{ m.content }}.
{% elif m.role == 'assistant' %}{{ m.content }}
{% endif %}{% endfor %}
END
cat > marked.jinja << 'END'
{% for m in messages %}{% if m.role == 'user' %}Once {{ m.content }}.
{% else %}{% generation %}{{ m.content }}{% endgeneration %}
{% endif %}{% endfor %}
END
cat > a.jsonl << 'END'
{"prompt": "there was a cat", "completion": "Tom was happy"}
{"messages": [{"role":"user","content":"a dog"},{"role":"assistant","content":"The dog ran."},{"role":"user","content":"a \"bird\""},{"role":"assistant","content":"It flew away to the sky."}]}

{"text": "One day, Lily went to the park."}
{"completion": "Then she slept.", "prompt": "there was a frog"}
{"prompt": "a small girl", "completion": "She liked to play with her red ball in the park, and she was very happy."}
END
here=(--device cpu -t 1 -q -b 2 --block-size 64 --warmup_iters 0)
"$TGC" train m --data a.jsonl "${here[@]}" --max_iters 1 --val_fraction 0 --out_dir first 2> err ||
        { grep -q 'no C compiler' err && { echo "skip records: no C compiler"; exit 0; }; cat err; }

json() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }
near() { # near A B TOLERANCE: "" or both
        python3 -c 'import sys; a, b, t = map(float, sys.argv[1:])
print("" if abs(a - b) <= t else f"{a} and {b}")' "$@"
}

# ---- what counts
"$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 --show_data 3 > shown 2> err
shown() {
        local p=
        grep -q '^\[\[The dog ran.$' shown && grep -q '^\]\]Once a "bird".$' shown ||
                p="answers are not marked"
        grep -q '^<s>\[\[One day, Lily went to the park.</s>\]\]$' shown ||
                p="$p; a text is not marked"
        grep -q 'Once there was a cat.$' shown || p="$p; a pair is not there"
        [ -z "$p" ] || { echo "$p"; cat shown; }
}
say answers_count "$(shown)"
counted() { "$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 --show_data 3 "$@" 2> err |
        awk '/^---/ { n += $(NF-1) } END { print n }'; }
# in an epoch of three rows; --loss last leaves out one answer, marks leave out what ends a turn
all() {
        local answer last all marked
        answer=$(counted) last=$(counted --loss last) all=$(counted --loss all) marked=$(counted \
                --template marked.jinja --loss marked)
        [ "$last" -lt "$answer" ] && [ "$answer" -lt "$all" ] && [ "$marked" -lt "$answer" ] &&
                [ "$marked" -gt 0 ] || echo "$answer $last $all $marked"
}
say loss_says_what_counts "$(all)"
keys() {
        sed 's/"prompt"/"ask"/; s/"completion"/"say"/' a.jsonl > renamed.jsonl
        "$TGC" train m --data renamed.jsonl --fields prompt=ask,completion=say "${here[@]}" \
                --val_fraction 0 --show_data 3 | cmp - shown
        (echo '['; sed '/^$/d; $!s/$/,/' a.jsonl; echo ']') > list.json
        "$TGC" train m --data list.json "${here[@]}" --val_fraction 0 --show_data 3 | cmp - shown
}
say other_keys_and_a_list "$(keys 2>&1)"
joined() {
        echo '{"prompt": "Once upon a time", "completion": ", there was a cat."}' > j.jsonl
        "$TGC" train m --data j.jsonl --template none "${here[@]}" --val_fraction 0 --show_data 1 \
                --no-packing > out 2> err
        grep -q '^<s>Once upon a time\[\[, there was a cat.</s>\]\]$' out || cat out err
}
say joined_without_a_template "$(joined)"

# ---- rows
loss() { "$TGC" train m --val_data a.jsonl --data a.jsonl "${here[@]}" --eval_only --json "$@" > \
        o.json 2> err && json o.json val_loss_nats_per_token; }
packed_equals_unpacked() {
        local a b c
        a=$(loss) b=$(loss --no-packing) c=$(loss --pad_to 60)
        near "$a" "$b" 1e-5; near "$a" "$c" 1e-5
}
say packed_equals_unpacked "$(packed_equals_unpacked)"
accumulated() { # tokens weigh alike, in whatever micro-batch they are
        "$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 -b 4 --no-packing \
                --max_iters 6 --out_dir b4 --log_csv b4.csv 2> err &&
        "$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 -b 1 \
                --gradient_accumulation_steps 4 --no-packing --max_iters 6 --out_dir b1 \
                --log_csv b1.csv 2> err || cat err
        paste -d, b4.csv b1.csv | python3 -c '
import sys
for line in list(sys.stdin)[1:]:
    x = line.split(",")
    loss, norm = abs(float(x[2]) - float(x[8])), abs(float(x[4]) - float(x[10]))
    if loss > 2e-5 or norm > 2e-4 * float(x[4]): print(line)'
}
say tokens_weigh_alike "$(accumulated)"
resumed() {
        local o=(--data a.jsonl --data "$top/tests/data/text/stories.txt:3" "${here[@]}" \
                --eval_interval 4 --learning_rate 1e-3) f p
        p=$(tgc 0 '' train m "${o[@]}" --max_iters 8 --out_dir whole)
        p=$p$(tgc 0 '' train m "${o[@]}" --max_iters 4 --lr_decay_iters 8 --out_dir cut)
        p=$p$(tgc 0 '' train cut --resume --max_iters 8 -q)
        for f in state.safetensors ckpt.safetensors; do cmp -s whole/$f cut/$f ||
                p="$p $f is another"; done
        p=$p$(tgc 2 '--loss all: the run before had --loss answer' train cut --resume --loss all)
        p=$p$(tgc 2 '--packing 0: the run before had --packing 1' train cut --resume --no-packing)
        sed -i 's/frog/toad/' a.jsonl
        p=$p$(tgc 3 'the run .* had .* tokens' train cut --resume --max_iters 9)
        sed -i 's/toad/frog/' a.jsonl
        echo "$p"
}
say resume_is_exact "$(resumed)"
long() {
        local p
        p=$(tgc 0 '2 records are left out' train m --data a.jsonl "${here[@]//-q/--json}" \
                --block-size 30 --no-packing --val_fraction 0 --max_iters 1 --out_dir l)
        p=$p$(tgc 0 '2 records are cut to the window' train m --data a.jsonl \
                "${here[@]//-q/--json}" --block-size 30 --long cut --val_fraction 0 --max_iters 1 \
                --out_dir l)
        p=$p$(tgc 3 'a.jsonl: no record fits: the longest has .* a row has room for 5' train m \
                --data a.jsonl "${here[@]}" --block-size 4 --out_dir l)
        echo "$p"
}
say longer_than_the_window "$(long)"
padding() {
        local p
        "$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 --pad_to 50 --loss padding \
                --show_data 1 > out 2> err
        p=$(grep -q '49 count' out || cat out err)
        p=$p$(tgc 2 '--pad_to 70: a row has 64 tokens' train m --data a.jsonl "${here[@]}" \
                --pad_to 70 --out_dir l)
        echo "$p"
}
say padding_of_others "$(padding)"
plans() {
        local p
        "$TGC" compile m -q -o plain.plan --mode train -b 2 --block-size 64
        "$TGC" compile m -q -o split.plan --mode train -b 2 --block-size 64 --documents 1
        p='the plan knows no documents: compile it with --documents TOKEN, or give --no-packing'
        p=$(tgc 2 "$p" train plain.plan --data a.jsonl --device cpu -q --out_dir l)
        p=$p$(tgc 0 '' train plain.plan --data a.jsonl --no-packing --device cpu -q \
                --val_fraction 0 --max_iters 1 --out_dir l)
        "$TGC" train split.plan --data a.jsonl --val_data a.jsonl --eval_only --json --device cpu \
                -q > o.json 2> err || cat err
        echo "$p$(near "$(json o.json val_loss_nats_per_token)" "$(loss)" 1e-5)"
}
say plans "$(plans)"

# ---- files of ids
python3 - << 'END'
import struct
x = [(i * 7919 + i * i) % 500 for i in range(900)]
def put(name, ids, code, head=b""):
    open(name, "wb").write(head + struct.pack(f"<{len(ids)}{code}", *ids))
def header(magic, version, n):
    return struct.pack("<256i", magic, version, n, *[0] * 253)
put("plain.bin", x, "H")
put("llmc.bin", x, "H", header(20240520, 1, 900))
put("llmc32.bin", x, "I", header(20240520, 1, 900))
put("llama3.bin", x, "I", header(20240801, 7, 900))
put("shard_00.bin", x[:301], "H", header(20240520, 1, 301))
put("shard_01.bin", x[301:], "H")
open("odd.bin", "wb").write(b"abc")
put("short.bin", x[:-1], "H", header(20240520, 1, 900))
put("future.bin", x, "H", header(20240520, 9, 900))
put("short2.bin", [3, 4, 5, 6], "H")
put("big.bin", [3, 5000], "H")
put("wide.bin", x, "I")
put("zeros.bin", [0] * 200, "H")
open("head.bin", "wb").write(header(20240520, 1, 900)[:500])
put("big32.bin", [3, 2**31 + 5], "I", header(20240801, 7, 2))
END
bins() {
        local f
        for f in plain.bin llmc.bin llmc32.bin llama3.bin 'shard_*.bin'; do
                "$TGC" train m --data "$f" "${here[@]}" --max_iters 3 --out_dir bin \
                        --log_csv "log_${f//\*/x}.csv" 2> err || cat err
                cmp log_plain.bin.csv "log_${f//\*/x}.csv"
        done
}
say bins_of_all_kinds_are_alike "$(bins 2>&1)"
shares() { # rows of a source: its share of a thousand
        "$TGC" train m --data plain.bin:3 --data a.jsonl "${here[@]}" --show_data 1000 \
                --no-packing 2> err > out
        awk '/^--- row/ { n++; if ($NF == "count" && $(NF-1) == 64) w++ }
                END { if (n != 1000 || w != 750) print n, w }' out
        cat err
}
say weights_are_shares "$(shares)"
validates() {
        "$TGC" train m --data plain.bin --val_data a.jsonl "${here[@]}" --eval_only --json > \
                o.json 2> err || cat err
        near "$(json o.json val_loss_nats_per_token)" "$(loss)" 1e-6
}
say val_data "$(validates)"
kept() { # tokens are made once
        seq -f '{"prompt": "there was a cat, number %g", "completion": "Tom was happy"}' 0 2999 \
                > many.jsonl
        "$TGC" train m --data many.jsonl "${here[@]//-q/--json}" --show_data 3 > one 2> err1 &&
                "$TGC" train m --data many.jsonl "${here[@]//-q/--json}" --show_data 3 > two 2> err2
        cmp one two; grep -q 'kept for the next time' err1 && ! grep -q 'kept for' err2 ||
                cat err1 err2
        "$TGC" train m --data many.jsonl "${here[@]//-q/--json}" --show_data 3 --loss all > one 2> \
                err1; grep -q 'kept for' err1 || echo "another --loss, and the same tokens"
}
say tokens_are_kept "$(kept)"

# ---- what is wrong with them, which is said before a compiler is started
printf '#!/bin/sh\necho "$@" >> "%s/started"\nexit 1\n' "$dir" > nocc && chmod +x nocc
export CC=$dir/nocc CXX=$dir/nocc TGC_CACHE_DIR=$dir/empty
bad() { # bad CODE WORDS LINE ARGUMENTS...: a second line that is wrong
        { head -1 a.jsonl; echo "$3"; } > bad.jsonl
        tgc "$1" "$2" train m --data bad.jsonl "${here[@]}" --out_dir no "${@:4}"
}
say broken_json "$(bad 3 'bad.jsonl:2:30: not valid JSON' '{"prompt": "a", "completion": ')"
say other_keys "$(bad 3 'bad.jsonl:2: a record has the texts "prompt" and "completion"' \
        '{"question": "a", "answer": "b"}')"
say two_kinds "$(bad 3 'and one of these three' '{"text": "a", "prompt": "a", "completion": "b"}')"
say no_object "$(bad 3 'bad.jsonl:2: a record must be an object' '[1]')"
say empty_answer "$(bad 3 'bad.jsonl:2: no token to learn' '{"prompt": "a", "completion": ""}')"
say no_assistant "$(bad 3 'bad.jsonl:2: no message of the role "assistant"' \
        '{"messages": [{"role": "user", "content": "x"}]}')"
say no_role "$(bad 3 'bad.jsonl:2: a message without a "role"' '{"messages": [{"content": "x"}]}')"
say no_messages "$(bad 3 'bad.jsonl:2: a conversation without messages' '{"messages": []}')"
say no_marks "$(bad 3 'bad.jsonl:1: --loss marked: the chat template marks nothing' '{}' \
        --loss marked)"
echo '{% for m in messages %}{{ m.role + m.content }}{% endfor %}' > plus.jinja
tool='{"type": "function", "function": {"name": "f", "arguments": {}}}'
say null_content "$(bad 3 'bad.jsonl:2: .*no attribute .content.; it is null in message 2' \
        '{"messages": [{"role": "user", "content": "x"}, '\
'{"role": "assistant", "content": null, "tool_calls": ['"$tool"']}]}' \
        --template plus.jinja)"
say template_refuses "$(echo '{{ raise_exception("never") }}' > never.jinja; bad 3 \
        'bad.jsonl:1: never.jinja:1:.*never' '{}' --template never.jinja)"
say answer_inside_a_token "$(printf '{%% for m in messages %%}{{ m.content }} {%% endfor %%}' > \
        glue.jinja; bad 3 'bad.jsonl:1: an answer begins or ends inside a token' '{}' \
        --template glue.jinja)"
printf '{{ messages|length }}{%% for m in messages %%}\n{{ m.content }}\n{%% endfor %%}' \
        > count.jinja
why='the chat template writes the first 1 messages with the generation prompt otherwise'
say other_beginning "$(bad 3 "bad.jsonl:1: $why" '{}' --template count.jinja)"
say bad_fields "$(tgc 2 '--fields prompt: give NAME=KEY' train m --data a.jsonl "${here[@]}" \
        --fields prompt --out_dir no)"
say no_template "$(cp -r m plainm; rm plainm/chat_template.jinja; tgc 2 \
        'a.jsonl:1: plainm has no chat template' train plainm --data a.jsonl "${here[@]}" \
        --out_dir no)"
say no_tokenizer "$(tiny_model tiny.lua; tgc 2 'a.jsonl: there is no tokenizer' train tiny.lua \
        --data a.jsonl "${here[@]}" --block-size 8 --out_dir no)"
say odd_bin "$(tgc 3 'odd.bin: 3 bytes are neither a list' train m --data odd.bin "${here[@]}" \
        --out_dir no)"
say short_bin "$(tgc 3 'short.bin: llm.c.s header says 900 tokens, and 1798 bytes follow' train m \
        --data short.bin "${here[@]}" --out_dir no)"
say future_bin "$(tgc 3 'future.bin: llm.c.s header has version 9' train m --data future.bin \
        "${here[@]}" --out_dir no)"
say id_beyond "$(tgc 3 'big.bin: id 5000 at 1, the vocabulary is 512' train m --data big.bin \
        "${here[@]}" --out_dir no)"
say id_far_beyond "$(tgc 3 'big32.bin: id 2147483653 at 1' train m --data big32.bin "${here[@]}" \
        --out_dir no)"
say no_shards "$(tgc 8 '--data none_\*.bin: no file has such a name' train m --data 'none_*.bin' \
        "${here[@]}" --out_dir no)"
say mixed_shards "$(tgc 2 'are not of one kind' train m --data '*a*' "${here[@]}" --out_dir no)"
say no_name "$(tgc 2 '--data: the name is empty' train m --data= "${here[@]}" --out_dir no)"
say bad_weight "$(tgc 2 'must be a number above 0' train m --data a.jsonl:0 "${here[@]}" \
        --out_dir no)"
say log_over_data "$(tgc 2 'is the file that --data reads' train m --data a.jsonl "${here[@]}" \
        --log_csv a.jsonl --out_dir no)"
say too_long "$(tgc 3 'a.jsonl: no record fits: the longest has [0-9]+ tokens, a row has room' \
        train m --data a.jsonl -b 2 --block-size 4 --device cpu -q --out_dir no)"
say too_short "$(tgc 3 'short2.bin: 4 tokens; a window of 64 and its targets need 65' train m \
        --data short2.bin "${here[@]}" --out_dir no)"
say empty_answer_of_a_plan "$(echo '{"prompt": "a", "completion": ""}' > bad.jsonl
        sed -i '1i {"prompt": "there was a cat", "completion": "Tom was happy"}' bad.jsonl
        tgc 3 'bad.jsonl:2: no token to learn' train split.plan --data bad.jsonl --device cpu -q \
                --out_dir no)"
say rows_are_shown "$("$TGC" train m --data a.jsonl "${here[@]}" --val_fraction 0 --show_data 3 \
        2>&1 | cmp - shown)"
cut_off() { # the row, not the window, is what cuts; what cannot be learned is no row
        tgc 3 'room for 6; a larger --pad_to, or --long cut' train m --data a.jsonl "${here[@]}" \
                --pad_to 6 --out_dir no
        tgc 3 'begins with 2 tokens of which none is to be learned; a larger --pad_to' train m \
                --data j.jsonl "${here[@]}" --pad_to 2 --long cut --out_dir no
        "$TGC" train m --data a.jsonl "${here[@]//-q/--json}" --pad_to 14 --val_fraction 0 \
                --show_data 1 2>&1 | grep -q 'do not fit 14 tokens' || echo "another length"
}
say answers_cut_off "$(cut_off)"
no_effect() {
        tgc 2 '--loss marked: .*--template none has none' train m --data a.jsonl "${here[@]}" \
                --template none --loss marked --out_dir no
        tgc 2 '--loss padding: there is no padding' train m --data a.jsonl "${here[@]}" \
                --loss padding --out_dir no
        tgc 2 '--packing: several records share a row' train m --data a.jsonl "${here[@]}" \
                --packing --pad_to 60 --out_dir no
        mkdir -p beside && cp plain.bin beside/train.bin && cp plain.bin beside/val.bin
        tgc 2 '--val_fraction has no effect: beside/val.bin' train m --data beside/train.bin \
                "${here[@]}" --val_fraction 0.2 --out_dir no
}
say options_without_effect "$(no_effect)"
say wide_bin "$(tgc 3 'wide.bin: every second uint16 is 0' train m --data wide.bin "${here[@]}" \
        --out_dir no)"
say zeros_are_ids "$("$TGC" train m --data zeros.bin "${here[@]}" --show_data 1 2>&1 > /dev/null)"
say cut_header "$(tgc 3 'head.bin: llm.c.s header has 1024 bytes, and the file 500' train m \
        --data head.bin "${here[@]}" --out_dir no)"
marked() { # editors of Windows put a mark of the encoding in front
        { printf '\xef\xbb\xbf'; sed 's/$/\r/' a.jsonl; } > mark.jsonl
        { printf '\xef\xbb\xbf'; cat list.json; } > mark.json
        for f in mark.jsonl mark.json; do
                "$TGC" train m --data $f "${here[@]}" --val_fraction 0 --show_data 3 2>&1 |
                        cmp - shown
        done
        printf '\xef\xbb\xbf\n[1]\n' > mark.jsonl
        tgc 3 'mark.jsonl:2: a record must be' train m --data mark.jsonl "${here[@]}" --out_dir no
}
say mark_of_the_encoding "$(marked 2>&1)"
say nothing_made "$([ ! -e no ] || echo "a folder was made")"
say no_compiler_started "$(cat started 2> /dev/null | head -c 300)"
say one_is_for_good_data "$(tgc 4 . train m --data a.jsonl "${here[@]}" --out_dir no
        [ -s started ] || echo 'the compiler of this test is not called')"
exit $failed
