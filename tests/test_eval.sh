#!/bin/bash
# test_eval.sh: `tgc eval`: windows and continuations, together and one by one; `tgc bench
# --sequences`.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start eval
for i in $(seq 40); do echo "Once upon a time there was a dog named Bob. Bob saw $i birds."; done \
        > text
"$TGC" compile "$story" -q --ctx-size 64 --target cpu -o one.plan &&
        "$TGC" compile "$story" -q --ctx-size 64 -b 4 --target cpu -o many.plan ||
        { echo "skip eval: no C compiler"; exit 0; }

without_seconds() { grep -v '"seconds"'; }

# ---- windows ----

p=
for how in "" "--window 48" "--window 48 --stride 16" "--window 64 --stride 1 --ctx-size 64" \
        "--window 2 --stride 1" "--ctx-size 30 --stride 29"; do
        [ "$p" ] || p=$(tgc 0 '' eval one.plan --data text --device cpu --json $how)
        without_seconds < out > want
        for n in "" "--batch 3"; do
                [ "$p" ] || p=$(tgc 0 '' eval many.plan --data text --device cpu --json $how $n)
                [ "$p" ] || [ "$(grep -c . want)" -ge 5 ] || p="$(cat want)"
                # other kernels, so other last bits; the same windows and tokens
                [ "$p" ] || { grep -E '"(tokens|windows)"' out |
                        cmp -s - <(grep -E '"(tokens|windows)"' want); } ||
                                p="$how: $(cat out want)"
                [ "$p" ] || paste -d' ' <(grep loss out) <(grep loss want) | tr -d ',"a-z_:' |
                        awk '{ d = $1 - $2; exit !(d < 1e-5 && d > -1e-5) }' ||
                                p="$how: $(cat out want)"
        done
done
say windows_together_are_windows_one_by_one "$p"

"$TGC" eval many.plan --data text --device cpu --json --batch 1 --stride 20 2> err |
        without_seconds > want
p=$(tgc 0 '' eval many.plan --data text --device cpu --json --stride 20)
[ "$p" ] || without_seconds < out | cmp -s - want || p="$(cat out want)"
say the_sum_does_not_depend_on_how_many_are_together "$p"

# ---- beside a base (tests/e2e/quant/kl.py compares the numbers with numpy's) ----

"$TGC" compile "$story" -q --dtype bf16 --ctx-size 64 --target cpu -o half.plan
number() { sed -n "s/.*\"$1\":[ \t]*\([-0-9.e]*\).*/\1/p" out; }
p=$(tgc 0 '' eval one.plan --data text --device cpu --window 64 --kl one.plan --json)
[ "$p" ] || [ "$(number kl_max) $(number same_top) $(number perplexity_ratio)" = "0 1 1" ] ||
        p="itself: $(cat out)"
[ "$p" ] || p=$(tgc 0 '' eval half.plan --data text --device cpu --window 64 --kl one.plan --json)
[ "$p" ] || cp out want
[ "$p" ] || awk "BEGIN { exit !($(number kl_mean) > 1e-6 && $(number kl_mean) < 1e-2 && $(number \
        kl_99) >= $(number kl_mean)) }" || p="$(cat out)"
[ "$p" ] || p=$(tgc 0 '' eval one.plan --data text --device cpu --window 64 --save-base base.npy)
[ "$p" ] || p=$(tgc 0 '' eval half.plan --data text --device cpu --window 64 --kl base.npy --json)
[ "$p" ] || cmp -s out want || p="the file says otherwise: $(diff out want)"
[ "$p" ] || p=$(tgc 3 'base file of' eval half.plan --data text --device cpu --window 50 \
        --kl base.npy)
echo 1 2 3 > three
tac text | sed 's/Bob/Ann/g' > other
[ "$p" ] || p=$(tgc 3 'base file of|another text' eval half.plan --data other --device cpu \
        --window 64 --kl base.npy)
[ "$p" ] || p=$(tgc 3 'tokens, a window' eval half.plan --ids three --device cpu \
        --window 64 --kl one.plan)
say how_far_from_a_base "$p"

