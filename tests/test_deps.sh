#!/bin/bash
# test_deps.sh: scripts/deps.sh with each package manager, all of them played, and with none.
. "$(dirname "$0")/shell.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-deps-XXXXXX")
trap 'rm -rf "$dir"' EXIT
unset CC

# A machine with nothing but a shell and these commands; a manager says what it was asked for, and
# installs if it WORKS.
machine() {     # machine NAME WORKS [MANAGER...]
        local bin=$dir/$1/bin works=$2
        shift 2
        mkdir -p "$bin"
        for tool in sh dirname env; do ln -sf "$(command -v $tool)" "$bin/$tool"; done
        printf '#!/bin/sh\necho "${USER_ID:-0}"\n' > "$bin/id"
        for m; do
                {
                        echo '#!/bin/sh'
                        echo "echo $m \"\$@\" >> $bin/asked"
                        [ "$works" = yes ] && echo "for x in gcc g++ make pkg-config cc; do
                                echo '#!/bin/sh' > $bin/\$x; /bin/chmod +x $bin/\$x; done"
                } > "$bin/$m"
        done
        chmod +x "$bin"/*
}

deps() {        # deps NAME: runs it there
        PATH=$dir/$1/bin sh scripts/deps.sh > "$dir/$1/out" 2>&1
}

for m in apt-get:liblua5.4-dev:libxxhash-dev dnf:lua-devel:gcc-c++ pacman:lua54:libutf8proc \
        apk:musl-dev:lua5.4-dev; do
        IFS=: read -r name one two <<< "$m"
        p=
        machine "$name" yes "$name"
        deps "$name" || p="exit code $?: $(cat "$dir/$name/out")"
        [ "$p" ] || { grep -q -- " $one\b" "$dir/$name/bin/asked" &&
                grep -q -- " $two" "$dir/$name/bin/asked"; } ||
                        p="asked for $(cat "$dir/$name/bin/asked")"
        [ "$p" ] || grep -q "^+ $name " "$dir/$name/out" ||
                p="does not say what it runs: $(cat "$dir/$name/out")"
        [ "$p" ] || deps "$name" || p="a second time: $(cat "$dir/$name/out")"
        [ "$p" ] || [ ! -s "$dir/$name/out" ] || p="a second time it says $(cat "$dir/$name/out")"
        say "installs_with_$name" "$p"
done

p=
machine none no
deps none && p="passes without anything"
[ "$p" ] || grep -q 'a C compiler, .*cJSON, Lua 5.4, PCRE2' "$dir/none/out" ||
        p="$(cat "$dir/none/out")"
say says_what_to_install_elsewhere "$p"

p=
machine broken no apk
deps broken && p="passes where nothing was installed"
[ "$p" ] || grep -q '^still missing: a C compiler' "$dir/broken/out" || p="$(cat "$dir/broken/out")"
say says_what_is_still_missing "$p"

p=
machine user no dnf
USER_ID=1000 deps user && p="passes without rights"
[ "$p" ] || grep -q 'As root: dnf install -y -q .*lua-devel' "$dir/user/out" ||
        p="$(cat "$dir/user/out")"
[ "$p" ] || [ ! -e "$dir/user/bin/asked" ] || p="tried all the same"
say says_what_root_must_do "$p"

p=
machine sudo yes dnf sudo
printf '#!/bin/sh\nexec "$@"\n' > "$dir/sudo/bin/sudo"
USER_ID=1000 deps sudo || p="$(cat "$dir/sudo/out")"
[ "$p" ] || grep -q '^+ sudo dnf install' "$dir/sudo/out" || p="$(cat "$dir/sudo/out")"
say uses_sudo "$p"
exit $failed
