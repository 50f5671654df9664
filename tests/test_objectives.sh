#!/bin/bash
# test_objectives.sh: --objective: losses and gradients of those that come with tgc against the
# double-precision evaluator, training with each, what rises where it should rise, and what is
# refused.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story) encoder=$(readlink -f tests/data/encoders/minilm)
start objectives
tiny_model tiny.lua
"$TGC" check tiny.lua --device cpu > out 2> err ||
        { grep -q 'no C compiler' err &&
                { echo "skip objectives: no C compiler"; exit 0; }; cat err; }

# ---- loss and every gradient, against the evaluator; the evaluator's gradients against differences
# (the quick check)
for o in smoothing,z=0.01 distill dpo,smoothing=0.1 grpo grpo,per_token=true polychromic,samples=3 \
        polychromic,published=true; do
        agrees() {
                tgc 0 '' check tiny.lua --objective "$o" --device cpu
                grep -q '^step  *loss .* ok' out && grep -q '^step  *d tok.weight .* ok' out ||
                        head -c 400 out
        }
        say "gradients_of_$o" "$(agrees)"
done
# logits with a bias, and logits that are no plain product: the parts are found, or done without
bias() {
        cat > bias.lua << 'LUA'
local b = require "blocks"
return { name = "bias", params = { vocab = 21, ctx = 16, n_embd = 8, cap = 0.0 },
graph = function(p)
        local ids, targets = b.inputs()
        local y = b.embedding(ids, "wte", p.vocab, p.n_embd):gelu()
        y = b.linear(y, "out", p.vocab, { bias = true, std = 0.4 })
        if p.cap > 0 then y = (y * (1 / p.cap)):tanh() * p.cap end
        return b.outputs(y, targets)
end }
LUA
        for cap in 0 3; do
                tgc 0 '' check bias.lua -D cap=$cap --objective smoothing,z=0.1 --device cpu
        done
        # the logits never stand in memory: one op makes them and their loss
        "$TGC" dump bias.lua --objective smoothing,z=0.1 --ir | grep -q '= linear_ce ' ||
                echo "no linear_ce"
        "$TGC" dump bias.lua -D cap=3 --objective smoothing,z=0.1 --ir | grep -q '= linear_ce ' &&
                echo "a linear_ce of capped logits"
        tgc 3 'polychromic.lua:[0-9]*: error: the logits are not a product' check bias.lua \
                -D cap=3 --objective polychromic --device cpu
}
say logits_with_a_bias_and_capped "$(bias)"

# ---- training
mkdir st && cp "$story"/config.json "$story"/model.safetensors "$story"/tokenizer.json st
cat > pairs.jsonl << 'LINES'
{"prompt": "Once upon a time, there was a", "chosen": " happy cat named Tom.", "rejected": " sad dog."}
{"prompt": "One day, Lily went", "chosen": " to the park and was happy.", "rejected": " away."}
{"prompt": "Tom saw a big", "chosen": " red ball. He was so happy!", "rejected": " box and was sad."}
{"prompt": "The little girl said,", "chosen": " \"I am happy!\"", "rejected": " nothing."}
LINES
sed 's/"chosen"/"completion"/; s/, "rejected.*}/}/' pairs.jsonl > sft.jsonl
sed 's/, "chosen.*}/}/' pairs.jsonl > prompts.jsonl
here=(--template none --device cpu -t 1 -q --warmup_iters 0 --no-decay_lr --val_fraction 0)
train() { # train OUT ARGUMENTS...: column 4 of its log is aux_loss
        "$TGC" train st "${here[@]}" --out_dir "$1" "${@:2}" 2> err ||
                { echo "$*: $(tail -3 err)"; return 1; }
}
column() { cut -d, -f"$2" "$1/log.csv" | tail -n +2; }
means() { # the means of the first and the last N numbers
        awk -v n="$1" '{ v[NR] = $1 }
                END { for (i = 1; i <= n; i++) { a += v[i]; b += v[NR + 1 - i] }
                      printf "%.4f %.4f\n", a / n, b / n }'
}
rises() { awk -v by="$1" '{ if ($2 < $1 + by) print "from " $1 " to " $2 }'; }

