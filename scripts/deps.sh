#!/bin/sh
# deps.sh: install what the build needs with the system's package manager, saying what it does;
# nothing if all is there. Knows apt, dnf, pacman and apk; elsewhere it says what to install.
set -e

for manager in apt-get dnf pacman apk none; do
        if command -v $manager >/dev/null 2>&1; then break; fi
done

has() { command -v "$1" >/dev/null 2>&1; }

header() # LINE...: of C that must pass the preprocessor
{
        printf '%s\n' "$@" | ${CC:-cc} -E $lua -x c - >/dev/null 2>&1
}

# WHAT, its package in apt, dnf, pacman and apk, the test
need()
{
        case $manager in apt-get) p=$2 ;; dnf) p=$3 ;; pacman) p=$4 ;; apk) p=$5 ;; *) p= ;; esac
        what=$1
        shift 5
        if "$@"; then return; fi
        missing="$missing${missing:+, }$what"
        case " $packages " in *" $p "*) ;; *) packages="$packages $p" ;; esac
}

look()
{
        missing= packages=
        lua=$(sh "$(dirname "$0")/lua.sh" --cflags)
        need "a C compiler" gcc gcc gcc gcc has gcc
        need "a C++ compiler" g++ gcc-c++ gcc g++ has g++
        need make make make make make has make
        need pkg-config pkg-config pkgconf-pkg-config pkgconf pkgconf has pkg-config
        need "headers of the C library" libc6-dev glibc-devel glibc musl-dev header \
                '#include <stdio.h>'
        need cJSON libcjson-dev cjson-devel cjson cjson-dev header '#include <cjson/cJSON.h>'
        need "Lua 5.4" liblua5.4-dev lua-devel lua54 lua5.4-dev header '#include <lua.h>' \
                '#if LUA_VERSION_NUM != 504' '#error' '#endif'
        need "PCRE2 (8 bit)" libpcre2-dev pcre2-devel pcre2 pcre2-dev header \
                '#define PCRE2_CODE_UNIT_WIDTH 8' '#include <pcre2.h>'
        need utf8proc libutf8proc-dev utf8proc-devel libutf8proc utf8proc-dev header \
                '#include <utf8proc.h>'
        need xxHash libxxhash-dev xxhash-devel xxhash xxhash-dev header '#include <xxhash.h>'
}

look
if [ -z "$missing" ]; then exit 0; fi
case $manager in
        apt-get) install="apt-get install -y -qq --no-install-recommends" ;;
        dnf)     install="dnf install -y -q" ;;
        pacman)  install="pacman -S --needed --noconfirm" ;;
        apk)     install="apk add -q" ;;
        none)
                echo "tgc needs, with their headers: $missing." >&2
                echo "No apt, dnf, pacman or apk is here: please install these and run make" \
                        "again." >&2
                exit 1 ;;
esac
sudo=
if [ "$(id -u)" != 0 ]; then
        for sudo in sudo doas none; do
                if has $sudo; then break; fi
        done
        if [ $sudo = none ]; then
                echo "tgc needs $missing.  As root: $install$packages" >&2
                exit 1
        fi
fi
echo "tgc needs $missing"
echo "+ $sudo${sudo:+ }$install$packages"
if [ $manager = apt-get ]; then $sudo apt-get update -qq; fi
$sudo env DEBIAN_FRONTEND=noninteractive $install $packages >/dev/null
look
if [ "$missing" ]; then
        echo "still missing: $missing.  Please install it and run make again." >&2
        exit 1
fi
