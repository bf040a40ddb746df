#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A storm of faults over a run that goes on by itself (run.elastic): processes are killed (kill -9) at random moments, and the last
# checkpoint is compared with that of a run that nobody disturbed. Needs Open MPI 5 with fault tolerance.
#
#   bench/elastic.sh TUTTI MPIRUN RUNS [KILLS [RANKS [SPARES [RANKS_PER_HOST]]]]
#
# Prints a line per run: kills (of ranks at work or spares), how it ended, whether the state is equal, from starts.jsonl the seconds
# to go on after each, sorted, and the step that each epoch began at; then the sum.
set -u
tutti=$1 mpirun=$2 runs=$3 kills=${4:-4} ranks=${5:-8} spares=${6:-4} per_host=${7:-2}
dir=$(mktemp -d "${TMPDIR:-/tmp}/tutti-elastic-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
seq 1 4000 | sed 's/$/ the quick brown fox jumps over the lazy dog/' >"$dir/text.txt"
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: $dir/text.txt, cache_dir: $dir/cache}
batch: {global: 16, micro: 1}
run: {steps: ${STEPS:-300}, threads: 1, elastic: true, spares: $spares, tensorboard: false, log_every: 1000}
checkpoint: {every: ${EVERY:-10}, keep: 2}
comm: {timeout_s: 120, ranks_per_host: $per_host}
END
start() { "$mpirun" --with-ft ulfm -np $((ranks + spares)) "$tutti" train "$dir/c.yaml" run.dir="$dir/$1" >"$dir/$1.log" 2>&1 & }
last=$(printf 'checkpoints/step-%08d' "${STEPS:-300}")
same() { for f in "$dir/plain/$last"/boxes-*; do cmp -s "$f" "$dir/run/$last/$(basename "$f")" || return 1; done; }
start plain
wait $! || { tail -20 "$dir/plain.log"; exit 1; }

all=0 equal=0 ended=0
for ((i = 1; i <= runs; i++)); do
    rm -rf "$dir/run"
    start run
    launcher=$! hit=0
    until grep -q '^saved step' "$dir/run.log" || ! kill -0 $launcher 2>/dev/null; do sleep 0.2; done
    while [ $hit -lt "$kills" ] && kill -0 $launcher 2>/dev/null; do
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        mapfile -t pids < <(pgrep -P $launcher)
        [ ${#pids[@]} -gt 0 ] || break
        kill -9 "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null && hit=$((hit + 1))
    done
    wait $launcher
    status=$?
    state=different
    same && state=equal && equal=$((equal + 1))
    [ $status = 0 ] && ended=$((ended + 1))
    all=$((all + hit))
    times=$(grep -o '"going_on_s":[0-9.e+-]*' "$dir/run/starts.jsonl" | cut -d: -f2 | sort -g | tr '\n' ' ')
    steps=$(grep -o '"step":[0-9]*,"epoch":[0-9]*' "$dir/run/starts.jsonl" | tr '\n' ' ')
    echo "run $i: $hit kills, status $status, state $state, seconds to go on: $times; epochs at: $steps"
    [ $state = equal ] || cp "$dir/run.log" "${TMPDIR:-/tmp}/tutti-elastic-$i.log"
done
echo "$all kills in $runs runs of $ranks ranks and $spares spares, $per_host a host: $ended runs ended well, $equal with the state of an undisturbed run"
