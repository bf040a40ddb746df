#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# The same on processes of a launcher (scripts/storm.sh): one of them is killed, stopped, robbed; the job is started again.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
mkdir "$dir/memory"
TUTTI=$tutti RUN=$dir/storm MEMORY=$dir/memory LAUNCHER="$mpirun -np 8" \
    timeout --kill-after=5 200 bash "$root/scripts/storm.sh" 2 2 >"$dir/out" 2>&1 || fail "$(cat "$dir/out"): $(tail -5 "$dir/storm/log")"
grep -q "^storm: 2 faults.*equal to the undisturbed run's to the bit" "$dir/out" || fail "no summary: $(cat "$dir/out")"
passed
