#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Operations in memory that processes of one host see in each other: every one of them, against closed forms, and by which way it
# went; a rank that is killed at work there ends the job, which would wait for it longer than this test may take.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
for n in 2 3 4; do
    ranks "$n" "$programs/ranks_blocks" all || fail "$n ranks over $library: status $?"
done
if [ "$library" = mpich ]; then options=(-disable-auto-cleanup); fi # else the launcher kills the others first
log=$(ranks 3 "$programs/ranks_blocks" kill 2>&1) && fail "a rank was killed and the job went well"
[ $? != 124 ] || fail "a rank was killed, and the others wait for it"
if [ "$library" = openmpi ]; then grep -q "rank 2 is gone" <<<"$log" || fail "a rank was killed: no culprit in: $log"; fi
passed
