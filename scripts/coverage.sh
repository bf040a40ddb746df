#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many lines of src/ the tests of every day run: builds with gcc's counters, runs the normal build's tests as scripts/test.sh does,
# and counts with gcov. Kernels for instruction sets that this processor lacks are left out, and named.
#
#   scripts/coverage.sh [CTEST OPTION ...]     default: those of scripts/test.sh of the normal build, what waits among them
#   KEEP=1 scripts/coverage.sh ...             adds to the counts that are there
#
# A line counts as run when any test ran it; what a process did that was killed, or left by _exit, is not counted.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-coverage
jobs=${TUTTI_JOBS:-$((($(nproc) * 3 + 1) / 2))} # as scripts/test.sh
[ $# -gt 0 ] || set -- -LE '^(long|whole|fuzz|package|grid|late|replay)$'
bash "$root/scripts/build.sh" "$build" -DTUTTI_ISA=native -DCMAKE_BUILD_TYPE=Coverage \
    -DCMAKE_C_FLAGS_COVERAGE="-O1 --coverage -fprofile-update=prefer-atomic -Wno-maybe-uninitialized"
[ -n "${KEEP:-}" ] || find "$build" -name '*.gcda' -delete
(cd "$build" && ctest -j "$jobs" "$@") >"$build/coverage.log" 2>&1 || echo "coverage: some tests failed: $build/coverage.log" >&2
tail -3 "$build/coverage.log" >&2

# One line for each source: lines run, lines, file. A source whose object was never loaded has no counts: none were run.
counts() {
    find "$build/CMakeFiles" -name '*.gcno' | while read -r notes; do
        (cd "$build" && gcov -n "${notes%.gcno}.gcda" 2>/dev/null) | awk -v root="$root/" '
            /^File / { file = $2; gsub(/\047/, "", file); if (index(file, root) == 1) file = substr(file, length(root) + 1); sub(/^\.\.\//, "", file) }
            /^Lines executed:/ && file ~ /^src\/.*\.c$/ { split($0, a, /[:% ]+/); printf "%.0f %d %s\n", a[3] * a[5] / 100, a[5], file; file = "" }'
    done | sort -k3
}
counts >"$build/coverage.txt"
awk '
    { n = split($3, a, "/"); run[a[2]] += $1; all[a[2]] += $2; r += $1; t += $2; part = $2 ? $1 / $2 : 1; if ($2 - $1 > 0) print $2 - $1, $3 >lines }
    END {
        for (room in all) printf "%-12s %6d of %6d lines  %5.1f %%\n", room, run[room], all[room], 100 * run[room] / all[room] | "sort"
        close("sort")
        printf "%-12s %6d of %6d lines  %5.1f %%\n", "all", r, t, 100 * r / t
    }' lines="$build/coverage.missing" "$build/coverage.txt"
echo "most lines that no test runs:"
sort -rn "$build/coverage.missing" | head -15
