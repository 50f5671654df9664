#!/bin/bash
# test_completion.sh: what bash, zsh and fish complete: the words of a few lines, and the options of
# every command, all of them and no other.
. "$(dirname "$0")/shell.sh"
zsh=$PWD/tests/complete.zsh
start completion
export HOME=$dir

# What is typed, what Tab makes of it.
cat > lines << 'END'
tgc run --pred|tgc run --predict
tgc help mod|tgc help models
tgc tra|tgc train
tgc dump --mode inf|tgc dump --mode infer
tgc train --max_i|tgc train --max_iters
tgc eval --kl|tgc eval --kl
END
cut -d'|' -f2 lines > want
commands=$("$TGC" help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
[ "$(wc -w <<< "$commands")" -ge 10 ] && p= || p="$commands"
say the_commands "$p"

# The options of a command, as its help has them.
options() { "$TGC" help "$1" | sed -n 's/^  \(-.,\|   \) \(--[A-Za-z_0-9-]*\).*/\2/p'; echo \
        --help; }

# every_option SHELL COMPLETE: COMPLETE COMMAND prints the options that are offered: bash's, and
# those of the help are among them (a help leaves out what few need).
every_option() {
        for command in $commands; do
                options "$command" | sort -u > help
                bash_options "$command" | sort -u > want.options
                "$2" "$command" | grep -v -e '^--no-' | sort -u > offered
                p=$(comm -23 help offered | head -3 | tr '\n' ' ')$(comm -3 want.options offered |
                        head -3 | tr '\n' ' ')
                [ ! "$p" ] || { echo "$1, tgc $command: $p"; return; }
        done
}

"$TGC" help --completion bash > bash.sh
bash_offers() {
        bash -c '. ./bash.sh; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tgc
                printf "%s\n" "${COMPREPLY[@]}"' x "$@"
}
bash_options() { bash_offers tgc "$1" --; }
while read -r line; do
        echo "${line% *} $(bash_offers $line)"
done < <(cut -d'|' -f1 lines) > said
say bash_completes "$(diff want said | head -3)"
say bash_knows_every_option "$(every_option bash bash_options)"

if command -v fish > /dev/null; then
        "$TGC" help --completion fish > tgc.fish
        fish_offers() { fish -c 'source tgc.fish; complete -C $argv[1]' -- "$1" | cut -f1; }
        fish_options() { fish_offers "tgc $1 --" | grep '^--'; }
        while read -r line; do
                echo "${line% *} $(fish_offers "$line" | head -1)"
        done < <(cut -d'|' -f1 lines) > said
        say fish_completes "$(diff want said | head -3)"
        say fish_knows_every_option "$(every_option fish fish_options)"
else
        echo "skip fish_completes: no fish"
fi

if command -v zsh > /dev/null; then
        "$TGC" help --completion zsh > _tgc
        zsh_options() { awk -v c="$1)" '$1 == c { on = 1 } on && /;;/ { exit } on' _tgc |
                grep -oE "'[*]?--[A-Za-z_0-9-]+" | sed "s/^'[*]*//"; }
        mapfile -t typed < <(cut -d'|' -f1 lines)
        timeout 60 zsh -f "$zsh" "$dir" "${typed[@]}" 2> err |
                sed 's/^/tgc /; s/\r//; s/ *$//' > said
        say zsh_completes "$(diff want said | head -3)$(head -3 err)"
        say zsh_knows_every_option "$(every_option zsh zsh_options)"
else
        echo "skip zsh_completes: no zsh"
fi
exit $failed
