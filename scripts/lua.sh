#!/bin/sh
# lua.sh --cflags|--libs: Lua 5.4's, under the names that systems give it.
for name in lua5.4 lua-5.4 lua54 lua; do
        if pkg-config --exists "$name >= 5.4" "$name < 5.5" 2>/dev/null; then
                pkg-config "$1" "$name"
                exit
        fi
done
case $1 in --libs) echo -llua5.4 ;; *) echo -I/usr/include/lua5.4 ;; esac
