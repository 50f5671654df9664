#!/bin/bash
# chunks.sh TGC OUT: on a GPU, a loss whose logits come in four chunks: three steps are those of
# -O0, which has them whole.
steps() {
        "$1" train models/gpt.lua -O"$3" -D vocab=50304 -D n_layer=1 -D n_embd=256 -D n_head=4 \
                -D ctx=1024 -b 32 --block-size 1024 --dtype bf16 --data README.md --tokenizer char \
                --max_iters 3 --log_interval 1 --eval_interval 1000 --device cuda \
                --out_dir "$2/chunks$3" 2>&1 | tee "$2/chunks$3.log" |
                sed -n 's/^iter \([0-9]*\): loss \([0-9.]*\),.*norm \([0-9.]*\),.*/\1 \2 \3/p'
}
paste -d ' ' <(steps "$1" "$2" 3) <(steps "$1" "$2" 0) | awk '
        function off(a, b, most) { return a - b > most || b - a > most }
        { if ($1 != $4 || off($2, $5, 0.002) || off($3, $6, 0.01 * $6)) bad = 1; print }
        END { if (NR != 3 || bad) exit 1; print "ok chunks" }' ||
                { tail -n 3 "$2"/chunks[03].log; exit 1; }
