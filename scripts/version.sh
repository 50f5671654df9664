#!/bin/sh
# version.sh COMMIT: C source that says what tgc is built from and with.
cat <<END
const char build_commit[] = "$1";
#define WORD(x) #x
#define TEXT(x) WORD(x)
#ifdef __clang__
const char build_compiler[] = "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "."
        TEXT(__clang_patchlevel__);
#else
const char build_compiler[] = "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__) "."
        TEXT(__GNUC_PATCHLEVEL__);
#endif
END
