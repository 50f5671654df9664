#!/bin/bash
# test_lora_switch.sh: --lora-switch: each sequence says what it would say alone with the adapter
# that its line of --prompts names, on the CPU and in the emulator; what equal texts share of the
# cache is of one adapter; what is refused.
. "$(dirname "$0")/shell.sh"
from=$(readlink -f tests/e2e/lora)
start lora_switch
cp -r "$from/base" base
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 256/' base/config.json
"$TGC" compile base --target cpu -q -o x.plan 2> /dev/null ||
        { echo "skip lora_switch: no C compiler"; exit 0; }
adapters=(--lora "$from/tuned" --lora "$from/mixed")

# ids of one text alone; ADAPTER empty: the base
alone() { "$TGC" run base ${1:+--lora "$from/$1"} --prompt-ids "$2" --temp 0 -n "$3" --device cpu \
        --print-ids -q; }
long=$(seq -s, 1 30),$(seq -s, 2 31),$(seq -s, 3 32),$(seq -s, 1 47)
cat > lines <<END
{"prompt_ids": [1, 5, 9, 2], "lora": "tuned"}
{"prompt_ids": [1, 5, 9, 2]}
{"prompt_ids": [1, 5, 9, 2, 7, 7], "lora": "mixed"}
{"prompt_ids": [3], "lora": null}
{"prompt_ids": [1, 5, 9, 2], "lora": "mixed"}
END
each_its_own() {
        { alone tuned 1,5,9,2 12; alone '' 1,5,9,2 12; alone mixed 1,5,9,2,7,7 12; alone '' 3 12; \
                alone mixed 1,5,9,2 12; } > want
        [ "$(sort -u want | wc -l)" = 5 ] || echo "the adapters say the same: $(cat want)"
        "$TGC" run base "${adapters[@]}" --lora-switch --prompts lines --temp 0 -n 12 --device cpu \
                --print-ids -q > got || return
        diff want got
        "$TGC" compile base "${adapters[@]}" --lora-switch --mode infer -b 3 -q -o s.plan
        "$TGC" run s.plan --prompts lines --temp 0 -n 12 --device cpu --print-ids -q > got || return
        diff want got | sed 's/^/from a plan, three at once: /'
        "$TGC" compile base "${adapters[@]}" --lora-switch --mode infer -b 3 --fast --target cpu \
                -q -o f.plan
        "$TGC" run f.plan --prompts lines --temp 0 -n 12 --device cpu --print-ids > got 2> err ||
                return
        diff want got | sed 's/^/prompts beside tokens: /'
        grep -q 'decoded and read prompts by one call' err || grep steps err
}
say each_says_what_it_says_alone "$(each_its_own 2>&1)"

# Equal beginnings of two pages: shared by those of one adapter, not by those of two.
shared() {
        : > lines2; : > want2
        for a in tuned mixed '' tuned ''; do
                echo "{\"prompt_ids\": [$long]${a:+, \"lora\": \"$a\"}}" >> lines2
                alone "$a" "$long" 5 >> want2
        done
        for rows in 5 1; do
                "$TGC" compile base "${adapters[@]}" --lora-switch --mode infer -b $((rows + 1)) \
                        -q -o s2.plan
                "$TGC" run s2.plan --prompts lines2 --temp 0 -n 5 --device cpu --print-ids > got2 \
                        2> err2 || return
                diff want2 got2 | sed "s/^/$rows at once: /"
        done
        grep -qE 'cache: [0-9]+ tokens of prompts digested, [1-9][0-9]* more were there already' \
                err2 || grep cache: err2
}
say pages_are_of_one_adapter "$(shared 2>&1)"

on_a_gpu() {
        head -3 lines > lines3
        head -3 want | cut -d' ' -f 1-7 > want3
        "$TGC" run s.plan --prompts lines3 --temp 0 -n 3 --device emulate --print-ids -q > got3 ||
                return
        { alone tuned 1,5,9,2 3; alone '' 1,5,9,2 3; alone mixed 1,5,9,2,7,7 3; } > want3
        diff want3 got3
}
say in_the_emulator "$(on_a_gpu 2>&1)"

refused() {
        [ -e s.plan ] || "$TGC" compile base "${adapters[@]}" --lora-switch --mode infer -b 3 -q \
                -o s.plan
        echo '{"prompt_ids": [1], "lora": "turned"}' > bad
        tgc 2 "bad:1: no adapter is called 'turned'; there are tuned, mixed" run s.plan \
                --prompts bad --device cpu
        tgc 2 "bad:1: \`lora\` 'turned': there are no adapters to choose from" run base \
                --prompts bad --device cpu
        echo '{"prompt_ids": [1], "lora": 3}' > bad
        tgc 3 'bad:1: `lora` is the name of an adapter' run s.plan --prompts bad --device cpu
        tgc 2 'compiled with --lora-switch; it is for tgc run --prompts' run s.plan --prompt-ids 1 \
                --device cpu
        echo 1 2 3 4 > ids
        tgc 2 'compiled with --lora-switch' eval s.plan --ids ids --device cpu
        tgc 2 '--lora-switch has no effect: it goes with --lora DIR' run base --lora-switch \
                --prompts lines
        tgc 2 '--lora-switch has no effect: the lines of --prompts' run base "${adapters[@]}" \
                --lora-switch --prompt-ids 1
        tgc 2 '--lora-switch has no effect: it is for plans of several' compile base \
                "${adapters[@]}" --lora-switch --mode infer -o no.plan
        tgc 2 'two adapters are called tuned' run base --lora "$from/tuned" \
                --lora "$from/tuned:0.5" --lora-switch --prompts lines
        tgc 2 '--lora has no effect: r=... begins a new' run base --lora r=2 --lora-switch \
                --prompts lines
        tgc 2 '--lora-switch: --lora r=2 would begin' compile base --lora r=2 --lora-switch \
                --mode infer -b 2 -o no.plan
}
say refused_by_name "$(refused 2>&1)"
exit $failed