distils() { # at first it is its own teacher
        train distill --objective distill,alpha=1 --reference st --data sft.jsonl -b 2 \
                --block-size 32 --max_iters 3 --learning_rate 1e-2 || return
        column distill 4 | awk 'NR == 1 && ($1 > 1e-6 || $1 < -1e-6) || NR == 3 && $1 < 1e-4 {
                print "KL at step " NR ": " $1 }'
}
say distils "$(distils)"

dpo=(--data pairs.jsonl -b 2 --gradient_accumulation_steps 2 --block-size 64 --max_iters 4 \
        --learning_rate 2e-3 --lora r=4)
prefers() { # at first both are one model: log 2
        train dpo "${dpo[@]}" --objective dpo,beta=0.5 || return
        column dpo 3 | awk 'NR == 1 && ($1 < 0.693146 || $1 > 0.693148) || NR == 4 && $1 > 0.3 {
                print "loss at step " NR ": " $1 }'
        # the base beneath the adapter is the model that was given
        train dpo2 "${dpo[@]}" --objective dpo,beta=0.5 --reference st || return
        cmp dpo/adapter/adapter_model.safetensors dpo2/adapter/adapter_model.safetensors
        # a pair to a row, in whatever micro-batch
        train dpo3 "${dpo[@]}" --objective dpo,beta=0.5 -b 4 --gradient_accumulation_steps 1 ||
                return
        paste <(column dpo 3) <(column dpo3 3) |
                awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) print $1 " and " $2 }'
}
say prefers_and_the_base_is_the_reference "$(prefers 2>&1)"

cat > letters.lua << 'LUA'
local grpo = require "grpo"
grpo.reward = function(c, p)                    -- the share of the letter a
        local n = 0
        for i = 1, #c.text do
                if c.text:sub(i, i) == "a" then n = n + 1 end
        end
        return #c.text > 0 and n / #c.text or 0
end
return grpo
LUA
group=(--data prompts.jsonl -b 2 --block-size 160 --learning_rate 1e-2 --lora r=8)
long() {
        tgc 3 'max_tokens=900 make 9[0-9]* tokens, the model.s context is 256' \
                train st "${here[@]}" "${group[@]}" --objective letters.lua,max_tokens=900
}
say continuations_longer_than_the_context "$(long)"

reward() {
        train grpo "${group[@]}" --objective letters.lua,samples=8,max_tokens=10 --max_iters 16 ||
                return
        grep -o '"score":[^,}]*' grpo/log.jsonl | cut -d: -f2 | means 4 | rises 0.015
        cat > shown.lua << 'LUA'
local g = require "letters"
local r = g.reward
g.reward = function(c, p) print("said", #c.ids, c.tokens) return r(c, p) end
return g
LUA
        "$TGC" train st "${here[@]/-q/--no-decay_lr}" "${group[@]}" \
                --objective shown.lua,samples=2,max_tokens=3 --max_iters 1 --out_dir shown 2>&1 |
                grep -c '^said.[123].[123]$' | grep -qx 4 || echo "prints are not seen"
        column grpo 3 | awk 'NR == 1 && ($1 > 1e-5 || $1 < -1e-5) {
                print "the first loss is " $1 ": advantages add up to 0, and no weight has moved" }'
}
say reward_rises "$(reward 2>&1)"
# two steps of the same samples; a run that stops between two groups goes on as if it had not
again() {
        local o=letters.lua,samples=4,max_tokens=8,updates=2
        train whole "${group[@]}" --objective $o --max_iters 4 --eval_interval 2 || return
        train half "${group[@]}" --objective $o --max_iters 2 --eval_interval 2 || return
        "$TGC" train half --resume --max_iters 4 -q 2> err || tail -3 err
        cmp whole/adapter/adapter_model.safetensors half/adapter/adapter_model.safetensors
        tgc 2 'multiples of it' train st "${here[@]}" "${group[@]}" --objective $o --max_iters 3 \
                --eval_interval 2 --out_dir x
}
say samples_are_learned_twice_and_resumed "$(again 2>&1)"

