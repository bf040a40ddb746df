#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every operation by every algorithm, and messages that cross, between processes: on one host, and pretending to be on several.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
while read -r n hosts; do
    ranks "$n" "$programs/test_algorithms" "$hosts" || fail "$n ranks, $hosts a host, over $library: status $?"
    ranks "$n" "$programs/test_crossing" "$hosts" || fail "crossing, $n ranks, $hosts a host, over $library: status $?"
done <<'CASES'
2 0
4 0
2 1
4 2
3 2
CASES
passed
