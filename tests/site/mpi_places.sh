#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Cores as a launcher may hand them out: bound apart, to the same, or across each other. Ranks say which it is, take as many threads as
# they have cores for themselves, and warn of what makes them slow. Also: srun that did not connect its tasks.
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
cores() { taskset -cp $$ | sed 's/.*: //'; }
first=$(cores | sed 's/[,-].*//') last=$(cores | sed 's/.*[,-]//')
train() { # N BOUND_0 BOUND_1 KEYS...: ranks on these cores
    local n=$1 a=$2 b=$3
    shift 3
    rm -rf "$dir/run"
    # shellcheck disable=SC2016
    ranks "$n" bash -c 'a=$1 b=$2; shift 2; if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ]; then c=$a; else c=$b; fi; exec taskset -c "$c" "$@"' . "$a" "$b" \
        "$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=16 model.heads=2 model.kv_heads=2 model.ffn=32 model.seq_len=16 \
        batch.global=4 batch.micro=1 "data.train=$root/CHANGELOG.md" "data.valid=[]" run.steps=1 run.tensorboard=false "run.dir=$dir/run" "$@" >"$dir/log" 2>&1 ||
        fail "$n ranks on $a and $b: status $?: $(cat "$dir/log")"
}
has() { grep -qE "$1" "$dir/log" || fail "no line '$1' in: $(cat "$dir/log")"; }
hasnt() { ! grep -qE "$1" "$dir/log" || fail "'$1' without a reason: $(cat "$dir/log")"; }

train 2 "$first" "$first"
has '^ranks: 2$'
has '^hosts: 1, .* \(ranks 0-1\)$'
has "^binding: shared, ranks 0-1: $first$"
has '^threads: 1 per rank$'
has '^warning: .*: 2 ranks with 2 threads on 1 core: they take turns; more cores for each rank'
case $library in
openmpi) has '^transport: mpi, Open MPI v[0-9.]+[a-z0-9]*, shared memory within a host' ;;
mpich) has '^transport: mpi, MPICH Version: [0-9.]+.*, shared memory within a host' ;;
esac
if [ "$first" != "$last" ]; then
    train 2 "$first" "$last"
    has "^binding: own, rank 0: $first, rank 1: $last$"
    hasnt '^warning: [^/ ]+: '
    train 2 "$first" "$last" run.threads=2
    has '^warning: .*: 2 ranks with 4 threads on 2 cores: they take turns; run.threads=1'
    train 2 "$first,$last" "$last"
    has "^binding: overlap, rank 0: $first[-,]$last, rank 1: $last$"
    has "^warning: .*: ranks 0 and 1 may both use core $last, and each has others"
    # Bound by tutti: ranks that may use the same cores get a part of them each; across each other is refused.
    train 2 "$first,$last" "$first,$last" run.bind=core
    has "^binding: shared, ranks 0-1: $first[-,]$last$"
    has "^bound: core, rank 0: [0-9]+ \\((memory node|no memory).*, rank 1: [0-9]+ \\("
    grep -q '"bound":{"bind":"core"' "$dir/run/starts.jsonl" || fail "starts.jsonl: $(cat "$dir/run/starts.jsonl")"
    train 2 "$first" "$last" run.bind=rank
    has "^bound: rank, rank 0: $first \\(.*, rank 1: $last \\("
    (fail() { false; }; train 2 "$first,$last" "$last" run.bind=rank) && fail "ranks across each other were bound"
    has "run.bind: on .* ranks 0 and 1 may both use cores $last, and each has others"
    SLURM_CPUS_PER_TASK=2 train 2 "$first" "$last"
    has '^warning: .*: rank 0 may use 1 core, the job asked for 2 per task: srun does not take that over from sbatch; srun --cpus-per-task=2'
    # As many threads as a rank has cores of its own, however many ranks the host has.
    if [ "$(nproc)" -ge 4 ] && [ "$(cores)" = "0-$(($(nproc) - 1))" ]; then
        train 2 0-1 2-3
        has '^threads: 2 per rank$'
    fi
fi
# A launcher that binds: what it leaves idle is said.
if [ "$library" = openmpi ] && [ "$first" != "$last" ]; then
    rm -rf "$dir/run"
    env -u OMPI_MCA_hwloc_base_binding_policy -u PRTE_MCA_hwloc_default_binding_policy "$mpirun" --bind-to core -np 1 "$tutti" train "$root/examples/quickstart.yaml" \
        model.layers=1 model.hidden=16 model.heads=2 model.kv_heads=2 model.ffn=32 model.seq_len=16 batch.global=4 batch.micro=1 "data.train=$root/CHANGELOG.md" \
        "data.valid=[]" run.steps=1 run.tensorboard=false "run.dir=$dir/run" >"$dir/log" 2>&1 </dev/null || fail "bound to a core: $(cat "$dir/log")"
    has "^warning: .*: the launcher may use $(nproc) cores and bound its 1 rank to 1 of them, the others stay idle; mpirun --bind-to none"
fi

# srun without the library's interface: every task would be a world of its own, all in one folder.
if [ "$library" = mpich ]; then
    SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 "$tutti" train "$root/examples/quickstart.yaml" "data.train=$root/CHANGELOG.md" \
        "run.dir=$dir/alone" >"$dir/log" 2>&1
    [ $? = 2 ] || fail "tasks that know nothing of each other: status $?"
    has 'srun started 4 tasks, but this MPICH Version: [0-9.]+ is alone: .*--mpi=pmi2 for MPICH'
    [ ! -e "$dir/alone" ] || fail "a refused request leaves a directory"
fi
passed
