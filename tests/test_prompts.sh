#!/bin/bash
# test_prompts.sh: where `tgc run` takes its prompts from, several of them, and what it says and
# does about compiling.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start prompts
export TGC_CACHE_DIR=$dir/cache       # what is compiled is counted

"$TGC" compile "$story" -q --ctx-size 32 -o s.plan || { echo "not ok compile"; exit 1; }
run=("$TGC" run s.plan --device cpu -n 6 -s 1)
"${run[@]}" -q -p 'Once upon' < /dev/null > once 2> err || { grep -q 'no C compiler' err &&
        { echo "skip prompts: no C compiler"; exit 0; }; }
"${run[@]}" -q -p 'Then she' < /dev/null > then

# ---- where a prompt comes from ----

p=$(echo 'Once upon' | try 0 '' "${run[@]}")
[ "$p" ] || cmp -s out once || p="another text: $(cat out)"
say a_pipe_is_the_prompt "$p"

printf 'Once upon\r\n' > prompt.txt
p=$(try 0 '' "${run[@]}" < prompt.txt)
[ "$p" ] || cmp -s out once || p="another text: $(cat out)"
say a_file_as_standard_input_is_the_prompt "$p"

p=$(try 0 '' "${run[@]}" -f - < prompt.txt)
[ "$p" ] || cmp -s out once || p="another text: $(cat out)"
[ "$p" ] || p=$(try 0 '' "${run[@]}" -f prompt.txt < /dev/null)
[ "$p" ] || cmp -s out once || p="-f FILE: $(cat out)"
say a_dash_is_standard_input "$p"

p=$(echo 'Then she' | try 0 '' "${run[@]}" -p 'Once upon')
[ "$p" ] || cmp -s out once || p="another text: $(cat out)"
say a_prompt_leaves_standard_input_alone "$p"

p=$(try 0 '' "${run[@]}" -n 0 --print-ids < /dev/null)
[ "$p" ] || [ "$(cat out)" = 1 ] || p="not the first token alone: $(cat out)"
[ "$p" ] || p=$(: | try 0 '' "${run[@]}" -n 0 --print-ids)
[ "$p" ] || [ "$(cat out)" = 1 ] || p="an empty pipe: $(cat out)"
say nothing_at_all_begins_anywhere "$p"

p=$({ sleep 1.5; echo 'Once upon'; } | try 0 'reading the prompt from standard input' "${run[@]}")
[ "$p" ] || cmp -s out once || p="another text: $(cat out)"
say who_waits_is_told "$p"

p=$(try 2 'given twice; several prompts are -p TEXT -p TEXT' "${run[@]}" -f prompt.txt -f - < \
        /dev/null)
[ "$p" ] || p=$(try 2 'given twice' "${run[@]}" --prompt-ids 1 --prompt-ids 2 < /dev/null)
[ "$p" ] || p=$(try 2 'give one of --prompt, --file, --prompts and --prompt-ids' "${run[@]}" -p x \
        -f prompt.txt < /dev/null)
say no_prompt_replaces_another "$p"

# ---- several ----

two=(-p 'Once upon' -p 'Then she')
{ echo '==> prompt 1 of 2 <=='; cat once; echo; echo '==> prompt 2 of 2 <=='; cat then; } > want
p=$(try 0 '' "${run[@]}" "${two[@]}" < /dev/null)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
say each_prompt_is_what_it_would_be_alone "$p"

for i in 0 1; do "${run[@]}" -q --print-ids -p "${two[2 * i + 1]}" < /dev/null; done > want
p=$(try 0 '' "${run[@]}" "${two[@]}" --print-ids < /dev/null)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
say ids_are_a_line_each "$p"

p=$(try 0 '' "${run[@]}" "${two[@]}" --json < /dev/null)
[ "$p" ] || [ "$(grep -c '^{"prompt":[12],"text":".*}$' out)" = 2 ] || p="$(head -c 300 out)"
[ "$p" ] || [ "$(wc -l < out)" = 2 ] || p="$(wc -l < out) lines"
say objects_are_a_line_each "$p"

p=$(try 0 '' "${run[@]}" -s 1795862005061580 -p 'Once upon' --json < /dev/null)
[ "$p" ] || grep -Eq '"seed":\s*1795862005061580,' out || p="$(grep seed out)"
say all_digits_of_a_seed "$p"

