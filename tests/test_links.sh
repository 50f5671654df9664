#!/bin/bash
# test_links.sh: every relative link of a document resolves, anchors too, and every `tgc ...` and
# `make ...` command of README.md and CONTRIBUTING.md names what exists: the subcommand, its
# options, the make target, the file.
. "$(dirname "$0")/shell.sh"
TGC=$(readlink -f "${TGC:-build/tgc}")
docs=$(ls ./*.md docs/*.md docs/notebook/*.md tests/README.md tests/data/README.md examples/*.md \
        examples/*/README.md codegen/kernels/README.md 2> /dev/null)

# The anchors of a document, as GitHub makes them of headings.
anchors() {
        grep -E '^#+ ' "$1" | sed -E 's/^#+ +//' | tr '[:upper:]' '[:lower:]' |
                sed -E "s/[^a-z0-9 _-]//g; s/ /-/g"
}

# links FILE: its broken links, on one line
links() {
        local dir target file anchor
        dir=$(dirname "$1")
        grep -oE '\]\([^) ]+\)' "$1" | sed -E 's/^\]\(//; s/\)$//' | sort -u |
                while read -r target; do
                case $target in http*://* | mailto:*) continue ;; esac
                file=${target%%#*} anchor=
                [[ $target = *'#'* ]] && anchor=${target#*#}
                if [ -n "$file" ]; then file=$dir/$file; else file=$1; fi
                if [ ! -e "$file" ]; then
                        printf '%s ' "$target"
                elif [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -- "$anchor"; then
                        printf '%s (no such heading) ' "$target"
                fi
        done
}

# The commands of a document: lines of blocks indented by four, or that begin with `$ `; a backslash
# joins two.
commands() {
        sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$1" | sed 's/^[$] /    /' |
                grep -E '^    [^ ]' | sed 's/ # .*//'
}

# wrong COMMAND...: what is wrong with one
wrong() {
        local word help
        case $1 in
        build/tgc | tgc)
                [ $# -gt 1 ] || return
                help=$("$TGC" help "$2" 2> /dev/null) || { echo "no subcommand $2"; return; }
                shift 2
                for word; do
                        [[ $word = --* ]] && word=${word%%=*}
                        [[ $word = -[a-zA-Z] || $word = --* ]] || continue
                        grep -qE -- "(^|[ ,])$word([ ,=]|$)" <<< "$help" || echo "no option $word"
                done
                ;;
        make)
                for word in "${@:2}"; do
                        [[ $word = build/tests/* && -e ${word#build/}.c ]] && continue
                        [[ $word = -* || $word = *=* ]] ||
                                grep -qE "^$word:|^\.PHONY:.* $word( |$)" Makefile ||
                                        echo "no target $word"
                done
                ;;
        python3 | sh | bash) [ -e "${2:-.}" ] || echo "no file $2" ;;
        esac
}

for f in $docs; do
        p=$(links "$f")
        say "links_of_${f#./}" "${p:+broken: $p}"
done

for f in README.md CONTRIBUTING.md; do
        n=0 p=
        while read -r -a words; do
                case ${words[0]} in
                [A-Z]*=*) words=("${words[@]:1}") ;;
                esac
                case ${words[0]:-} in build/tgc | tgc | make | python3 | sh | bash) ;; *) continue \
                        ;; esac
                n=$((n + 1))
                w=$(wrong "${words[@]}" < /dev/null)
                [ -z "$w" ] || p+="'${words[*]}': $w; "
        done < <(commands "$f")
        [ $n -ge 8 ] || p+="only $n commands found"
        say "commands_of_$f" "$p"
done
exit $failed
