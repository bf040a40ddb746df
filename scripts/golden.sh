#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whether a change keeps every bit with the kernels that this machine trains with: builds two commits and trains the rows of
# tests/golden/layouts.h with both, 20 steps each. The suite's golden test compares the plain loops' bits on any machine; this compares
# the fast kernels', which differ from machine to machine, on one.
#
# Then the same of what ranks say to each other (tests/golden/test_messages.c), where OLD has that test.
#
#   scripts/golden.sh OLD [NEW]        commits, branches or tags; NEW: HEAD. `.` is the working tree as it is
#
# Ends with 0 when no number and no message differs, else names the first of each row. OLD and NEW must have tests/golden/layouts.h; a row that only
# NEW has is named and not compared. The builds stay in ${TMPDIR:-/tmp}/tutti-golden, so that asking again is quick.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n 3,13p "${BASH_SOURCE[0]}" | cut -c3- >&2; exit 2; }
work=${TMPDIR:-/tmp}/tutti-golden
mkdir -p "$work"

# build NAME COMMIT: leaves the program in $work/NAME.build
build() {
    local source=$root
    if [ "$2" != . ]; then
        source=$work/$1.source
        rm -rf "$source"
        mkdir "$source"
        git -C "$root" archive "$2" | tar -x -C "$source"
    fi
    [ -e "$source/tests/golden/layouts.h" ] || { echo "golden: $2 has no tests/golden/layouts.h" >&2; exit 2; }
    echo "golden: building $1 ($2)" >&2
    local messages=
    [ ! -e "$source/tests/golden/test_messages.c" ] || messages=golden_test_messages
    # shellcheck disable=SC2086 # none, or one
    { cmake -S "$source" -B "$work/$1.build" && cmake --build "$work/$1.build" --parallel "${TUTTI_JOBS:-$(nproc)}" --target golden_test_losses $messages; } \
        >"$work/$1.log" 2>&1 || { tail -30 "$work/$1.log" >&2; echo "golden: $2 does not build" >&2; exit 1; }
}
old=$1 new=${2:-HEAD}
[ "$old" = . ] || old=$(git -C "$root" rev-parse --short "$old^{commit}")
[ "$new" = . ] || new=$(git -C "$root" rev-parse --short "$new^{commit}")
build old "$old"
build new "$new"
"$work/old.build/tests/golden_test_losses" print auto >"$work/old.txt" 2>"$work/old.log" || { tail "$work/old.log" >&2; exit 1; }
rc=0
"$work/new.build/tests/golden_test_losses" against auto "$work/old.txt" 2>"$work/new.log" || rc=$?
grep -a 'recorded\|only the new\|\[  ERROR' "$work/new.log" >&2 || true
# By its source: a program may be left from a commit that was OLD before.
if [ "$old" = . ] || [ -e "$work/old.source/tests/golden/test_messages.c" ]; then
    "$work/old.build/tests/golden_test_messages" print >"$work/old.said" 2>"$work/old.log" || { tail "$work/old.log" >&2; exit 1; }
    "$work/new.build/tests/golden_test_messages" against "$work/old.said" 2>"$work/new.log" || rc=$?
    grep -a 'recorded\|only the new\|\[  ERROR' "$work/new.log" >&2 || true
else
    echo "golden: $old has no tests/golden/test_messages.c: messages are not compared" >&2
fi
exit "$rc"