p=$(try 2 'the plan'\''s context is 32' "${run[@]}" -p 'Once upon' -p "$(seq -s ' ' 40)" < \
        /dev/null)
[ "$p" ] || [ ! -s out ] || p="one ran before: $(cat out)"
say all_are_looked_at_before_one_runs "$p"

# ---- drafts ----

p=
for t in 0 0.8; do
        "$TGC" run s.plan --device cpu -q -s 4 --temp $t -n 26 -p 'Once upon a time' --print-ids > \
                want < /dev/null
        [ "$p" ] || p=$(try 0 'draft: [0-9]+ of [1-9][0-9]* proposed tokens accepted' "$TGC" run \
                s.plan --device cpu -s 4 --temp $t -n 26 -p 'Once upon a time' --print-ids \
                --draft ngram --draft-max 5 < /dev/null)
        [ "$p" ] || cmp -s out want || p="--temp $t: $(diff out want | head -5)"
done
[ "$p" ] || p=$(try 0 '' "${run[@]}" -p 'Once upon' --draft ngram --json < /dev/null)
[ "$p" ] || grep -q '"draft_accepted"' out || p="$(cat out)"
[ "$p" ] || p=$(try 2 '--draft has no effect' "${run[@]}" "${two[@]}" --draft ngram < /dev/null)
say drafts_change_nothing "$p"

# ---- together: a plan for several sequences ----

"$TGC" compile "$story" -q --ctx-size 64 -b 3 --cache-tokens 192 --target cpu -o b.plan ||
        echo "not ok compile -b 3"
batch=("$TGC" run b.plan --device cpu -n 6 -s 1)
p=
for t in 0 0.8; do
        for i in 0 1; do [ "$p" ] || "${run[@]}" -q --temp $t --print-ids -p "${two[2 * i + 1]}" < \
                /dev/null; done > want
        [ "$p" ] || p=$(try 0 '2 sequences, 12 tokens' "${batch[@]}" --temp $t "${two[@]}" \
                --print-ids < /dev/null)
        [ "$p" ] || cmp -s out want || p="--temp $t: $(diff out want | head -5)"
done
say together_each_says_what_it_says_alone "$p"

for s in 1 2 3; do "${run[@]}" -q --print-ids -s $s -p 'Once upon' < /dev/null; done > want
p=$(try 0 '3 sequences' "${batch[@]}" --parallel 3 -p 'Once upon' --print-ids < /dev/null)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
say parallel_is_one_prompt_with_other_seeds "$p"

why='s.plan was compiled for one sequence, so these 3 go one after the other; compile with'
p=$(try 0 "$why .*--batch-size 3" "${run[@]}" --parallel 3 -p 'Once upon' --print-ids < /dev/null)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
[ "$p" ] || p=$(try 0 'these 4 go one after the other' "${run[@]}" --parallel 2 "${two[@]}" \
        --json < /dev/null)
[ "$p" ] || [ "$(grep -c '^{"prompt":[1234],.*"seed":[12],' out)" = 4 ] || p="$(head -c 300 out)"
say a_plan_for_one_takes_them_in_turn "$p"

# a prompt of more than a page is digested, and lies in the cache, once
long=$(seq -s , 1 10 | tr -d '\n'; for _ in 1 2 3 4 5 6; do printf ,; seq -s , 20 29 |
        tr -d '\n'; done)
"$TGC" compile "$story" -q --ctx-size 128 -b 3 --target cpu -o l.plan || echo "not ok compile l"
says='cache: 74 tokens of prompts digested, 64 more were there already; 3 of 6 pages of 64 tokens'
p=$(try 0 "$says at most .*, where 4 would be without sharing" "$TGC" run l.plan --device cpu \
        -n 5 -s 1 --parallel 2 --prompt-ids "$long" --print-ids < /dev/null)
cp out got
for s in 1 2; do "$TGC" run l.plan --device cpu -n 5 -q -s $s --prompt-ids "$long" --print-ids < \
        /dev/null; done > want
[ "$p" ] || cmp -s got want || p="$(diff got want | head -5)"
says='^cache of keys and values: [0-9]+ bytes, 7 pages of 64 tokens, [0-9]+ bytes each'
[ "$p" ] || "$TGC" dump l.plan --memory | grep -Eq "$says" || p="no cache in --memory"
say a_prompt_is_held_once "$p"

printf 'Once upon\r\n\n{"prompt": "Then she"}\n{"prompt_ids": [5, 6]}\n' > lines
{ for i in 0 1; do "${run[@]}" -q --print-ids -p "${two[2 * i + 1]}" < /dev/null; done; \
        "${run[@]}" -q --print-ids --prompt-ids 5,6; } > want
p=$(try 0 '3 sequences' "${batch[@]}" --prompts lines --print-ids < /dev/null)
[ "$p" ] || cmp -s out want || p="$(diff out want | head -5)"
# a NUL ends neither a line nor the file
printf 'Once\0upon\n{"prompt_ids": [5, 6]}\n' > nul
printf 'Once\0upon' | "${run[@]}" -q --print-ids > want
"${run[@]}" -q --print-ids --prompt-ids 5,6 < /dev/null >> want
[ "$p" ] || p=$(try 0 '2 sequences' "${batch[@]}" --prompts nul --print-ids < /dev/null)
[ "$p" ] || cmp -s out want || p="with a NUL: $(diff out want | head -5)"
[ "$p" ] || p=$(try 0 '' "${batch[@]}" --prompts lines --json < /dev/null)
[ "$p" ] || [ "$(grep -c '^{"prompt":[123],.*"stopped_by":"length"' out)" = 3 ] ||
        p="$(head -c 300 out)"
say a_file_has_a_prompt_a_line "$p"

p=
while IFS='|' read -r line want; do
        printf 'x\n%s\n' "$line" > bad
        [ "$p" ] || p=$(try 3 "$want" "${batch[@]}" --prompts bad < /dev/null)
done <<'END'
{"prompt": 3}|bad:2: the object has no `prompt`
{"prompt": "Tim", "prompt_ids": [1]}|bad:2: `prompt` and `prompt_ids`: give one
  {"prompt": 3}|bad:2: the object has no `prompt`
{"prompt_ids": [1, 99999]}|bad:2:20: prompt_ids.1. is no token
{"prompt": "Tim", "temp": 0}|bad:2:19: unknown key "temp" in a prompt; known: prompt prompt_ids lora
{"prompt"|bad:2:10: not valid JSON
END
: > bad
[ "$p" ] || p=$(try 3 'bad: no prompts' "${batch[@]}" --prompts bad < /dev/null)
say bad_lines_are_named "$p"

# a byte order mark is no text
printf '\xef\xbb\xbfOnce\n' > mark
p=$(try 0 'mark: begins with a byte order mark .U.FEFF., which is left out' "${batch[@]}" -n 6 \
        --temp 0 --print-ids -f mark < /dev/null)
cp out said
[ "$p" ] || p=$(try 0 '' "${batch[@]}" -n 6 --temp 0 --print-ids -p Once < /dev/null)
[ "$p" ] || cmp -s out said || p="$(diff out said | head -3)"
say a_mark_before_a_prompt "$p"

# as editors of Windows write it
printf '\xef\xbb\xbf{"prompt": "Once"}\r\n{"prompt": "Tim"}\r\n' > windows.jsonl
p=$(try 0 '' "${batch[@]}" -n 6 --temp 0 --prompts windows.jsonl < /dev/null)
cp out said
[ "$p" ] || p=$(try 0 '' "${batch[@]}" -n 6 --temp 0 -p Once -p Tim < /dev/null)
[ "$p" ] || cmp -s out said || p="$(diff out said | head -3)"
say lines_with_a_mark_of_the_encoding "$p"

# a cache for fewer contexts than --batch-size takes one text alone
"$TGC" compile "$story" -q --ctx-size 64 -b 3 --cache-tokens 64 --target cpu -o one.plan ||
        { echo "not ok compile"; exit 1; }
one=("$TGC" run one.plan --device cpu -q -n 8 --temp 0 -p Once)
p=$(try 0 '' "${one[@]}" -p Once --print-ids)
head -1 out > want
[ "$p" ] || p=$(try 0 '' "${one[@]}" --print-ids)
[ "$p" ] || cmp -s out want || p="alone $(cat out), of two $(cat want)"
[ "$p" ] || p=$(try 0 '' "$TGC" run one.plan --device cpu -q -n 100 -p Once --context-shift)
say a_small_cache_takes_one "$p"

"$TGC" compile "$story" -q --ctx-size 128 -b 2 --cache-tokens 64 --target cpu -o few.plan ||
        echo "not ok compile few"
p=$(try 2 'needs 2 pages of the cache, which has 1; compile with a larger --cache-tokens' "$TGC" \
        run few.plan --device cpu -n 100 "${two[@]}" < /dev/null)
[ "$p" ] || [ ! -s out ] || p="some ran: $(cat out)"
say too_few_pages_are_said_before_anything_runs "$p"

# ---- the cache's type ----

p=
for t in f32 bf16 f16; do
        [ "$p" ] || p=$("$TGC" compile "$story" -q --ctx-size 128 -b 3 --target cpu \
                --cache-type $t -o c.$t.plan 2>&1)
        [ "$p" ] || "$TGC" dump c.$t.plan --memory |
                sed -n 's/.*values: \([0-9]*\) bytes.*/\1/p' > bytes.$t
        [ "$p" ] || p=$(try 0 'MiB' "$TGC" run c.$t.plan --device cpu -n 20 --temp 0 -s 1 \
                --parallel 3 -p 'Once upon a time' < /dev/null)
        cp out said.$t
done
[ "$p" ] || [ "$(cat bytes.f32)" = $((2 * $(cat bytes.bf16))) ] ||
        p="bytes: $(cat bytes.f32 bytes.bf16)"
[ "$p" ] || cmp -s bytes.f16 bytes.bf16 || p="bytes: $(cat bytes.f16 bytes.bf16)"
[ "$p" ] || [ "$("$TGC" check c.bf16.plan --device cpu --rebuild | grep -c 'within 0.05')" = 1 ] ||
        p="a plan made again forgets it"
[ "$p" ] || p=$(try 2 'none of|f32.bf16.f16' "$TGC" run "$story" --cache-type q4 -p x < /dev/null)
say the_cache_has_a_type "$p"

# ---- compiling ----

model=("$TGC" run "$story" --device cpu -n 3 --temp 0 -p 'Once upon')
p=$(try 0 'kernels for cpu ...' "${model[@]}" -c 20 < /dev/null)
[ "$p" ] || grep -Eq '^compiling [1-9][0-9]* kernels for cpu ...$' err || p="$(cat err)"
[ "$p" ] || p=$(try 0 '' "${model[@]}" -c 20 < /dev/null)
[ "$p" ] || ! grep -q compiling err || p="said though nothing was: $(cat err)"
[ "$p" ] || { rm -rf cache; p=$(try 0 '' "${model[@]}" -q < /dev/null); }
[ "$p" ] || [ ! -s err ] || p="--quiet says $(cat err)"
say compiling_is_said_when_it_happens "$p"

p=$(try 0 'cache: ' "${model[@]}" -c 20 -s 1 --parallel 3 --print-ids < /dev/null)
[ "$p" ] || ! grep -q 'one after the other' err || p="not together: $(cat err)"
[ "$p" ] || p=$(try 0 'cache: ' "${model[@]}" -c 20 -s 1 --parallel 4 --print-ids < /dev/null)
[ "$p" ] || ! grep -q compiling err || p="four are compiled again after three"
say a_model_is_compiled_for_as_many_as_asked "$p"

p=$(try 0 '' "${model[@]}" -c 20 < /dev/null)
[ "$p" ] || p=$(try 0 '' "${model[@]}" -c 9 --json < /dev/null)
[ "$p" ] || ! grep -q compiling err || p="compiled again"
[ "$p" ] || grep -q '"context_tokens":.9,' out || p="the context is not 9: $(cat out)"
[ "$p" ] || p=$(try 2 "the prompt has 3 tokens, --ctx-size is 2" "${model[@]}" -c 2 < /dev/null)
say another_context_is_no_other_kernels "$p"

p=$(try 0 'warning: --ctx-size 300: the model was trained with 256 tokens' "${model[@]}" -c 300 \
        < /dev/null)
[ "$p" ] || p=$(try 0 '' "${model[@]}" -c 256 < /dev/null)
[ "$p" ] || ! grep -q warning err || p="warned of what it was trained with: $(cat err)"
say a_context_beyond_the_trained_one_is_said "$p"

exit $failed
