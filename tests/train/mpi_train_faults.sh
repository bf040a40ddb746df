#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A process of a training run calls another operation than the others, brings another count or type, hangs, exits, is killed: the
# run ends, says what is wrong and who it was, with the flight recorder in the run's folder (test_train_faults.c).
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
# shellcheck source=tests/train/faults.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/faults.sh"

# fault WHAT STATUS PATTERN: "-": any status but 0, as the launcher likes
fault() {
    local timeout_s=1000 # longer than ranks() lets them wait: what is found only then is not found
    [ "$1" != hang ] || timeout_s=5
    ranks 3 "$programs/test_train_faults" "$1" "$dir/tiny.yaml" run.dir="$dir/$1" parallel.reduce=step batch.global=6 \
        checkpoint.every=2 comm.timeout_s=$timeout_s >"$dir/log" 2>&1
    status=$?
    [ $status != 0 ] && [ $status != 124 ] && { [ "$2" = - ] || [ $status = "$2" ]; } || fail "$1: status $status: $(tail -20 "$dir/log")"
    [ -z "$3" ] || named "$1" "$3"
    "$tutti" checkpoint verify "$dir/$1" >"$dir/out" 2>&1 || fail "$1: a broken checkpoint: $(cat "$dir/out")"
}

both="ranks of dp_shard[a-z ]* called different operations: rank 0: all_reduce #[0-9]+ 'head.weight' \(sum 8224 f32\).*"
beside fault operation 1 "$both; rank 1: broadcast #[0-9]+ 'head.weight'.*the operation differs"
beside fault count 1 "$both; rank 1: all_reduce #[0-9]+ 'head.weight' \(sum 8223 f32\).*the count differs"
beside fault dtype 1 "$both; rank 1: all_reduce #[0-9]+ 'head.weight' \(sum 8224 i32\).*the dtype differs"
hang() {
    fault hang 1 "rank 1 is late: all_reduce #[0-9]+ 'head.weight'"
    grep -A30 "^thread .* of rank 1: " "$dir/hang/stacks-rank1.txt" | grep -q "__wrap_comm_all_reduce" || fail "hang: not where it hangs: $(cat "$dir/hang"/stacks*)"
    grep -q "^rank 1$" "$dir/hang/stacks.txt" && grep -qE "^ranks 0, 2$|^rank 0$" "$dir/hang/stacks.txt" || fail "hang: no groups: $(cat "$dir/hang/stacks.txt")"
}
beside hang
# MPICH's launcher kills the others at once when one is killed, before anybody can look, and ends with status 0 when one just
# exits, unless told not to clean up.
[ "$library" = mpich ] && options=(-disable-auto-cleanup)
beside fault exit - "rank 1 is gone: its process ended: all_reduce #[0-9]+ 'head.weight'"
beside fault kill - "$([ "$library" = mpich ] || echo "rank 1 is gone: its process ended")"
all_done
passed
