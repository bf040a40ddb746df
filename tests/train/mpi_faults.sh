#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A training run of which one process stops answering, or is killed: it ends, names the rank, is not successful, and
# leaves the flight recorder in the run's folder.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
# shellcheck source=tests/train/faults.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/faults.sh"

stopped() {
    strike stopped 3 1 STOP
    [ "$status" = 1 ] || fail "stopped: status $status"
    named stopped "rank 1 is late: .*has waited ([5-9]|[0-9]{2,})\."
    # What a person needs: who waits where, and that the process of rank 1 is stopped; its stack, where the system lets others look.
    local stacks=$dir/stopped/stacks.txt
    head -1 "$stacks" | grep -qE "^rank [02] has waited ([5-9]|[0-9]{2,})\.[0-9]* s for " || fail "stopped: no cause on top of the stacks: $(cat "$stacks")"
    grep -q "^3 ranks in" "$stacks" || fail "stopped: not all ranks have stacks: $(cat "$stacks")"
    grep -q "^  rank 1: it did not answer, .*its process is stopped; .*last finished" "$stacks" || fail "stopped: rank 1: $(cat "$stacks")"
    for rank in 0 2; do
        grep -qE "^rank $rank: step [0-9]+, .*is in [a-z_]+ #" "$dir/stopped/stacks-rank$rank.txt" ||
            fail "stopped: rank $rank: $(head -5 "$dir/stopped/stacks-rank$rank.txt")"
        # Whatever the ranks exchange at that moment: gradients, or what they agree on before a save.
        grep -qE "^    comm_[a-z_]+ \(" "$dir/stopped/stacks-rank$rank.txt" ||
            fail "stopped: rank $rank has no stack: $(cat "$dir/stopped/stacks-rank$rank.txt")"
    done
    grep -q "cannot be had" "$dir/stopped/stacks-rank1.txt" || grep -q "^    trainer_rank" "$dir/stopped/stacks-rank1.txt" ||
        fail "stopped: rank 1 has no stack: $(cat "$dir/stopped/stacks-rank1.txt")"
}
killed() {
    strike killed 3 1 KILL
    # MPICH's launcher kills the others before they can look, and says so itself.
    [ "$library" = mpich ] || named killed "rank 1 is gone: its process ended"
}
beside stopped
beside killed
all_done
passed
