#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A rank that goes wrong ends the job, with the culprit named in the first line, a status that is not 0, and the flight recorder written:
# on one host, and between (pretended) hosts, where descriptors are compared on request. What is compared is found at once, where the others
# would wait for longer than this test may take, and a rank that hangs after the time that they wait (ranks_faults.c).
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"

# fault WHAT RANKS-PER-HOST STATUS PATTERN: rank 2 of 3 does WHAT. The launcher's own banners may come before the line
# when it is the launcher that notices; "-": any status but 0, as the launcher likes.
fault() {
    local what=$1 hosts=$2 want=$3 pattern=$4
    rm -rf "$dir/run"
    ranks 3 "$programs/ranks_faults" "$what" "$dir/run" "$hosts" >"$dir/log" 2>&1
    local status=$? case="$what, $hosts ranks a host"
    [ $status != 0 ] && [ $status != 124 ] && { [ "$want" = - ] || [ $status = "$want" ]; } || fail "$case: status $status"
    [ -n "$pattern" ] || return
    grep -qE -- "$pattern" "$dir/log" || fail "$case: no line like '$pattern' in: $(head -20 "$dir/log")"
    [ "$(grep -c '^error: ' "$dir/log")" -le $((hosts ? 3 / hosts : 1)) ] || fail "$case: more than one cause: $(cat "$dir/log")"
    grep -qs "rank [0-9].*operations" "$dir"/run/flight-rank*.txt || fail "$case: no flight recorder"
}

beside fault operation 0 1 "^error: .*rank 0: all_reduce #4 'gradient'.*rank 2: broadcast #4 'in the wrong branch'.*the operation differs"
beside fault count 0 1 "^error: .*rank 0: all_reduce #4.*sum 8 f32.*rank 2: all_reduce #4.*sum 7 f32.*the count differs"
beside fault dtype 0 1 "^error: .*rank 0: all_reduce #4.*sum 8 f32.*rank 2: all_reduce #4.*sum 8 i32.*the dtype differs"
beside fault fail 0 1 "^error: rank 2: /data/a.bin: no space left"
beside fault "fail slowly" 0 1 "^error: rank 2: /data/a.bin: no space left"
beside fault message 0 1 "^error: rank 2 sends .* to rank 0, which receives 16 bytes: exchange #1 'activation' \(16 bytes from rank 2\)"
beside fault hang 0 1 "^error: rank 2 is late: all_reduce #4 'gradient'.*rank 2 last finished all_reduce #3"
beside fault behind 0 1 "^error: rank 2 is late: exchange #1 'activation' \(32 bytes from rank 1\).*through ranks that wait as well.*rank 2 last finished"
beside fault native 0 1 "^error: rank 2 is late: all_reduce #4"
for hosts in 0 1; do # a group is made: one of its two ranks never comes, or comes with other ranks
    beside fault absent $hosts 1 "^error: group pair \(ranks 0, 2\): after 5.00 s \(comm.timeout_s\) rank 2 did not come to make it"
    beside fault list $hosts 1 "^error: rank 2 comes to group pair with other ranks than rank 0, which has 0, 2 \(2 ranks; there: group pair of 3\)"
done
beside fault operation 1 1 "^error: .*rank 2: broadcast #4 'in the wrong branch'.*the operation differs"
beside fault count 1 1 "^error: .*rank 2: all_reduce #4.*sum 7 f32.*the count differs"
beside fault dtype 1 1 "^error: .*rank 2: all_reduce #4.*sum 8 i32.*the dtype differs"
beside fault "operation unchecked" 1 1 "^error: .*rank 2: broadcast #4 'in the wrong branch'.*the operation differs"
beside fault fail 1 1 "^error: rank 2: /data/a.bin: no space left"
beside fault hang 1 1 "^error: rank 2 is late.*rank 2 is on another host and does not answer"
beside fault behind 1 1 "^error: rank 2 is late.*through ranks that wait as well.*rank 2 is on another host and does not answer"
beside fault native 1 1 "^error: rank 2 is late.*rank 2 is on another host and does not answer"
beside fault kill 1 - ""
# MPICH's launcher kills everybody at once when one is killed, before anybody can look, and ends with status 0 when one
# just exits, unless told not to clean up.
if [ "$library" = mpich ]; then
    options=(-disable-auto-cleanup)
    beside fault kill 0 - ""
else
    beside fault kill 0 - "^error: rank 2 is gone"
fi
beside fault exit 0 - "^error: rank 2 is gone"
all_done
passed
