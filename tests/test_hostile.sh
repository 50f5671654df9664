#!/bin/bash
# test_hostile.sh: what a person or a broken disk may hand to tgc.  Each case gives
# the exit code of its kind and a message with the file's name, writes nothing,
# and ends within seconds in bounded memory; tests/test_cli.c has the well-meant ones.
. "$(dirname "$0")/shell.sh"
model=$(readlink -f tests/data/models/story)
lua=$(readlink -f tests/read)
start hostile
export TGC_CACHE_DIR=$dir/cache
limit=4000000                           # KiB; sanitizers want terabytes of addresses
(ulimit -v $limit; "$TGC" version) > /dev/null 2>&1 || limit=unlimited

# try CODE WORDS COMMAND...: "" or what is wrong.  WORDS is a regular expression
# for the message; x.plan must not appear.  4 GB of address space, 20 seconds.
try() {
        local want=$1 words=$2 rc
        shift 2
        rm -f x.plan
        ( ulimit -v $limit; exec timeout -k 2 20 "$@" > out 2> err < /dev/null )
        rc=$?
        if [ $rc -ne "$want" ]; then
                echo "'${*: -4}' exits with $rc, not $want: $(head -c 300 err)"
        elif ! grep -Eq -- "$words" err; then
                echo "'${*: -4}' does not say '$words': $(head -c 300 err)"
        elif [ "$want" -ne 0 ] && compgen -G '*x.plan*' .x.plan* > /dev/null; then
                echo "'${*: -4}' left a file"
        fi
}

compile() {
        local want=$1 words=$2
        shift 2
        try "$want" "$words" "$TGC" compile "$@" -o x.plan
}
infer() {
        local want=$1 words=$2
        shift 2
        try "$want" "$words" "$TGC" run both.plan --device cpu -t 1 --temp 0 "$@"
}
train() {
        local want=$1 words=$2
        shift 2
        try "$want" "$words" "$TGC" train both.plan --device cpu -t 1 --max_iters 2 \
                --eval_interval 2 --eval_iters 1 --out_dir out.d "$@"
}

# patch FILE OFFSET BYTES: BYTES as printf writes them
patch() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null; }

# ---- a model small enough to compile a hundred times ----

