#!/bin/bash
# test_readme.sh: the session of README.md as typed, in a scratch folder: every command ends well,
# and what the README shows of it is what tgc says, but for numbers, the machine and the texts that
# models make. What trains is compiled as for a user; the kernels of the other commands run for a
# moment, so they are compiled without optimisation (run.sh says how).
. "$(dirname "$0")/shell.sh"
top=$PWD
build=$(dirname "$(readlink -f "${TGC:-build/tgc}")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-readme-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=2 LC_ALL=C TGC_DEVICE=cpu
unset TGC_LOG

# The block ```console: a line `$ COMMAND` that a backslash continues, then what is shown of its
# output.
awk '/^```console$/ { on = 1; next } /^```/ { on = 0 } on' README.md > "$dir/session"
mkdir "$dir/here" && cd "$dir/here" || exit 1
ln -s "$build" build
for f in examples models tests docs; do ln -s "$top/$f" $f; done

own=${TGC_CFLAGS-}
flags() { case $1 in *"tgc train"*) echo "$own" ;; *) echo "-O0 -DTGC_CALLS $own" ;; esac; }

# Numbers and the machine are others elsewhere.
plain() { sed -E 's/ on [A-Z].*$/ on MACHINE/; s/[0-9]+(\.[0-9]+)?(e-?[0-9]+)?[kMG]?/N/g'; }

TGC_CFLAGS=$(flags compile) build/tgc compile gpt -D n_layer=1 -D n_head=2 -D n_embd=16 \
        --target cpu -q -o x.plan 2> /dev/null || { echo "skip readme: no C compiler"; exit 0; }
n=0 p='' command=
run() {
        local line prompt
        [ "$command" ] || return
        n=$((n + 1))
        [ "$p" ] || TGC_CFLAGS=$(flags "$command") timeout 300 bash -c "$command" > ../out 2> \
                ../err < /dev/null || p="'$command' exits with $?: $(tail -2 ../err)"
        cat ../out ../err 2> /dev/null | plain > ../said
        [ "$p" ] || case $command in
        *"tgc run"*)    # the prompt, then what the model makes of it
                prompt=$(sed -n 's/.*-p "\([^"]*\)".*/\1/p' <<< "$command")
                grep -qF -- "$prompt" <<< "$shown" && grep -qF -- "$prompt" ../out ||
                        p="'$command' does not go on with $prompt" ;;
        *)
                while read -r line; do
                        [ -z "$line" ] || grep -qxF -- "$line" ../said ||
                                p="'$command' does not say '$line', but $(head -c 400 ../said)"
                done < <(plain <<< "$shown") ;;
        esac
        command=
}
more=
while IFS= read -r line; do
        if [ "$more" ]; then command+=$line
        elif [[ $line = '$ '* ]]; then run; command=${line#'$ '} shown=
        else shown+=$line$'\n'; continue; fi
        more=
        [[ $line = *\\ ]] && more=1 command=${command%\\}
done < ../session
run
[ "$p" ] || [ $n -ge 7 ] || p="$n commands"
say the_session_as_typed "$p"

[ -s my.html ] && [ -s folder/config.json ] && p= || p="$(ls)"
[ "$p" ] || TGC_CFLAGS=$(flags run) build/tgc run folder -p Once -n 5 > ../out 2> ../err ||
        p="$(tail -1 ../err)"
say what_the_session_leaves "$p"
exit $failed
