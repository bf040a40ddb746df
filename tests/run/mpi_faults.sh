#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training run of which one process stops answering, or is killed: it ends in seconds, names the rank, is not successful, and
# leaves the flight recorder in the run's folder.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "$2/tests/comm/mpirun.sh"
# shellcheck source=tests/run/faults.sh
. "$2/tests/run/faults.sh"

strike stopped 3 1 STOP
[ "$status" = 1 ] || fail "stopped: status $status"
named stopped "rank 1 is late: .*has waited 2\."
strike killed 3 1 KILL
# MPICH's launcher kills the others before they can look, and says so itself.
[ "$library" = mpich ] || named killed "rank 1 is gone: its process ended"
passed