# every token but the first counts once, whatever the stride
p=
for s in 1 7 47; do
        [ "$p" ] || p=$(tgc 0 '' eval many.plan --data text --device cpu --json --window 48 \
                --stride $s)
        n=$(grep -o '"tokens":[^,]*' out | tr -dc 0-9)
        [ "$p" ] || [ "$n" = "$("$TGC" tokenize one.plan < text | wc -w |
                awk '{ print $1 - 1 }')" ] || p="stride $s: $n tokens"
done
say every_token_counts_once "$p"

"$TGC" eval one.plan --data text --device cpu --logits a.npy --window 32 --stride 9 > /dev/null 2> \
        err || cat err
p=$(tgc 0 '' eval many.plan --data text --device cpu --logits b.npy --window 32 --stride 9)
[ "$p" ] || [ "$(wc -c < a.npy)" = "$(wc -c < b.npy)" ] || p="$(wc -c a.npy b.npy)"
say logits_are_of_every_token "$p"

p=$(tgc 2 'the most is one less than the window, 47' eval one.plan --data text --device cpu \
        --window 48 --stride 48)
[ "$p" ] || p=$(tgc 2 '--window 65: the context is 64' eval one.plan --data text --device cpu \
        --window 65)
[ "$p" ] || p=$(tgc 2 'windows of 1 token' eval one.plan --data text --device cpu --window 1)
why='--batch 2: one.plan was compiled for 1; compile with --mode infer --batch-size 2'
[ "$p" ] || p=$(tgc 2 "$why" eval one.plan --data text --device cpu --batch 2)
[ "$p" ] || p=$(tgc 2 'give one of --data FILE, --ids FILE and --continuations' eval one.plan \
        --device cpu)
say wrong_windows_are_refused "$p"

# ---- continuations ----

cat > in <<'END'
{"prompt": "Once upon a time there was a", "continuation": " dog named"}
{"prompt": "Once upon a time there was a ", "continuation": "dog named"}
{"prompt_ids": [5, 6, 7], "continuation_ids": [8]}
{"prompt": "", "continuation": "Once upon"}

{"prompt": "Once", "continuation": " upon a time", "id": "x"}
END
p=$(tgc 0 'cpu|CPU|cores' eval many.plan --continuations in --device cpu)
cp out together
[ "$p" ] || [ "$(grep -Ec '^\{"logprob":-[0-9.e-]+,"tokens":[0-9]+,"greedy":(true|false)\}$' \
        together)" = 5 ] || p="$(cat together)"
[ "$p" ] || [ "$(sed -n 1p together)" = "$(sed -n 2p together)" ] ||
        p="a blank at the end: $(head -2 together)"
[ "$p" ] || [ "$(sed -n '5p' together | grep -c '"greedy":true')" = 1 ] ||
        p="not what the model says: $(sed -n 5p together)"
[ "$p" ] || grep . in | while read -r line; do echo "$line" > line; "$TGC" eval many.plan \
        --continuations line --device cpu -q; done > alone
[ "$p" ] || cmp -s together alone || p="$(diff together alone)"
[ "$p" ] || p=$(tgc 0 '' eval many.plan --continuations - --device cpu -q --batch 2 < in)
[ "$p" ] || cmp -s together out || p="by standard input: $(diff together out)"
say continuations_together_as_one_by_one "$p"

# the parts of a text are the whole
"$TGC" tokenize one.plan < text | tr ' ' '\n' | head -20 > ids
for k in $(seq 1 19); do echo "{\"prompt_ids\": [$(head -n "$k" ids |
        paste -sd,)], \"continuation_ids\": [$(sed -n "$((k + 1))p" ids)]}"; done > parts
echo "{\"prompt_ids\": [$(head -n 1 ids)], \"continuation_ids\": [$(tail -n +2 ids |
        paste -sd,)]}" >> parts
p=$(tgc 0 '' eval many.plan --continuations parts --device cpu -q)
[ "$p" ] || sed 's/.*"logprob":\([^,]*\),.*/\1/' out |
        awk 'NR < 20 { s += $1 }
             END { d = s - $1; exit !(NR == 20 && s < 0 && d < 1e-4 && d > -1e-4) }' ||
        p="$(cat out)"
