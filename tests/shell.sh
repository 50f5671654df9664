# shell.sh: what tests in bash share: `. "$(dirname "$0")/shell.sh"; start NAME`.
#
# After start the test stands in an empty folder $dir of its own, which goes when it ends (KEEP=1:
# it stays); $TGC and $top, the checkout, are absolute.  The last command is `exit $failed`.
set -u
failed=0

start() {
        TGC=$(readlink -f "${TGC:-build/tgc}")
        top=$PWD
        dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-$1-XXXXXX")
        [ "${KEEP:-}" ] || trap 'rm -rf "$dir"' EXIT
        cd "$dir" || exit 1
        export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C
        unset TGC_DEVICE TGC_LOG
        ! [ -t 0 ] || exec < /dev/null
}

say() {         # say NAME PROBLEM: an empty problem is a pass
        if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1: $2"; failed=1; fi
}

# try CODE WORDS COMMAND...: "" or what is wrong; WORDS is a regular expression for the message.
# What the command says stays in `out` and `err`.  LIMIT: seconds.
try() {
        local want=$1 words=$2 rc
        shift 2
        timeout -k 2 "${LIMIT:-60}" "$@" > out 2> err
        rc=$?
        if [ $rc -ne "$want" ]; then
                echo "'${*: -5}' exits with $rc, not $want: $(head -c 400 err)"
        elif [ "$words" ] && ! grep -Eq -- "$words" err; then
                echo "'${*: -5}' does not say '$words': $(head -c 400 err)"
        fi
}

# tgc CODE WORDS ARGUMENTS...
tgc() { try "$1" "$2" "$TGC" "${@:3}"; }

# optimizers TGC: those that --optimizer takes, a line each
optimizers() { "$1" help train | sed -n 's/^ *--optimizer \([a-z0-9|]*\).*/\1/p' | tr '|' '\n'; }

# tiny_model FILE [VOCAB CTX]: one attention over 11 tokens, or VOCAB
tiny_model() {
        cat > "$1" << 'LUA'
local b = require "blocks"
return {
        name = "tiny", params = { vocab = 11, ctx = 8, n_embd = 8 },
        graph = function(p)
                local ids, targets = b.inputs()
                local x = b.embedding(ids, "tok", p.vocab, p.n_embd, { std = 0.02, from = "tok" })
                local a = b.attend(x, x, x, { n_head = 2, head_dim = p.n_embd // 2 })
                local logits = b.linear(x + a, "logits", p.vocab, { std = 0.02, from = "head" })
                return b.outputs(logits, targets)
        end,
}
LUA
        sed -i "s/vocab = 11, ctx = 8/vocab = ${2:-11}, ctx = ${3:-8}/" "$1"
}
