#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A small storm of faults on threads: scripts/storm.sh, which says how each fault went and compares the end.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
mkdir "$dir/memory"
TUTTI=$tutti RUN=$dir/storm MEMORY=$dir/memory bash "$root/scripts/storm.sh" 3 1 >"$dir/out" 2>&1 || fail "$(cat "$dir/out"): $(tail -5 "$dir/storm/log")"
grep -q "^storm: 3 faults.*equal to the undisturbed run's to the bit" "$dir/out" || fail "no summary: $(cat "$dir/out")"
passed