cat > tiny.lua <<'LUA'
local b = require "blocks"
return {
        name = "tiny", params = { vocab = 65, ctx = 16, n_embd = 8, n_layer = 1 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, { std = 0.02, from = "tok" })
                for i = 1, p.n_layer do
                        x = scope("blk" .. i, function()
                                local y = b.linear(x, "up", p.n_embd,
                                        { std = 0.02, from = "up" .. i })
                                local a = b.attend(y, y, y,
                                        { n_head = 2, head_dim = p.n_embd // 2 })
                                return (x + a):as "sum"
                        end)
                end
                local logits = b.linear(x, "logits", p.vocab, { std = 0.02, from = "head" })
                return b.outputs(logits, targets)
        end,
}
LUA
seq 1 200 > text.txt
compiler=
"$TGC" compile tiny.lua -q -o plain.plan --mode infer || {
        echo "not ok setup: $TGC compiles nothing"
        exit 1
}
if "$TGC" compile tiny.lua -q -o both.plan -b 2 --block-size 8 --target cpu 2> \
        err; then compiler=yes; fi

# ---- models ----

graphs() {
        compile 3 'tiny.lua:.*vocabulary is 1000000000000' tiny.lua -D vocab=1e12
        compile 3 'tiny.lua:.*dimension' tiny.lua -D vocab=0
        compile 3 'tiny.lua:.*out of range' tiny.lua -D n_embd=1000000000
        compile 3 'ctx must be between' tiny.lua -D ctx=1099511627776
        compile 3 "n_layer.*-1" tiny.lua -D n_layer=-1
        compile 2 "'vocab' is a number, not 'abc'" tiny.lua -D vocab=abc
        compile 2 "KEY=VALUE, not 'vocab'" tiny.lua -D vocab
        compile 2 "no parameter 'n_lager'; did you mean 'n_layer'" tiny.lua -D n_lager=2
        compile 2 '256 x 16777216 tokens' tiny.lua -b 256 --block-size 16777216
        compile 2 'ctx-size: 1099511627776 is outside' tiny.lua -c 1099511627776
        compile 2 'no pass is called' tiny.lua --print-after nosuch
        compile 2 'not one of f32' tiny.lua --dtype f64
        compile 2 'not one of cpu, cuda' tiny.lua --target sm_9999
}

lua_files() {
        local f
        for f in endless_loop table_bomb string_bomb c_recursion unknown_op inner_dimensions \
                nil_parameter; do
                compile 3 "$f.lua:[0-9]+: error: " "$lua/$f.lua"
        done
        printf '\033LuaT\0\x19\x93' > code.lua
        compile 3 'code.lua: .*binary chunk' code.lua
        : > empty.lua
        compile 3 'empty.lua: .*must return a table' empty.lua
        truncate -s 100M big.lua
        compile 3 'big.lua: .*more than the limit' big.lua
        echo 'return { name="x", params={}, graph=function() return {} end }' > none.lua
        compile 3 'neither logits nor loss' none.lua
        compile 8 'nosuch.lua: .*no such file' nosuch.lua
        compile 8 'no/such.lua: no such file' no/such.lua
        mkdir folder.lua
        compile 3 'folder.lua: a folder' folder.lua
        mkfifo pipe.lua
        compile 3 'pipe.lua: a device or pipe' pipe.lua
        compile 3 '/dev/zero: a device' /dev/zero
        echo 'while true do local s = ("x"):rep(2^20 - 1) end' > slow.lua
        compile 3 'slow.lua:1: error: .*more than 0.2 seconds; --lua-timeout allows more' slow.lua \
                --lua-timeout 0.2
        mkfifo pipe
        mkfifo pipe.json
        compile 3 'pipe.json: not a regular file' tiny.lua --tokenizer pipe.json
        compile 3 'pipe: a device or pipe' tiny.lua --tokenizer char:pipe
        compile 3 'pipe: a device or pipe' tiny.lua --weights pipe
        compile 3 'pipe: a device or pipe' tiny.lua --tuned pipe
        try 3 'pipe: a device or pipe' "$TGC" train tiny.lua --data pipe --out_dir out.d
        try 3 'pipe: a device or pipe' "$TGC" run plain.plan --file pipe --tokenizer char:text.txt
        compile 2 'is empty' ''
        compile 8 'x1b\[31mx.lua: no such file' $'./\e[31mx.lua'
        compile 8 'x\\x0ay.lua: no such file' $'./x\ny.lua'
        try 8 '^tgc: error: p\\x0aq.plan: no such file' "$TGC" run $'p\nq.plan' -p a
}

json_graphs() {
        local text
        "$TGC" dump tiny.lua --graph --json > graph.json
        compile 0 '' graph.json
        head -c 500 graph.json > j.json
        compile 3 'j.json:[0-9]+:[0-9]+: not valid JSON' j.json
        : > j.json
        compile 3 'j.json:1:1: not valid JSON' j.json
        head -c 300000 /dev/zero | tr '\0' '[' > j.json
        compile 3 'j.json:1:1001: not valid JSON' j.json
        printf '{"name":"a\0"}' > j.json
        compile 3 'j.json:1:11: NUL' j.json
        printf '\xff\xfe{}' > j.json
        compile 3 "j.json: begins with UTF-16's byte order mark" j.json
        printf '{"\xff":1}' > j.json
        compile 3 'j.json: not UTF-8' j.json
        for text in '[1]|must be an object' '{"name":"x","name":"y"}|"name" given twice' \
                '{"name":5}|version 1'; do
                echo "${text%|*}" > j.json
                compile 3 "j.json:.*${text#*|}" j.json
        done
        sed '0,/\[65,/s/\[65,/[1e30,/' graph.json > j.json
        compile 3 'j.json:[0-9]+: .*1e30' j.json
        sed '0,/\[65,/s/\[65,/[-3,/' graph.json > j.json
        compile 3 'j.json:[0-9]+: .*-3' j.json
        sed 's/"op": "gather"/"op": "gatherr"/' graph.json > j.json
        compile 3 "j.json:[0-9]+: .*unknown op" j.json
}

# ---- plans: bits flipped, cut, and other files under their name ----

plans() {
        local size i at byte
        size=$(stat -c %s plain.plan)
        for ((i = 0; i < 50; i++)); do
                at=$(((i * (size / 50) + i * 7919) % size))
                cp plain.plan bad.plan
                byte=$(od -An -tu1 -j$at -N1 bad.plan)
                patch bad.plan $at "\\x$(printf %x $((byte ^ 1 << i % 8)))"
                try 3 'bad.plan: ' "$TGC" info bad.plan
        done
        for at in 0 1 8 63 64 100 1000 $((size / 2)) $((size - 1)); do
                head -c $at plain.plan > bad.plan
                try 3 'bad.plan: ' "$TGC" info bad.plan
        done
        (cat plain.plan; echo more) > bad.plan
        try 3 'bad.plan: .*header says' "$TGC" info bad.plan
        cp plain.plan bad.plan; patch bad.plan 0 X
        try 3 'bad.plan: not a plan' "$TGC" info bad.plan
        cp plain.plan bad.plan; patch bad.plan 8 '\xff'
        try 3 'plan format .*reads 1' "$TGC" info bad.plan
        cp text.txt bad.plan
        try 3 'bad.plan: not a plan' "$TGC" run bad.plan --prompt-ids 1
        try 2 'was compiled for inference only' "$TGC" train plain.plan --data text.txt \
                --out_dir out.d
        try 2 'is compiled already' "$TGC" run plain.plan --prompt-ids 1 -D n_layer=2
        try 2 'run: there is no -b' "$TGC" run plain.plan --prompt-ids 1 -b 3
}

# ---- folders of Hugging Face and files of llama2.c ----

folder() {      # folder CODE WORDS: compiles hf, then makes it good again
        compile "$1" "$2" hf
        cp -f "$model"/{config.json,tokenizer.json,model.safetensors} hf/
        chmod u+w hf/*
}

config() {      # config SED CODE WORDS
        sed -i "$1" hf/config.json
        folder "$2" "$3"
}

hf_config() {
        folder 0 ''
        head -c 200 hf/config.json > q; mv q hf/config.json
        folder 3 'hf/config.json:[0-9]+:[0-9]+: not valid'
        echo '{}' > hf/config.json
        folder 3 'hf/config.json: no model is known'
        echo '[]' > hf/config.json
        folder 3 'hf/config.json: not a JSON object'
        config '/Llama/d; s/"model_type".*/"model_type": "frob",/' 3 'hf/config.json: .*frob'
        config 's/"hidden_size".*/"hidden_size": "x",/' 3 \
                'hf/config.json:[0-9]+:3: "hidden_size": "x" should be a whole number'
        config '/"hidden_size"/d' 3 'heads of width 1024'         # its default is 4096
        config 's/"num_hidden_layers".*/"num_hidden_layers": -1,/' 3 \
                'hf/config.json:[0-9]+:3: "num_hidden_layers": -1 should'
        config 's/"rms_norm_eps".*/"rms_norm_eps": -1,/' 3 \
                'hf/config.json:[0-9]+:3: "rms_norm_eps": -1 should be a number of at least 0'
        config 's/"eos_token_id".*/"eos_token_id": [2, 512],/' 3 \
                'hf/config.json:[0-9]+:3: "eos_token_id": 512 is the id of none of the 512'
        config 's/"bos_token_id".*/"bos_token_id": -1,/' 3 \
                'hf/config.json:[0-9]+:3: "bos_token_id": -1 is the id of none'
        # transformers writes GPT-2's own end into every folder of a GPT-2
        cp -r "${model%/models/story}"/families/gpt2 small && chmod -R u+w small
        sed -i 's/\(os_token_id":\) [0-9]*/\1 50256/' small/config.json
        echo '{"bos_token_id": 50256, "eos_token_id": 50256}' > small/generation_config.json
        compile 0 '' small
        "$TGC" dump small --manifest | grep token_id
        sed -i 's/\("eos_token_id":\) [0-9]*/\1 50255/' small/config.json
        compile 3 'small/config.json:[0-9]+:3: "eos_token_id": 50255 is the id of none of' small
        echo '{"eos_token_id": 512}' > hf/generation_config.json
        folder 3 'hf/generation_config.json:1: "eos_token_id": 512 is the id of none of the token'
        rm hf/generation_config.json
        config 's/"use_cache"/"frobnicate"/' 3 \
                'hf/config.json:[0-9]+:3: "frobnicate": true is no key'
        config 's/"hidden_act".*/"hidden_act": "mish",/' 3 \
                'hf/config.json:[0-9]+:3: "hidden_act": "mish" is not known'
        config 's/"num_hidden_layers".*/"num_hidden_layers": 3,/' 3 'hf: .*missing: model.layers.2'
        config 's/"num_hidden_layers".*/"num_hidden_layers": 1,/' 3 \
                'model does not use: model.layers.1'
        config 's/"vocab_size".*/"vocab_size": 1000000000000,/' 3 'hf/config.json: .*1000000000000'
        config 's/"vocab_size".*/"vocab_size": 511,/' 3 '511.*embed_tokens.weight.*512'
}

hf_weights() {
        head -c 100000 hf/model.safetensors > q; mv q hf/model.safetensors
        folder 3 'model.safetensors: tensor .*bytes'
        : > hf/model.safetensors
        folder 3 'model.safetensors: 0 bytes'
        patch hf/model.safetensors 0 '\xff\xff\xff\xff\xff\xff\xff\x7f'
        folder 3 'model.safetensors: header of'
        patch hf/model.safetensors 9 'x'
        folder 3 'model.safetensors'
        rm hf/model.safetensors
        folder 3 'hf: no weights'
}

tokenizers() {
        local bin=$model/story.bin
        head -c 300 hf/tokenizer.json > q; mv q hf/tokenizer.json
        folder 3 'tokenizer.json:[0-9]+:[0-9]+: not valid JSON'
        echo '{}' > hf/tokenizer.json
        folder 3 'tokenizer.json: there is no model'
        echo '{"model":{"type":"Frob","vocab":{"a":0},"merges":[]}}' > hf/tokenizer.json
        folder 3 "type 'Frob'"
        echo '{"model":{"type":"BPE","vocab":{"a":5},"merges":["a b"]}}' > hf/tokenizer.json
        folder 3 'merge 0'
        head -c 2000 "$model"/tok.bin > tok.bin
        compile 3 'tok.bin: .*token 142' "$bin" --tokenizer tok.bin
        compile 3 'nosuch: No such file' "$bin" --tokenizer nosuch
        rm -f tok.bin
        head -c 5000 /dev/urandom > m.bin; patch m.bin 0 '\xff\xff\xff\xff'
        compile 3 'm.bin: not a llama2.c' m.bin
        head -c 30 "$bin" > m.bin
        compile 3 'm.bin: 30 bytes, but' m.bin
        head -c 300000 "$bin" > m.bin
        compile 3 'm.bin: 300000 bytes, but' m.bin
}

# ---- running ----

prompts() {
        infer 2 'no tokenizer'                          -p hi
        infer 2 'no ids in it'                          --prompt-ids ''
        infer 2 'ids:1:1: id -1 is outside'             --prompt-ids -1
        infer 2 'id 65 is outside the vocabulary, 0 to 64' --prompt-ids 1,65
        infer 2 'ids:1:3: .x. is not allowed in a list'                 --prompt-ids 1,x
        infer 2 '17 tokens, the plan.s context is 16'   --prompt-ids "$(seq -s, 17)"
        infer 2 'the plan was compiled for 16'          --prompt-ids 1 -c 99
        infer 2 'give one of'                           --prompt-ids 1 -p x
        infer 2 'temp: -1 is outside'                   --prompt-ids 1 --temp=-1
        infer 2 'top-p: .nan. is not a number'          --prompt-ids 1 --top-p nan
        infer 2 'did you mean --top-k'                  --prompt-ids 1 --topk 3
        infer 0 'decode 0 tokens'                       --prompt-ids 1,2 -n 0
        infer 0 'decode 15 tokens'                      --prompt-ids 1,2 -n -1
        infer 0 'decode 1 token'                       --prompt-ids "$(seq -s, 16)" -n 5
        try 2 'not one of auto' "$TGC" run both.plan --prompt-ids 1 --device tpu
        TGC_DEVICE=tpu try 2 'TGC_DEVICE' "$TGC" run both.plan --prompt-ids 1
}

texts() {       # prompts through a tokenizer of characters
        local go=(--device cpu -t 1 --temp 0 --print-ids --tokenizer char:text.txt -n 1)
        try 0 ''                        "$TGC" run both.plan "${go[@]}" -p 12
        try 2 '--prompt: .*not among'        "$TGC" run both.plan "${go[@]}" -p abc
        try 2 '--prompt: .*UTF-8'                   "$TGC" run both.plan "${go[@]}" -p $'1\xff'
        try 2 '30 tokens'               "$TGC" run both.plan "${go[@]}" \
                -p 111111111111111111111111111111
        printf '1\0002' > nul.txt
        try 3 'nul.txt: .*not among' "$TGC" run both.plan "${go[@]}" -f nul.txt
        try 8 'nosuch'                  "$TGC" run both.plan "${go[@]}" -f nosuch
        try 3 'folder'                  "$TGC" run both.plan "${go[@]}" -f .
}

machine() {
        local huge=(--mode infer -b 64 -c 131072)
        "$TGC" info both.plan > /dev/null || echo "info fails"
        if [ ! -e /dev/nvidia0 ]; then
                try 4 'doctor' "$TGC" run both.plan --prompt-ids 1 --device cuda
        fi
        try 4 'no C compiler' /usr/bin/env -i PATH=/nonexistent "$TGC" run plain.plan \
                --prompt-ids 1 --device cpu
        compile 0 '' llama "${huge[@]}" && mv x.plan huge.plan
        try 5 'GB needed, .* free' "$TGC" run huge.plan --prompt-ids 1 --device cpu
        grep -q 'kv ' err || echo "no table of what is needed"
        env -u HOME -u TGC_CACHE_DIR -u XDG_CACHE_HOME \
                "$TGC" run both.plan -q --prompt-ids 1 -n 1 --device cpu -t 1 > out ||
                echo "does not run without HOME"
        TGC_CACHE_DIR=/proc/none infer 0 '' --prompt-ids 1 -n 1
        mkdir -p -m 777 open; chmod 777 open
        TGC_CACHE_DIR=$PWD/open infer 8 'open can be written by other users.*chmod go-w' \
                --prompt-ids 1 -n 1
        TGC_CACHE_DIR=$PWD/open compile 8 'open can be written by other users' tiny.lua --target cpu
        TGC_CACHE_DIR=$PWD/open "$TGC" doctor |
                grep -q 'missing  the cache folder .*can be written by other users' ||
                echo "doctor does not mind"
        mkdir -p home/tgc; chmod 777 home/tgc
        XDG_CACHE_HOME=$PWD/home try 0 'can be written by other users.*no cache' env \
                -u TGC_CACHE_DIR "$TGC" run both.plan --prompt-ids 1 -n 1 --device cpu -t 1
        TGC_CACHE_MAX=x infer 8 "TGC_CACHE_MAX: 'x'" --prompt-ids 1 -n 1
}

no_compiler() {
        compile_without() {
                try "$1" "$2" /usr/bin/env -i PATH=/nonexistent "$TGC" compile tiny.lua -o x.plan \
                        --mode infer "${@:3}"
        }
        compile_without 4 'no C compiler' --target cpu
        compile_without 0 'no compiled CPU code' --target all
        compile_without 0 ''
}

# ---- training ----

text_data() {
        train 8 'nosuch: no such file'          --data nosuch
        train 3 'a folder'                      --data .
        : > e.txt
        train 3 'e.txt: .*without characters' --data e.txt
        echo abc > s.txt
        train 3 's.txt: 4 tokens; .* need 9' --data s.txt
        printf 'abc\xff\xfe hello' > u.txt
        train 3 'u.txt: .*byte 3 is not UTF-8' --data u.txt
        head -c 301 /dev/zero > odd.bin
        train 3 'odd.bin: 301 bytes' --data odd.bin
        printf '\101\000\377\000' > ids.bin
        train 3 'ids.bin: id 65 at 0, the vocabulary is 65' --data ids.bin
        train 3 'text.txt: not a .npy'          --data text.txt --eval_iters 0 \
                --batch_offsets text.txt
        printf '\x93NUMPY\x01\0\x76\0{"descr": "<i8"' > a.npy
        train 3 'a.npy: '                       --data text.txt --eval_iters 0 --batch_offsets a.npy
        train 2 'batches of 1 x 8'              --data text.txt --batch-size 1
        train 2 'not a number'                  --data text.txt --learning_rate nan
        train 2 'outside 1 to'                  --data text.txt --gradient_accumulation_steps 0
        train 8 'nosuch'                        --data text.txt --init_from nosuch
        train 3 'text.txt: not a checkpoint'    --data text.txt --init_from text.txt
        train 8 'no/x.csv'                      --data text.txt --log_csv no/x.csv
        train 8 'text.txt: is a file'           --data text.txt --out_dir text.txt
        train 8 '/proc/x'                       --data text.txt --out_dir /proc/x
        [ -e out.d/ckpt.safetensors ] && echo "a checkpoint was written"
}

resume() {
        local n
        rm -rf out.d
        train 8 'nothing to resume' --data text.txt --resume
        train 0 '' --data text.txt
        train 0 'has 2 steps already'           --data text.txt --resume
        cp out.d/state.safetensors good; cp out.d/ckpt.safetensors ckpt
        for n in 0 5 100 1000 5000; do
                head -c $n good > out.d/state.safetensors
                train 3 'state.safetensors: ' --data text.txt --resume --max_iters 4
        done
        head -c 9000 /dev/urandom > out.d/state.safetensors
        train 3 'state.safetensors: ' --data text.txt --resume
        cp ckpt out.d/state.safetensors
        train 3 'no step' --data text.txt --resume
        cp good out.d/state.safetensors
        train 3 'tokens of data, tiny.lua has' --data tiny.lua --resume
        train 2 'seed 1337' --data text.txt --resume --seed 5
        cmp -s good out.d/state.safetensors && cmp -s ckpt out.d/ckpt.safetensors ||
                echo "a refused run wrote"
        train 6 'not finite' --data text.txt --learning_rate 1000 --weight_decay 100 --grad_clip 0 \
                --max_skips 0 --max_iters 300 --eval_interval 300 --resume --no-decay_lr
}

# ---- writing ----

outputs() {
        local old
        try 8 'no/dir/x.plan'           "$TGC" compile tiny.lua --mode infer -o no/dir/x.plan
        try 8 'is a folder'             "$TGC" compile tiny.lua --mode infer -o .
        try 2 'name is empty'           "$TGC" compile tiny.lua --mode infer -o ''
        [ -w /dev/full ] && try 8 'No space' "$TGC" compile tiny.lua --mode infer -o /dev/full
        cp plain.plan keep.plan
        old=$(sha1sum < keep.plan)
        (ulimit -f 100; "$TGC" compile tiny.lua -q --mode infer -D vocab=66 -o keep.plan 2> err)
        [ $? -eq 8 ] || echo "a file too large: $(cat err)"
        [ "$old" = "$(sha1sum < keep.plan)" ] || echo "the plan of before is gone"
        compgen -G '.keep.plan*' > /dev/null && echo "a temporary file stays"
        "$TGC" help 2> /dev/null >&- && echo "closed standard output goes unnoticed"
        "$TGC" compile tiny.lua -q --mode infer -o keep.plan >&- 2>&- <&-
        "$TGC" info keep.plan > /dev/null || echo "with closed standard files the plan is damaged"
}

killed() {      # at any moment: the plan is the old or the new one
        local i pid
        cp plain.plan keep.plan
        for i in 0 1 2 3 4 5 6 7; do
                "$TGC" compile tiny.lua -q --mode infer -D vocab=$((66 + i)) -o keep.plan &
                pid=$!
                sleep 0.0$((i * 3 % 7))
                kill -9 $pid 2> /dev/null
                wait $pid 2> /dev/null
                "$TGC" info keep.plan > /dev/null 2> err || echo "killed while writing: $(cat err)"
        done
}

# interrupt SIGNAL CODE COMMAND...: a second into the work
interrupt() {
        local signal=$1 want=$2 pid rc
        shift 2
        # a job of a script ignores SIGINT unless it gets its own group
        set -m
        "$@" > out 2> err < /dev/null &
        pid=$!
        set +m
        sleep 1
        kill -"$signal" $pid 2> /dev/null
        wait $pid
        rc=$?
        [ $rc -eq "$want" ] || echo "SIG$signal gives $rc, not $want: $(tail -c 200 err)"
}

signals() {
        local go=("$TGC" train both.plan --data text.txt --device cpu -t 1 -q --max_iters 100000000
                  --eval_interval 100000000)
        interrupt INT 130 "${go[@]}" --out_dir i.d
        interrupt TERM 143 "${go[@]}" --out_dir t.d
        [ -s i.d/state.safetensors ] && [ -s t.d/state.safetensors ] || echo "nothing was saved"
        echo 'while true do local s = ("x"):rep(2^20 - 1) end' > slow.lua
        interrupt INT 130 "$TGC" compile slow.lua -o x.plan --lua-timeout 0
        [ -e x.plan ] && echo "an interrupted compile wrote a plan"
}

starved() {     # too little memory for the compiler; below 6 MB the loader gives up with 127
        local k rc
        [ $limit = unlimited ] && return
        for k in 6000 7000 8000 9000 10000 12000 16000; do
                rm -f x.plan
                (ulimit -v $k; exec "$TGC" compile tiny.lua -q -o x.plan 2> err)
                rc=$?
                case $rc in 0|5|127) ;; *) echo "$k KiB: exit $rc: $(head -c 200 err)" ;; esac
                [ $rc -eq 0 ] || [ ! -e x.plan ] || echo "$k KiB: a plan was written"
        done
}

# ---- all of them ----

group() { say "$1" "$("$1" 2>&1 | head -5)"; }
needs() {       # needs WHAT REASON GROUP...
        local have=$1 reason=$2 g
        shift 2
        for g in "$@"; do
                if [ -n "$have" ]; then group "$g"; else echo "skip $g: $reason"; fi
        done
}

mkdir hf
cp "$model"/{config.json,tokenizer.json,model.safetensors} hf/
chmod -R u+w hf
[ -z "${ONLY:-}" ] || { group $ONLY; exit $failed; }
for g in graphs lua_files json_graphs plans outputs killed starved no_compiler hf_config \
        hf_weights tokenizers; do group $g; done
needs "$compiler" "no C compiler" prompts texts machine text_data resume signals
exit $failed
