#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce between ranks of one host, tutti beside both MPI libraries, in turn, several rounds; medians.
#
#   bench/comm.sh [BUILD] [ROUNDS] [SECONDS]
#
# Columns, microseconds: one_pass (a loop by hand) and tutti's threads; then, for each library found, the library's own
# all-reduce and tutti's direct algorithm over its shared-memory windows. Ratios: one_pass/threads (1 is as fast as by
# hand), library/threads, library/windows.
set -euo pipefail
build=${1:-build} rounds=${2:-5} seconds=${3:-0.2}
sizes=${SIZES:-4K,16K,64K,256K,1M,4M,16M,64M,256M}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# measure WHO RANKS COMMAND...: lines "who ranks algorithm bytes us"
measure() {
    local who=$1 ranks=$2
    shift 2
    "$@" --op all_reduce --bytes "$sizes" --seconds "$seconds" --algorithm direct,native </dev/null |
        sed 's/\*/ /' | awk -v who="$who" -v ranks="$ranks" '$1 == "all_reduce" {print who, ranks, $2, $3, $4}' >>"$out"
}

for ((round = 1; round <= rounds; round++)); do
    for ranks in 2 4; do
        measure threads $ranks "$build/tutti" bench comm --ranks $ranks
        for library in openmpi mpich; do
            program=$build/tests/mpi/$library/tutti # the library that the build did not choose
            if [ ! -x "$program" ]; then program=$build/tutti; fi
            if command -v "mpirun.$library" >/dev/null; then
                measure $library $ranks "mpirun.$library" -np $ranks "$program" bench comm
            fi
        done
    done
    echo "round $round of $rounds" >&2
done

awk '
function median(key,    n, i, j, t, v) {
    n = count[key]
    for (i = 1; i <= n; i++) v[i] = value[key, i]
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n ? v[int((n + 1) / 2)] : 0
}
function show(x) { return x ? sprintf("%9.1f", x) : "        -" }
function ratio(a, b) { return a && b ? sprintf("%5.2f", a / b) : "    -" }
{ key = $1 " " $2 " " $3 " " $4; value[key, ++count[key]] = $5; seen[$2 " " $4] = 1 }
END {
    print "ranks      bytes  one_pass   threads  ratio   openmpi   windows  lib/thr lib/win     mpich   windows  lib/thr lib/win"
    for (ranks = 2; ranks <= 4; ranks += 2) for (bytes = 4096; bytes <= 2 ^ 28; bytes *= 4) {
        at = ranks " %s " bytes
        one = median("threads " sprintf(at, "one_pass")); here = median("threads " sprintf(at, "direct"))
        line = sprintf("%5d %10d %s %s  %s", ranks, bytes, show(one), show(here), ratio(one, here))
        for (l = 1; l <= 2; l++) {
            lib = l == 1 ? "openmpi " : "mpich "
            own = median(lib sprintf(at, "native")); win = median(lib sprintf(at, "direct"))
            line = line sprintf(" %s %s    %s   %s", show(own), show(win), ratio(own, here), ratio(own, win))
        }
        print line
    }
}' "$out"
