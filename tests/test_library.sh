#!/bin/bash
# test_library.sh: make install to a DESTDIR; the programs of docs/library.md built against it with
# pkg-config, and run.
. "$(dirname "$0")/shell.sh"
top=$PWD
TGC=$(readlink -f "${TGC:-build/tgc}")
build=$(dirname "$TGC")
build=${build#"$top"/}
dir=$(mktemp -d "${TMPDIR:-/tmp}/tgc-library-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export TGC_CACHE_DIR=${TGC_CACHE_DIR:-$dir/cache} OMP_NUM_THREADS=1 LC_ALL=C
unset TGC_DEVICE TGC_LOG MAKEFLAGS MAKELEVEL MFLAGS

make_it() {     # COMMIT as it was built, so that the binary under test stays
        make --no-print-directory BUILD="$build" COMMIT="$(cat "$build/commit")" PREFIX=/opt/tgc \
                DESTDIR="$dir/root" "$@" > "$dir/log" 2>&1 ||
                echo "make $* failed: $(tail -3 "$dir/log")"
}

p=$(make_it install)
say make_install "$p"
[ "$p" ] && exit 1
root=$dir/root/opt/tgc

for f in bin/tgc include/tgc.h lib/libtgc.a lib/libtgc.so lib/libtgc.so.0 lib/pkgconfig/tgc.pc \
        share/man/man1/tgc.1 share/bash-completion/completions/tgc share/zsh/site-functions/_tgc \
        share/fish/vendor_completions.d/tgc.fish share/doc/tgc/library.md; do
        [ -s "$root/$f" ] || p="$p $f"
done
say all_files_are_installed "${p:+missing:$p}"

# What tgc.h declares, and nothing else, under a version.
grep -o '\btgc_[a-z0-9_]*(' runtime/tgc.h | tr -d '(' | sort -u > "$dir/want"
nm -D --defined-only "$root/lib/libtgc.so" | awk '$2 == "T" { print $3 }' | sort > "$dir/have"
p=$(sed 's/$/@@TGC_0/' "$dir/want" | diff - "$dir/have" | head -5)
[ "$p" ] || p=$(nm -g --defined-only "$root/lib/libtgc.a" | awk 'NF == 3 { print $3 }' | sort |
        diff "$dir/want" - | head -5)
[ "$p" ] || [ "$(wc -l < "$dir/have")" -ge 20 ] || p="$(wc -l < "$dir/have") functions"
say public_names_alone_are_exported "$p"
p=$(readelf -d "$root/lib/libtgc.so" | grep -q 'SONAME.*\[libtgc.so.0\]' ||
        echo "no soname libtgc.so.0")
say the_soname_has_the_version "$p"

# The document's own programs and commands, as typed.
sh scripts/blocks.sh docs/library.md "$dir/doc"
cmp -s "$dir/doc/story.c" examples/library/story.c ||
        p="docs/library.md and examples/library/story.c differ"
say the_example_is_the_documents "$p"
cp -r tests/data/models/story "$dir/doc/my-model"
cp -r tests/data/encoders/minilm "$dir/doc/my-encoder"
cd "$dir/doc" || exit 1
export PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root \
        LD_LIBRARY_PATH=$root/lib PATH=$root/bin:$PATH
CFLAGS="-Wall -Wextra -Werror -std=c11"
sed -i "s/^cc /cc $CFLAGS /" run.sh
command -v python3 > /dev/null || sed -i '/python3/d' run.sh
p=
timeout 300 sh -e run.sh > out 2> err < /dev/null || p="exit code $?: $(tail -3 err)"
[ "$p" ] || grep -q '^Once upon a time.* .* ' out || p="no story: $(head -c 300 out)"
[ "$p" ] || { grep -q '^1\.000 a cat$' out && grep -q '^-\?0\.[0-9]* the rain$' out; } ||
        p="no similarities: $(grep -E 'cat|rain' out)"
[ "$p" ] || grep -q '^step 39: loss 0' out || p="nothing learnt: $(grep loss out)"
[ "$p" ] || ! command -v python3 > /dev/null || [ "$(tail -1 out | wc -w)" -ge 5 ] ||
        p="Python says: $(tail -1 out) $(tail -3 err)"
say the_programs_of_the_document "$p"

# The README's ten lines of C and five of Python.
cd "$top" || exit 1
sh scripts/blocks.sh README.md "$dir/readme"
ln -s "$top/examples" "$dir/readme/examples"
cd "$dir/readme" || exit 1
sed -i "s/^cc /cc $CFLAGS /" run.sh
command -v python3 > /dev/null || sed -i '/python3/d' run.sh
p=
timeout 300 sh -e run.sh > out 2> err < /dev/null || p="exit code $?: $(tail -3 err)"
[ "$p" ] || [ "$(wc -c < out)" -ge $(($(grep -c '^./story\|^python3' run.sh) * 60)) ] ||
        p="no text: $(head -c 300 out)"
say the_programs_of_the_readme "$p"
cd "$dir/doc" || exit 1

# The static library: its other names do not meet the program's.
cat story.c > own.c
echo 'int plan_open(void); int plan_open(void) { return 1; } int json_parse; int session_open;' >> \
        own.c
p=
cc own.c -o own $(pkg-config --cflags tgc) "$root/lib/libtgc.a" $(pkg-config --libs --static tgc |
        sed 's/-ltgc//') 2> err ||
        p="does not link: $(tail -3 err)"
[ "$p" ] || LD_LIBRARY_PATH='' ./own story.plan > own.out 2>&1 || p="$(tail -1 own.out)"
[ "$p" ] || grep -qF "$(head -1 own.out)" out || p="another story: $(head -c 200 own.out)"
say the_static_library "$p"

# A sequence without wishes goes on until the context is full.
p=
sed 's/&sequence, &number/NULL, \&number/; s/const TgcSequence sequence.*//' several.c > wishless.c
cc wishless.c -o wishless $(pkg-config --cflags --libs tgc) 2> err || p="$(head -3 err)"
[ "$p" ] || ./wishless "$(ls several.plan gpt.plan 2> /dev/null | head -1)" a b > own.out 2>&1 ||
        p="$(tail -1 own.out)"
[ "$p" ] || [ "$(grep -c 'its last' own.out)" = 2 ] || p="$(tail -2 own.out)"
say a_sequence_without_wishes "$p"

# While a batch is open its Tgc does nothing else.
cat > in_use.c << 'C'
#include <stdio.h>
#include <string.h>
#include <tgc.h>
int main(int argc, char **argv)
{
        Tgc *t;
        TgcBatch *a, *b;
        TgcError e = { 0 };
        const int id = 1;
        (void)argc;
        if (tgc_open(&t, argv[1], NULL, &e) || tgc_batch_open(&a, t, &e))
                return puts(e.message), 1;
        if (tgc_batch_open(&b, t, &e) != 2 || b || tgc_prompt(t, &id, 1, &e) != 2 ||
            tgc_reset(t, &e) != 2 || !strstr(e.message, "until tgc_batch_close"))
                return puts("not refused"), 1;
        tgc_batch_close(a);
        if (tgc_prompt(t, &id, 1, &e) || tgc_generate(t, NULL, 2, NULL, NULL, &e))
                return puts(e.message), 1;
        tgc_close(t);
        return 0;
}
C
p=
cc $CFLAGS in_use.c -o in_use $(pkg-config --cflags --libs tgc) 2> err || p="$(head -3 err)"
[ "$p" ] || p=$(./in_use "$(ls several.plan gpt.plan 2> /dev/null | head -1)" 2>&1) ||
        p="exit code $?: $p"
say a_batch_has_the_plan_alone "$p"

# C++ takes the header.
p=
if command -v g++ > /dev/null; then
        printf '#include <tgc.h>\n' > x.cc
        echo 'int main() { TgcSampling s = tgc_sampling(); return s.temp < 0; }' >> x.cc
        g++ -Wall -Werror x.cc -o x $(pkg-config --cflags --libs tgc) 2> err && ./x ||
                p="$(head -3 err)"
fi
say the_header_in_cpp "$p"

cd "$top" || exit 1
p=$(make_it uninstall)
[ "$p" ] || p=$(find "$dir/root" -type f -o -type l | head -3)
say make_uninstall "$p"
exit $failed
