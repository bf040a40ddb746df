#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rules for comm.table between hosts, from network namespaces on one machine: what the built-in table was made of.
#
#   bench/comm_hosts.sh [BUILD] [HOSTS] [RANKS_PER_HOST] [tutti bench comm options]
#
# A namespace's network is the kernel's: latencies of tens of microseconds, as fast as the cores copy. Real networks differ;
# run tutti bench comm --table on yours. Needs root.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-build} hosts=${2:-4} each=${3:-1}
shift $(($# < 3 ? $# : 3))
# shellcheck source=tests/comm/namespaces.sh
. "$root/tests/comm/namespaces.sh"
dir=$(mktemp -d)
trap 'hosts_close; rm -rf "$dir"' EXIT
hosts_open "$dir" "$hosts" || { echo "comm_hosts.sh: $hosts_why" >&2; exit 1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
library=openmpi program=$build/tutti
if "$program" --version | grep -q MPICH; then library=mpich; fi
hosts_run $library "$(command -v mpirun.$library || command -v mpirun)" "$each" 600 "$(readlink -f "$program")" bench comm "${@:---table}"
