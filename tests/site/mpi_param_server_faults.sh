#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A parameter server of which a worker or a server is killed, or stops answering, in both modes: the run ends with the
# culprit named, not one that waits for it; no checkpoint is half written, and the run goes on from the last.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
# shellcheck source=tests/train/faults.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/faults.sh"

# What is left is enough to go on, with fewer ranks too: from the newest folder, which a process killed right after it had
# published one does not yet call latest.
goes_on() { # NAME
    local last steps
    last=$(find "$dir/$1/checkpoints" -name 'step-????????' -printf '%f\n' | sort | tail -1)
    [ -n "$last" ] || fail "$1 saved nothing"
    steps=$((10#${last#step-} + 3))
    "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$1" -n 3 parallel.servers=1 run.steps=$steps >"$dir/log" 2>&1 ||
        fail "$1 does not go on: $(tail -3 "$dir/log")"
    grep -q "resumed from .*$last" "$dir/log" || fail "$1 does not go on from $last: $(cat "$dir/log")"
    [ -z "$(find "$dir/$1/checkpoints" -name '.tmp*')" ] || fail "$1: left $(ls -A "$dir/$1/checkpoints")"
}
# 3 workers, 2 servers
stopped() { # MODE RANK
    local name=stop-$1-$2
    strike "$name" 5 "$2" STOP parallel.servers=2 parallel.server_mode="$1"
    [ "$status" = 1 ] || fail "$name: status $status"
    named "$name" "rank $2 is late: .*has waited ([5-9]|[0-9]{2,})\."
    [ "$name" != stop-async-1 ] || goes_on "$name"
}
killed() { # MODE RANK
    local name=kill-$1-$2
    strike "$name" 5 "$2" KILL parallel.servers=2 parallel.server_mode="$1"
    [ "$library" = mpich ] || named "$name" "rank $2 is gone: its process ended" # as in mpi_faults.sh
    [ "$name" != kill-sync-3 ] || goes_on "$name"
}
for mode in sync async; do
    for rank in 1 3; do
        beside stopped $mode $rank
        beside killed $mode $rank
    done
done
all_done
passed
