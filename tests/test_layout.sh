#!/bin/bash
# test_layout.sh: C and CUDA files are as `make format` leaves them (clang-format 14, else skipped).
# Each check is first shown a file that it must refuse.
. "$(dirname "$0")/shell.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-layout-XXXXXX")
trap 'rm -rf "$dir"' EXIT
unset MAKEFLAGS MAKELEVEL
export LC_ALL=C.UTF-8

if ! git rev-parse --git-dir > /dev/null 2>&1; then
        echo "skip layout: not a git checkout"
        exit 0
fi

# unclean: of the files named on stdin, FILE:LINE of what clang-format would change
unclean() {
        xargs -P2 -n 100 clang-format --style=file:.clang-format --dry-run --Werror 2>&1 |
                sed -n 's/^\([^: ]*:[0-9]*\):.*error:.*/\1/p' | head -5 | xargs
}

if ! clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
        echo "skip clang_format: clang-format 14 is not here"
else
        printf 'int a  = 1;\n' > "$dir/bad.c"
        p=$(echo "$dir/bad.c" | unclean)
        say clang_format_sees_a_bad_line "$([ "$p" ] || echo "nothing said of 'int a  = 1;'")"
        p=$(make -s formatted | unclean)
        say clang_format "${p:+make format would change $p}"
fi

exit $failed