similar() { # a reward by an encoder: the text's vector and a sentence's
        cat > near.lua << 'LUA'
local grpo, texts = require "grpo", require "texts"
grpo.reward = function(c, p)
        local v = embed { c.text, "hello world" }
        return texts.cosine(v[1], v[2])
end
return grpo
LUA
        train near "${group[@]}" --objective near.lua,samples=4,max_tokens=6 --embedder "$encoder" \
                --max_iters 2 || return
        grep -o '"score":[^,}]*' near/log.jsonl | cut -d: -f2 |
                awk '$1 < -1 || $1 > 1 || $1 == 0 { print "a cosine of " $1 }'
        train spread --data sft.jsonl -b 2 --block-size 64 --lora r=4 \
                --objective polychromic,published=true,samples=3,max_tokens=6 \
                --embedder "$encoder" --max_iters 2
        tgc 2 'goes with --objective' train st "${here[@]}" --data sft.jsonl --embedder "$encoder"
}
say reward_by_an_encoder "$(similar 2>&1)"

many=(--data sft.jsonl -b 2 --block-size 128 --learning_rate 3e-3 --lora r=8)
differ() { # the same samples' hidden states move apart, where the loss asks for it
        train poly "${many[@]}" --objective polychromic,weight=5,samples=4,max_tokens=8,temp=1 \
                --max_iters 16 || return
        train mono "${many[@]}" --objective polychromic,weight=0,samples=4,max_tokens=8,temp=1 \
                --max_iters 16 || return
        echo "$(column mono 4 | means 4) $(column poly 4 | means 4)" |
                awk '$4 < $2 + 0.1 || $4 < $3 { print "without " $1 " " $2 ", with " $3 " " $4 }'
}
say diversity_rises "$(differ 2>&1)"
# a plan that samples has a cache of pages, which a step knows nothing of: its loss is that of any
# other plan
alike() {
        train paged --data sft.jsonl -b 4 --block-size 128 \
                --objective polychromic,weight=0,samples=2,max_tokens=4 --max_iters 1 || return
        train plain --data sft.jsonl -b 4 --block-size 128 --no-packing --max_iters 1 || return
        echo "$(column paged 3) $(column plain 3)" |
                awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) print }'
}
say a_step_of_a_plan_that_samples "$(alike 2>&1)"
published() { # the metric has no gradient: the weights are those of cross-entropy
        for w in 0 0.3; do
                train published$w "${many[@]}" --max_iters 4 --objective \
                        polychromic,published=true,metric=bleu,weight=$w,samples=3,max_tokens=8 ||
                        return
        done
        cmp published0/adapter/adapter_model.safetensors \
                published0.3/adapter/adapter_model.safetensors
        column published0.3 4 | awk '$1 <= 0 || $1 > 1 { print "the metric is " $1 }'
}
say as_published_is_cross_entropy "$(published 2>&1)"

document() { # the two files of docs/objectives.md
        awk '/^```lua/ { n++; in_it = 1; next } /^```/ { in_it = 0 }
                in_it { print > ("doc" n ".lua") }' "$top/docs/objectives.md"
        train doc "${group[@]}" --objective doc1.lua,samples=2,max_tokens=4 --max_iters 1
        tgc 0 '' check tiny.lua --objective doc2.lua,gamma=1.5 --device cpu
}
say files_of_the_document "$(document 2>&1)"

