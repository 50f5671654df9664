#!/bin/sh
# blocks.sh DOC DIR: the fenced blocks of DOC that name a file, ```lua relu3.lua, as files of DIR.
# Those that are ```sh run, in their order, as DIR/run.sh.
mkdir -p "$2"
awk -v dir="$2" '
        /^```/ && out { close(out); out = ""; next }
        /^```[a-z]+ [A-Za-z0-9_.\/]+/ {
                out = dir "/" ($2 == "run" ? "run.sh" : $2)
                if ($2 ~ /\//) {
                        folder = out
                        sub("/[^/]*$", "", folder)
                        system("mkdir -p " folder)
                }
                if ($2 != "run") printf "" > out
                next
        }
        /^```[a-z]+$/ { out = "/dev/null"; next }
        out { if (out ~ /run.sh$/) print >> out; else print > out }
' "$1"
