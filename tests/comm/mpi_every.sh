#!/bin/bash
# Every operation by every algorithm between processes: on one host, and pretending to be on several.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "$2/tests/comm/mpirun.sh"
for n in 2 4; do
    ranks $n "$programs/test_algorithms" || fail "$n ranks over $library: status $?"
done
[ $failures = 0 ]
