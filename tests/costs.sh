#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# costs.sh NORMAL ASAN TSAN: three files of lines `test seconds` (costed.sh), one per build; writes tests/costs.txt: what each test takes of
# a processor in each, `-` where it does not run. What did not run this time keeps its figure. ctest begins the dearest first by it
# (CMakeLists.txt), and who looks for minutes finds them there.
set -euo pipefail
file=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/costs.txt
column() { if [ -s "$file" ]; then awk -v k="$1" '!/^#/ && $(k + 1) != "-" { print $1, $(k + 1) }' "$file"; fi; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for k in 1 2 3; do
    column $k | cat - "${!k}" >"$dir/$k"
done
awk '
    { sum[k] += $2 - cost[$1, k]; cost[$1, k] = $2; if (!($1 in seen)) { seen[$1] = 1; name[n++] = $1 } }
    END {
        for (i = 0; i < n; i++) {
            line = name[i]
            for (k = 1; k <= 3; k++) line = line " " ((name[i], k) in cost ? cost[name[i], k] : "-")
            print line
        }
        printf "# all: %d %d %d\n", sum[1], sum[2], sum[3]
    }' k=1 "$dir/1" k=2 "$dir/2" k=3 "$dir/3" | LC_ALL=C sort >"$dir/all"
{
    echo '# Seconds of processor time: the normal build, AddressSanitizer, ThreadSanitizer (scripts/test.sh --costs).'
    cat "$dir/all"
} >"$file"