"$TGC" eval one.plan --ids ids --device cpu > sum 2> err
[ "$p" ] || { tail -n 1 out | sed 's/.*"logprob":\([^,]*\),.*/\1/'; cat sum; } |
        awk 'NR == 1 { a = -$1 / 19 } NR == 2 { d = a - $1; exit !(d < 1e-4 && d > -1e-4) }' ||
                p="eval --ids says $(cat sum)"
say parts_add_up "$p"

echo '{"prompt": "'"$(head -c 400 text | tr '\n' ' ')"'", "continuation": " dog"}' > long
p=$(tgc 0 '' eval many.plan --continuations long --device cpu)
[ "$p" ] || grep -q '"truncated":[1-9]' out || p="$(cat out)"
say long_prompts_lose_their_beginning "$p"

printf '\xef\xbb\xbf%s\n3\n' "$(head -1 in)" > bad
p=$(tgc 3 'bad:2: not an object with' eval one.plan --continuations bad --device cpu)
[ "$p" ] || [ ! -s out ] || p="some were printed: $(cat out)"
printf '%s\n{"prompt": "a", "continuation": "b", "top": 3}\n' "$(head -1 in)" > bad
[ "$p" ] || p=$(tgc 3 'bad:2:38: unknown key "top" in a request; known: prompt continuation' \
        eval one.plan --continuations bad --device cpu)
[ "$p" ] || p=$(tgc 2 '--window has no effect: --continuations' eval one.plan \
        --continuations in --window 5 --device cpu)
say bad_lines_are_named_before_anything_runs "$p"

p=$(LIMIT=400 tgc 0 '' eval "$story" -c 64 --continuations in --device cpu -q)
[ "$p" ] || paste -d' ' together out | sed 's/"tokens[^}]*}//g' | tr -d '{}",a-z:' |
        awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) exit 1 }' || p="$(diff together out)"
say a_model_is_compiled_for_several "$p"

# ---- bench --sequences ----

p=$(tgc 0 '' bench many.plan --sequences 1,4,3 --prompt-tokens 20 --reps 5 --device cpu)
[ "$p" ] || [ "$(awk '$2 == 20 && $3 > 0 && $6 > 0 && $7 > 0 { printf "%s ", $1 }' out)" = \
        "1 4 3 " ] || p="$(cat out)"
[ "$p" ] || p=$(tgc 0 '' bench many.plan --sequences 2 --prompt-tokens 9 --reps 4 --device cpu \
        --json)
[ "$p" ] || tr -d '\t\n' < out |
        grep -q '"sequences":\[{"sequences":2,"prompt_tokens":9,.*"repetitions":4,"tokens_per_s"' ||
        p="$(cat out)"
[ "$p" ] || p=$(LIMIT=400 tgc 0 '' bench "$story" -c 64 --sequences 1,2 --reps 3 --device cpu)
[ "$p" ] || [ "$(grep -Ec '^ +[12] +32 ' out)" = 2 ] || p="of a model: $(cat out)"
# prompts of many calls: all are read before the first step that counts
[ "$p" ] || p=$(LIMIT=400 tgc 0 '' bench "$story" -c 64 --chunk-size 4 --sequences 4 \
        --prompt-tokens 48 --reps 2 --device cpu)
[ "$p" ] || [ "$(awk '$2 == 48 && $3 > 0 { print $1 }' out)" = 4 ] || p="long prompts: $(cat out)"
say bench_times_steps_by_sequences "$p"

p=
while IFS='|' read -r code words line; do
        [ "$p" ] || p=$(tgc "$code" "$words" bench many.plan --device cpu $line)
done <<'END'
2|--sequences 0: give up to 32 numbers from 1 to 256|--sequences 0
2|--sequences 1,: give up to|--sequences 1,
2|--sequences 1;2: give up to|--sequences 1;2
2|--sequences 257: give up to|--sequences 257
2|--sequences cannot be combined|--sequences 1 --decode
2|--sequences 5: the plan was compiled for 4; compile .* --batch-size 5|--sequences 2,5 --reps 2
2|50 tokens of prompt and 32 steps: the plan's context is 64|--sequences 2 --prompt-tokens 50
END
[ "$p" ] || p=$(tgc 2 'decodes one sequence; compile with --batch-size' bench one.plan \
        --device cpu --sequences 1 --reps 2)
say wrong_sequences_are_refused "$p"

exit $failed