# ---- what is refused
refused() {
        tgc 8 'no such file, and no model of that name' check gpt --objective nothing
        for o in smoothing,smoothing=1.5 smoothing,z=-1 distill,temperature=-1 distill,alpha=2 \
                dpo,beta=-1 grpo,clip=-1; do
                tgc 3 'but must be at least 0' check gpt --objective $o
        done
        tgc 2 "has no parameter 'smooth'; did you mean 'smoothing'" check gpt \
                --objective smoothing,smooth=1
        tgc 2 'give one, not 2' check gpt --objective dpo --objective grpo
        tgc 3 'must return a table with a function .loss' check gpt --objective gpt
        echo 'return { loss = function(m, p) return m.nll end }' > wide.lua
        tgc 3 'wide.lua.*loss must be one number' check gpt --objective wide.lua
        echo 'return { feeds = { "a b" }, loss = function(m, p) return m.nll:sum() end }' > name.lua
        tgc 3 'feeds. is a list of names' check gpt --objective name.lua
        # what would have no effect: fields, feeds that nothing fills, functions that nothing calls
        while IFS='|' read -r words table; do
                echo "local o = require 'objective'  return { $table," \
                        "loss = function(m, p) return o.mean(m.nll) end }" > void.lua
                tgc 3 "$words" check gpt --objective void.lua
        done << 'TABLES'
the objective has a `parms`; did you mean 'params'|parms = {}
`reward` has no effect: it is about what is sampled|reward = function() return 1 end
`learn` has no effect|learn = "completion", data = "pairs"
`group` must be a function, and is a number|group = 5, data = "prompts", params = { samples = 2 }
`feeds` is a list of names, not a string|feeds = "side"
nothing fills 'refrence': there are teacher, reference|feeds = { "refrence" }
nothing fills 'side' here: it is for data = "pairs"|feeds = { "side" }
nothing fills 'weight' here: it is for data = "pairs" or|feeds = { "weight" }
'nll' is a field of m already|feeds = { "nll" }
'old' stands there twice|feeds = { "old", "old" }
TABLES
        sed 's/return o.mean(m.nll)/return { loss = o.mean(m.nll), auxloss = m.nll }/' void.lua |
                sed 's/feeds = .*}, loss/loss/' > extra.lua
        tgc 3 "returned a .auxloss.; did you mean 'aux_loss'" check gpt --objective extra.lua
        sed 's/auxloss = m.nll/aux_loss = 3/' extra.lua > three.lua
        tgc 3 'aux_loss must be a tensor, and is a number' check gpt --objective three.lua
        tgc 3 "'samples' is 1, but must be at least 2" check gpt --objective grpo,samples=1
        tgc 3 "'samples' is 1, but must be at least 2" check gpt --objective polychromic,samples=1
        printf 'return { data = "prompts", params = { samples = 0 },\nloss = function() end }' > \
                none.lua
        tgc 3 'samples 1 to 64' check gpt --objective none.lua
        printf 'local g = require "grpo"\ng.params.samples = 1e110\nreturn g' > big.lua
        tgc 3 'samples is 1e.110, and must be a whole number' check gpt --objective big.lua
        printf 'return {\nloss = function(m, p) return m.logits + m.nll end }' > shape.lua
        tgc 3 'shape.lua:2: error: add' check gpt --objective shape.lua
        printf 'return {\nloss = function(m, p) while true do end end }' > long.lua
        tgc 3 'runs for too long' check gpt --objective long.lua --lua-timeout 0.2
        tgc 2 'needs a teacher: --reference MODEL' train st --data sft.jsonl --objective distill
        tgc 2 'needs the frozen model' train st --data pairs.jsonl --objective dpo
        tgc 2 '--long has no effect: --objective dpo' train st "${here[@]}" "${dpo[@]}" \
                --objective dpo --long cut
        tgc 2 '--eval_iters has no effect' train st "${here[@]}" "${group[@]}" --objective grpo \
                --eval_iters 3
        tgc 2 'reads neither' train st --data sft.jsonl --objective smoothing --reference st
        tgc 2 'learns from records of prompt, chosen' train st \
                --data "$top/tests/data/text/stories.txt" --objective dpo --lora r=4
        tgc 3 'sft.jsonl:1: a record has the texts' train st --data sft.jsonl --template none \
                --objective dpo --lora r=4 --out_dir x -q --device cpu
        tgc 3 'no record fits' train st --data prompts.jsonl --template none --objective grpo \
                --lora r=4 --block-size 64 --out_dir x -q --device cpu
        printf 'local g = require "grpo"\ng.reward = function(c) return 0 / 0 end\nreturn g' > \
                nan.lua
        tgc 3 'nan.lua:2?.*reward must be a finite number|reward must be a finite number' train st \
                "${here[@]}" "${group[@]}" --objective nan.lua,samples=2,max_tokens=4 --out_dir x
        printf 'local g = require "grpo"\ng.group = function(g) return {} end\nreturn g' > none.lua
        tgc 3 '`group` returned no `advantage`' train st "${here[@]}" "${group[@]}" \
                --objective none.lua,samples=2,max_tokens=4 --out_dir x
        sed 's|return 0 / 0|return #embed { c.text }|' nan.lua > embed.lua
        tgc 3 'embed.lua:2: error: embed: there is no model that embeds' train st "${here[@]}" \
                "${group[@]}" --objective embed.lua,samples=2,max_tokens=4 --out_dir x
}
say refused "$(refused)"
exit $failed
