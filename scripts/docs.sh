#!/bin/sh
# docs.sh TGC DOC: writes `tgc help lua --markdown` below the mark of docs/graph-language.md; or,
# with DOC -, the whole document to stdout.
set -e
doc=docs/graph-language.md
out=$(mktemp)
sed '/^<!-- reference:/q' "$doc" > "$out"
"$1" help lua --markdown >> "$out"
if [ "$2" = - ]; then cat "$out"; else cp "$out" "$doc"; fi
rm -f "$out"
