#!/bin/sh
# deps.sh: install what the build needs on Debian, saying what it does; nothing if all is there.
set -e
missing=
need() { # PACKAGE TEST...
        pkg=$1; shift
        "$@" >/dev/null 2>&1 || missing="$missing $pkg"
}
header() { echo "#include <$1>" | ${CC:-cc} -E -I/usr/include/lua5.4 -x c - ; }
need gcc command -v gcc
need g++ command -v g++
need make command -v make
need pkg-config command -v pkg-config
need libc6-dev header stdio.h
need libcjson-dev header cjson/cJSON.h
need liblua5.4-dev header lua.h
need libpcre2-dev sh -c 'echo "#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>" | ${CC:-cc} -E -x c -'
need libutf8proc-dev header utf8proc.h
need libxxhash-dev header xxhash.h
if [ -z "$missing" ]; then
        exit 0
fi
echo "tgc needs these Debian packages:$missing"
if ! command -v apt-get >/dev/null 2>&1; then
        echo "This is not Debian: please install their equivalents and run make again." >&2
        exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "+ $sudo apt-get install -y$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
