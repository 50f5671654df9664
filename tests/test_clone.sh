#!/bin/bash
# test_clone.sh: what a clone carries for its tests: small, and made by scripts that are here.
cd "$(dirname "$0")/.." || exit 1
if ! git rev-parse --git-dir > /dev/null 2>&1; then
        echo "skip clone: this is no checkout"
        exit 0
fi
most=$((10 << 20))
size=$(git ls-files -z tests/data | xargs -0 stat -c %s | awk '{ n += $1 } END { print n + 0 }')
if [ "$size" -gt 0 ] && [ "$size" -le $most ]; then
        echo "ok test_data_is_small: $size bytes"
else
        echo "not ok test_data_is_small: $size bytes in tests/data, and $most are allowed"
        git ls-files -z tests/data | xargs -0 stat -c '%s %n' | sort -rn | head -5
fi
large=$(git ls-files -z | xargs -0 stat -c '%s %n' | awk '$1 > 2097152')
if [ -z "$large" ]; then
        echo "ok no_file_beyond_two_megabytes"
else
        echo "not ok no_file_beyond_two_megabytes: $large"
fi
