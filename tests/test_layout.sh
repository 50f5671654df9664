#!/bin/bash
# test_layout.sh: C and CUDA files are as `make format` leaves them (clang-format 14, else skipped),
# and no line of them is over 100 columns, comments and strings too, which clang-format does not
# wrap. No line of a document is over 150. A kernel file's include guard says its name. Each
# check is first shown a file that it must refuse.
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

# Tables whose rows are lines; tok_unicode.h is generated.
tables=" cli/commands.def cli/effects.def cli/habits.def cli/options.def
        compiler/read/language.def ir/ops.def runtime/tokenizer/tok_unicode.h "

# wide COLUMNS FILE...: FILE:LINE of the longer lines, but for rows of tables in documents
wide() { grep -HnE "^[^|].{$1,}" "${@:2}" | sed 's/^\([^:]*:[0-9]*\):.*/\1/' | head -5 | xargs; }

code=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.def' |
        while read -r f; do [[ " ${tables//$'\n'/ } " = *" $f "* ]] || echo "$f"; done)
printf '/* %0100d */\n' 1 > "$dir/wide.c"
printf '%0151d\n| %0151d |\n' 1 1 > "$dir/wide.md"
p=$(wide 100 "$dir/wide.c")
say columns_sees_a_long_line "$([ "$p" = "$dir/wide.c:1" ] || echo "says '$p' of wide.c:1")"
p=$(wide 150 "$dir/wide.md")
say columns_leaves_rows_of_tables "$([ "$p" = "$dir/wide.md:1" ] || echo "says '$p' of wide.md:1")"
p=$(wide 100 $code)
say columns_of_code "${p:+over 100 columns: $p}"
p=$(wide 100 $(git ls-files 'models/*.lua' 'examples/*.lua'))
say columns_of_models "${p:+over 100 columns: $p}"
# over_100 EXCEPT FILES: the same of the files that git knows, but for lines that match EXCEPT
over_100() {
        git ls-files "${@:2}" | xargs grep -HnE '^.{101,}' | grep -vE "^[^:]*:[0-9]*:$1" |
                sed 's/^\([^:]*:[0-9]*\):.*/\1/' | head -5 | xargs
}
p=$(over_100 '\{"' '*.sh' '*.py') # a record is a line
say columns_of_scripts "${p:+over 100 columns: $p}"
p=$(over_100 '.* -- error: ' 'tests/*.lua') # the message that a model must give
say columns_of_tests_lua "${p:+over 100 columns: $p}"
p=$(wide 150 $(git ls-files '*.md'))
say columns_of_documents "${p:+over 150 columns: $p}"

# misnamed FILE...: those whose include guard is not TGC_ and their name.  emulate_sm90.h stands in
# for ptx_sm90.cuh and has its guard; a plan's own headers are TGC_CUH and TGC_H.
misnamed() {
        local f guard name
        for f in "$@"; do
                guard=$(sed -n 's/^#ifndef \(TGC_[A-Z0-9_]*\)$/\1/p' "$f" | head -1)
                name=$(basename "$f" | tr 'a-z.' 'A-Z_')
                case $guard:$name in
                :* | TGC_$name:* | TGC_PTX_SM90_CUH:EMULATE_SM90_H) ;;
                TGC_CUH:TGC_CUH | TGC_H:CPU_TGC_H) ;;
                *) echo "$f" ;;
                esac
        done | head -5 | xargs
}
printf '#ifndef TGC_OTHER_CUH\n' > "$dir/name.cuh"
p=$(misnamed "$dir/name.cuh")
say guards_sees_another_name "$([ "$p" = "$dir/name.cuh" ] || echo "says '$p' of name.cuh")"
p=$(misnamed $(git ls-files 'codegen/kernels/*.cuh' 'codegen/kernels/*.h'))
say guards_of_kernels "${p:+not TGC_ and the name of the file: $p}"

exit $failed
