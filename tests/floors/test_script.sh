#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What scripts rely on (tests/script.sh): a failure counts wherever it is found, a script that has none passes, one that is skipped
# says so, nothing is left behind, and whoever waits for what a process does hears of that and of its end.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# Whoever cannot source it has no folder, and would write to /: it ends there.
bare=$(grep -rnE '^ *(\.|source) "?.*/script\.sh"? *$' "$root/tests" --include='*.sh' || true)
[ -z "$bare" ] || fail "without '|| exit' behind it: $bare"
ends() { # STATUS BODY
    local want=$1 got
    mkdir -p "$dir/tmp"
    TMPDIR=$dir/tmp bash -c '. "$2/tests/script.sh"
'"$2" script "$tutti" "$root" "$library" >"$dir/out" 2>&1
    got=$?
    [ $got = "$want" ] || fail "status $got, wanted $want, after: $2"
    [ -z "$(ls -A "$dir/tmp")" ] || fail "$(ls -A "$dir/tmp") left behind by: $2"
    [ "$want" != 1 ] || grep -q "it broke" "$dir/out" || fail "nothing is said by: $2: $(cat "$dir/out")"
}
ends 0 'passed'
ends 0 'at_end() { rmdir "$dir/made"; }; mkdir "$dir/made"; passed'
ends 77 'echo "skipped: nothing here"; exit 77'
ends 1 'fail "it broke"; passed'
ends 1 'x=$(fail "it broke"); passed'
ends 1 '(fail "it broke"); passed'
ends 1 'echo 1 | while read -r _; do fail "it broke"; done; passed'
ends 1 'fail "it broke" & wait; passed'
ends 1 'cd /; x=$(cd /tmp && fail "it broke"); exit 0'
ends 1 'set -e; false || fail "it broke"; true'
ends 3 'exit 3'
ends 0 'sleep 100 & until_so $! true || exit 9; kill $!; passed'
ends 0 '(until [ -e "$dir/asked" ]; do sleep 0.01; done; touch "$dir/there") & touch "$dir/asked"; until_so $! test -e "$dir/there" || exit 9; wait; passed'
ends 1 'false & until_so $! test -e "$dir/there" || fail "it broke"; passed'
passed
