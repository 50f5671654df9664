#!/bin/bash
# test_dist.sh: the archive of `make dist` runs by itself: every library but the C library's comes
# from it, and so do the models, the documents and an example.
. "$(dirname "$0")/shell.sh"
build=$(readlink -f "$(dirname "${TGC:-build/tgc}")")
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-dist-XXXXXX")
trap 'rm -rf "$dir"' EXIT

ldd "$build/tgc" | grep -q libasan && { echo "skip dist: sanitizers"; exit 0; }
make -s dist BUILD="$build" > "$dir/log" 2>&1 ||
        { echo "not ok make_dist: $(tail -3 "$dir/log")"; exit 1; }
tar -C "$dir" -xzf "$build/tgc-dist.tar.gz" && cd "$dir/dist" || exit 1

p=
while read -r name path; do
        case $name in
        linux-vdso.* | */ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.*) ;;
        libgcc_s.so.*) ;;
        *) [ "$path" = "$PWD/lib/$name" ] || p="$name comes from $path" ;;
        esac
done < <(LD_LIBRARY_PATH=$PWD/lib ldd tgc.bin | sed -E 's/ \(0x.*//; s/ => / /')
say libraries_are_in_the_archive "$p"

p=
ln -s dist/tgc "$dir/link"
env -i PATH=/usr/bin:/bin "$dir/link" compile models/tinylm.lua -q -o "$dir/t.plan" 2> "$dir/err" ||
        p="models/tinylm.lua: $(cat "$dir/err")"
[ "$p" ] || env -i PATH=/usr/bin:/bin ./tgc info examples/shakespeare > /dev/null 2> "$dir/err" ||
        p="the example: $(cat "$dir/err")"
[ "$p" ] || { [ -s README.md ] && [ -s docs/graph-language.md ]; } || p="no documents"
say runs_without_an_environment "$p"

exit $failed
