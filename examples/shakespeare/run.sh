#!/bin/sh
# run.sh: compile the folder, let it speak.
set -e
here=$(cd "$(dirname "$0")" && pwd)
tgc=${TGC:-$here/../../build/tgc}
out=${OUT:-$(mktemp -d)}
"$tgc" compile "$here" -o "$out/shakespeare.plan"
"$tgc" run "$out/shakespeare.plan" -p "ROMEO:" -n "${N:-240}" -s 1
