#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A room's tests are one program (tests/CMakeLists.txt). A function with a name of the C library's would stand before that library's in
# all of them, silently: none has one, but those that say nothing of the disk's answers, only that what is written need not reach it
# (tests/no_sync.h). What it finds in a test that says `suite: alone` shows that it can.
set -euo pipefail
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
built=$(dirname "$tutti")/tests
library=$(ldd "$tutti" | awk '/libc\.so/ { print $3 }')
names() { nm --defined-only "$@" | awk '{ print $3 }' | sed 's/@.*//' | LC_ALL=C sort -u; }
names -D "$library" >"$dir/library"
[ "$(wc -l <"$dir/library")" -gt 1000 ] || fail "$library has few names"

stands_before() { # PROGRAM: what it has of the library's names; a variable of the library's that a program names is copied into it
    names --extern-only "$1" | LC_ALL=C comm -12 - "$dir/library" | grep -vxE 'stdin|stdout|stderr|environ|optarg|optind|fsync|sync_file_range' | tr '\n' ' '
}
n=0
for program in "$built"/*_tests; do
    n=$((n + 1))
    found=$(stands_before "$program" || true)
    [ -z "$found" ] || fail "$program: $found: the test that has it wants a line 'suite: alone'"
done
[ $n -gt 20 ] || fail "only $n programs"
[ -n "$(stands_before "$built/checkpoint_test_crash")" ] || fail "checkpoint/test_crash has none"
passed
