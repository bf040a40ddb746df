#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A /dev/shm that is too small (containers get 64 MiB, sometimes less) is an error that says what was wanted, what is there, and how to
# make it larger: not SIGBUS, not MPI_ERR_INTERN. Needs a mount namespace of one's own; skipped where the system gives none.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
if ! unshare -rm mount -t tmpfs -o size=64k tmpfs /dev/shm 2>/dev/null; then
    echo "skipped: no mount namespaces here"
    exit 77
fi
small() { # SIZE
    export -f ranks
    # The launcher's own messages go through its session folder; Open MPI's through memory unless told otherwise.
    OMPI_MCA_btl=self,tcp UCX_TLS=tcp,self mpirun=$mpirun programs=$programs unshare -rm bash -c '
        mount -t tmpfs -o size='"$1"' tmpfs /dev/shm
        options=()
        ranks 2 "$programs/ranks_faults" fail '"$dir"'/run 0' >"$dir/log" 2>&1
}
small 64k
status=$?
[ $status != 0 ] || fail "it ran: $(cat "$dir/log")"
grep -q 'shared memory for the ranks of a host: wanted [0-9]* KiB, /dev/shm has [0-9]* KiB free; make it larger' "$dir/log" ||
    fail "no word of /dev/shm: $(tail -5 "$dir/log")"
small 64m
grep -q 'no space left' "$dir/log" || fail "with 64 MiB: $(tail -5 "$dir/log")" # what rank 1 fails with on purpose
passed
