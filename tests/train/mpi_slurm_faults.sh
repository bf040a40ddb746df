#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A real Slurm: munged, slurmctld and a slurmd for each of two nodes that are this machine, all as whoever runs the test, in a folder of its
# own. examples/slurm/nodes.sbatch trains over both nodes (MPICH) or over two tasks of one (Open MPI): the signal that Slurm sends before a
# time limit saves and puts the job back, a rank that is killed puts it back, and what comes out is what an undisturbed run would have made.
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
for program in munged slurmctld slurmd; do
    PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null || { echo "not tested: there is no $program (Debian: slurmctld slurmd munge)"; exit 77; }
done
PATH=$PATH:/usr/sbin:/sbin
kind=pmix nodes=1
if [ "$library" = mpich ]; then kind=pmi2 nodes=2; fi


# ---- a cluster ----
daemons=()
at_end() {
    # shellcheck disable=SC2317
    [ ${#daemons[@]} = 0 ] || kill -TERM "${daemons[@]}" 2>/dev/null
    # shellcheck disable=SC2317
    for ((i = 0; i < 50; i++)); do
        kill -0 "${daemons[@]}" 2>/dev/null || break
        sleep 0.1
    done
    # shellcheck disable=SC2317
    kill -KILL "${daemons[@]}" 2>/dev/null
}
chmod 711 "$dir"
mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool1" "$dir/spool2" "$dir/log"
head -c 1024 /dev/urandom >"$dir/munge/key" && chmod 600 "$dir/munge/key"
munged --foreground --force --socket="$dir/munge/socket" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed" \
    --log-file="$dir/munge/log" >"$dir/log/munged" 2>&1 &
daemons+=($!)
port=$((20000 + $$ % 20000 / 4 * 4))
host=$(hostname -s)
cores=$(nproc)
{
    echo "ClusterName=test"
    echo "SlurmctldHost=$host(127.0.0.1)"
    echo "SlurmctldPort=$port"
    echo "SlurmUser=$(id -un)"
    echo "SlurmdUser=$(id -un)"
    echo "AuthType=auth/munge"
    echo "AuthInfo=socket=$dir/munge/socket"
    echo "CredType=cred/munge"
    echo "StateSaveLocation=$dir/state"
    echo "SlurmctldPidFile=$dir/slurmctld.pid"
    echo "SlurmdPidFile=$dir/slurmd-%n.pid"
    echo "SlurmdSpoolDir=$dir/spool-%n"
    echo "SlurmctldLogFile=$dir/log/slurmctld"
    echo "SlurmdLogFile=$dir/log/slurmd-%n"
    echo "ProctrackType=proctrack/pgid"
    echo "TaskPlugin=task/none"
    echo "SwitchType=switch/none"
    echo "SelectType=select/cons_tres"
    echo "SelectTypeParameters=CR_CPU"
    echo "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,requeue_setup_env_fail"
    echo "SlurmdParameters=config_overrides"
    echo "ReturnToService=2"
    echo "KillWait=30"
    echo "MpiDefault=none"
    echo "JobAcctGatherType=jobacct_gather/none"
    echo "NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=$((cores > 2 ? cores : 2)) State=UNKNOWN"
    echo "NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=$((cores > 2 ? cores : 2)) State=UNKNOWN"
    echo "PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP"
} >"$dir/slurm.conf"
export SLURM_CONF=$dir/slurm.conf
: >"$dir/cgroup.conf"
for ((i = 0; i < 100; i++)); do
    [ -S "$dir/munge/socket" ] && break
    sleep 0.1
done
[ -S "$dir/munge/socket" ] || { echo "not tested: munged does not start here: $(tail -n 2 "$dir/log/munged" "$dir/munge/log")"; exit 77; }
slurmctld -D -c >"$dir/log/ctld.out" 2>&1 &
daemons+=($!)
for n in n1 n2; do
    slurmd -D -N $n >"$dir/log/$n.out" 2>&1 &
    daemons+=($!)
done
for ((i = 0; i < 300; i++)); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.1
done
[ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] ||
    { echo "not tested: no Slurm of two nodes comes up here: $(sinfo 2>&1; tail -n 3 "$dir"/log/*)"; exit 77; }
srun --mpi=list 2>&1 | grep -qw $kind || { echo "not tested: this srun has no --mpi=$kind: $(srun --mpi=list 2>&1)"; exit 77; }

# ---- jobs ----
cat >"$dir/toy.yaml" <<F
model: {layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn: 32, seq_len: 16}
data: {train: $root/CHANGELOG.md, cache_dir: $dir/tokens}
optimizer: {schedule: {name: constant, warmup_steps: 0}}
batch: {global: 4, micro: 1}
run: {threads: 1, tensorboard: false, steps: 600}
checkpoint: {every: 200, keep: 2}
F
# The same two ranks, undisturbed.
"$tutti" train "$dir/toy.yaml" -n 2 run.dir="$dir/want" >"$dir/want.log" 2>&1 || fail "an undisturbed run: $(tail -3 "$dir/want.log")"

# until_true COMMAND...: waits for it, for at least five minutes.
until_true() {
    local naps
    for ((naps = 0; naps < 3000; naps++)); do
        "$@" && return
        sleep 0.1
    done
    return 1
}
steps() { if [ -e "$dir/$1/metrics.jsonl" ]; then grep -c '"loss"' "$dir/$1/metrics.jsonl"; else echo 0; fi; }
came_to() { [ "$(steps "$1")" -ge "$2" ]; }
over() { squeue -h -j "$job" 2>/dev/null | grep -q . && return 1 || return 0; }
says() { grep -q "^job $job: $1" "$dir/$run.log"; }

submit() { # RUN: sets job
    run=$1
    job=$(TUTTI=$tutti MPI=$kind sbatch --parsable --nodes=$nodes --ntasks-per-node=$((2 / nodes)) --cpus-per-task=1 --time=30 --job-name="$run" \
        --output="$dir/$run.log" --chdir="$dir" --export=ALL "$root/examples/slurm/nodes.sbatch" "$dir/toy.yaml" "$dir/$run" numerics.deterministic=true) ||
        fail "sbatch: $job"
}

# What --signal=USR1@300 sends before the time limit goes to the job's steps, as scancel --signal sends it.
submit told
until_true came_to told 20 || fail "the job came no further: $(squeue; tail -n 5 "$dir/told.log" "$dir"/log/*)"
scancel --signal=USR1 "$job"
until_true says 'not finished (status 0), queued again' || fail "after USR1: $(squeue; tail -5 "$dir/told.log")"
# Slurm lets two minutes pass before it starts such a job again; nobody waits for them here.
again() { [ "$(squeue -h -j "$job" -o '%t %r')" = 'PD BeginTime' ] && scontrol update "jobid=$job" starttime=now; }
until_true again || fail "the job is not in the queue: $(squeue)"
until_true says 'finished' || fail "a job that was put back does not finish: $(squeue; tail -n 5 "$dir/told.log" "$dir"/log/slurmctld)"
until_true over || fail "the job does not end: $(squeue)"
grep -q '"signal":"SIGUSR1"' "$dir/told/ends.jsonl" || fail "ends.jsonl: $(cat "$dir/told/ends.jsonl")"
"$tutti" checkpoint diff "$dir/want" "$dir/told" >"$dir/diff" 2>&1 || fail "what a signalled job made is another: $(tail -3 "$dir/diff")"
[ "$(grep -c '"loss"' "$dir/told/metrics.jsonl")" = "$(grep -c '"loss"' "$dir/want/metrics.jsonl")" ] || fail "steps are missing, or there twice"

# A rank that is killed takes the job along. It had published a checkpoint: where srun says that one was killed (137) the job goes back, and
# goes on from there. Open MPI's other rank says first which one is gone, with status 1: somebody must look.
submit killed
until_true came_to killed 210 || fail "the job came no further: $(squeue; tail -n 5 "$dir/killed.log")"
rank=$(pgrep -f "^$tutti train .*run.dir=$dir/killed" | tail -n 1)
kill -KILL "$rank" || fail "no rank to kill"
until_true says 'not finished (status 137), queued again\|failed (status 1)' || fail "after SIGKILL: $(squeue; tail -n 5 "$dir/killed.log")"
if says 'not finished'; then
    until_true again || fail "the job is not in the queue: $(squeue)"
    until_true says 'finished' || fail "a job whose rank was killed does not finish: $(squeue; tail -n 5 "$dir/killed.log" "$dir/log/slurmctld")"
    "$tutti" checkpoint diff "$dir/want" "$dir/killed" >"$dir/diff" 2>&1 || fail "what a killed job made is another: $(tail -n 3 "$dir/diff")"
else
    grep -q 'rank [01]' "$dir/killed.log" || fail "nobody names the rank that was killed: $(tail -n 9 "$dir/killed.log")"
fi

# A wrong request does not go round.
sed -i 's/heads: 2/heads: 3/' "$dir/toy.yaml"
submit wrong
until_true over || fail "a wrong request stays in the queue: $(squeue)"
grep -q "^job $job: failed (status 2)" "$dir/wrong.log" || fail "a wrong request: $(tail -n 5 "$dir/wrong.log")"
passed
