# complete.zsh FOLDER LINE...: what zsh makes of each line when Tab is typed behind it, in a shell of its own that has read
# FOLDER/_tgc and whose `tgc` says its arguments.
zmodload zsh/zpty
for line in "${@:2}"; do
        zpty shell zsh -f -i
        zpty -w shell "PS1=; autoload -Uz compinit; compinit -u -d $1/dump; source $1/_tgc; bindkey '^I' complete-word
tgc() { print -r -- \"said:\$*:\" }; print READY"
        while zpty -r shell out && [[ $out != READY* ]]; do :; done
        zpty -w -n shell "$line"$'\t\n'
        while zpty -r shell out; do [[ $out != *said:*:* ]] || { print -r -- ${${out#*said:}%:*}; break; }; done
        zpty -d shell
done
