#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A parameter server of which a worker or a server is killed, or stops answering, in both modes: the run ends in seconds with the
# culprit named, not one that waits for it; no checkpoint is half written, and the run goes on from the last.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "$2/tests/comm/mpirun.sh"
# shellcheck source=tests/run/faults.sh
. "$2/tests/run/faults.sh"

# 3 workers, 2 servers
for mode in sync async; do
    for rank in 1 3; do
        name=$mode-$rank
        strike "stop-$name" 5 $rank STOP parallel.servers=2 parallel.server_mode=$mode
        [ "$status" = 1 ] || fail "stop-$name: status $status"
        named "stop-$name" "rank $rank is late: .*has waited 2\."
        strike "kill-$name" 5 $rank KILL parallel.servers=2 parallel.server_mode=$mode
        [ "$library" = mpich ] || named "kill-$name" "rank $rank is gone: its process ended" # as in mpi_faults.sh
    done
done

# What is left is enough to go on, with fewer ranks too.
for name in stop-async-1 kill-sync-3; do
    last=$(basename "$(readlink -f "$dir/$name/checkpoints/latest")")
    [[ $last = step-* ]] || last=$(cat "$dir/$name/checkpoints/latest")
    steps=$((10#${last#step-} + 3))
    "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" -n 3 parallel.servers=1 run.steps=$steps >"$dir/log" 2>&1 ||
        fail "$name does not go on: $(tail -3 "$dir/log")"
    grep -q "resumed from .*$last" "$dir/log" || fail "$name does not go on from $last: $(cat "$dir/log")"
    [ -z "$(find "$dir/$name/checkpoints" -name '.tmp*')" ] || fail "$name: left $(ls -A "$dir/$name/checkpoints")"
done
passed
