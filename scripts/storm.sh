#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A storm of faults: a run on 8 ranks and 4 pretended hosts is killed, stopped and robbed at random moments until it has had so many
# faults; then it is asked to stop, and what it saved is compared to the bit with a run of as many steps that nobody disturbed.
#
#   scripts/storm.sh [FAULTS [SEED]]      in the source tree, after a build
#   TUTTI=build/tutti      the program
#   LAUNCHER="mpirun -np 8"  processes of a launcher; else 8 threads of one process
#   RUN=DIR  MEMORY=DIR    where the run and its memory lie (default: a folder of /tmp, /dev/shm)
#   CUT=MPIRUN             instead of LAUNCHER: Open MPI's, over 4 hosts that are network namespaces, of 2 processes each; faults are
#                          cuts, too. Needs the right to make namespaces
#   MOST_S=SECONDS         after which no other fault is made: the storm is over with those it had
#
#   kill    SIGKILL to one process of the job
#   wipe    the same, and what one host has in memory is gone before the next start
#   stop    SIGSTOP to one process, and SIGCONT after a while: alone it goes on, among others it may be named as late
#   full    no room in memory for a while (a file fills a small tmpfs; only where one can be mounted), and then SIGKILL
#   cut     the network of one host is gone for half a second, and the run goes on; or until ranks say that others do not answer
#           (comm.timeout_s), and the job is started again
# Prints a line for each fault (what, at which step, from which step the run went on, seconds until it made a step that was not there
# before), then a summary. Status 0: the same bits, and no fault cost more than one step.
set -u
faults=${1:-200} seed=${2:-1}
root=$(cd "$(dirname "$0")/.." && pwd)
tutti=${TUTTI:-$root/build/tutti}
dir=${RUN:-$(mktemp -d)}
memory=${MEMORY:-$(mktemp -d /dev/shm/tutti-storm-XXXXXX)}
launcher=${LAUNCHER:-}
RANDOM=$seed
mkdir -p "$dir" "$memory"
# shellcheck source=scripts/processes.sh
. "$root/scripts/processes.sh"
full=
mounted=
if [ -z "${MEMORY:-}" ] && mount -t tmpfs -o size=16m tutti-storm "$memory" 2>/dev/null; then
    mounted=1 full=full
fi
job=
cleanup() {
    [ -z "$job" ] || kill -TERM "$job" 2>/dev/null
    [ -z "$job" ] || wait "$job" 2>/dev/null
    [ -z "${CUT:-}" ] || hosts_close
    [ -z "$mounted" ] || umount "$memory"
    [ -n "${MEMORY:-}" ] || rm -rf "$memory"
    [ -n "${RUN:-}" ] || rm -rf "$dir"
}
trap cleanup EXIT

for i in $(seq 300); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep."; done >"$dir/text.txt"
cat >"$dir/storm.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 16, micro: 1}
optimizer: {schedule: {name: constant, warmup_steps: 5}}
parallel: {dp_replicate: 2, dp_shard: 4, zero: 2}
comm: {ranks_per_host: 2, timeout_s: ${TIMEOUT:-10}}
checkpoint: {every: 50, incremental: false, keep: 2, memory_every: 1, memory_dir: $memory, retry_s: 1}
run: {threads: 1, steps: 100000000, tensorboard: false, log_every: 1000000, seed: $seed}
YAML
train=("$tutti" train "$dir/storm.yaml")
# shellcheck disable=SC2206
[ -z "$launcher" ] && train+=(-n 8) || train=($launcher "${train[@]}")
cut=
if [ -n "${CUT:-}" ]; then
    # shellcheck source=tests/comm/namespaces.sh
    . "$root/tests/comm/namespaces.sh"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
    hosts_open "$dir" 4 || { echo "CUT: $hosts_why"; exit 1; }
    launcher="$CUT over 4 network namespaces" cut="cut cut cut"
    slots=$(for h in 1 2 3 4; do printf '10.213.77.%d:2,' $h; done)
    printf '#!/bin/bash\nprintf -v c "%%q " %q --host %q -np 8 "$@"\nexec %q 1 "$c"\n' "$CUT" "${slots%,}" "$dir/host" >"$dir/job"
    chmod +x "$dir/job"
    train=("$dir/job" "$tutti" train "$dir/storm.yaml")
fi
link() { ip -n "tutti-$hosts_id-$1" link set "v$hosts_id-$1" "$2"; } # HOST up|down

ms() { date +%s%3N; }
last_step() { # the last whole line of metrics.jsonl
    local step
    step=$(tail -c 4096 "$dir/run/metrics.jsonl" 2>/dev/null | grep -o '^{"step":[0-9]*,.*}$' | tail -1 | grep -o '[0-9]*' | head -1)
    echo "${step:-0}"
}
victim() {
    local all
    mapfile -t all < <(processes_of "$job")
    [ ${#all[@]} -gt 0 ] && echo "${all[$((RANDOM % ${#all[@]}))]}"
}
wait_beyond() { # STEP: until a step after it is made, or the job is over
    while [ "$(last_step)" -le "$1" ] && kill -0 "$job" 2>/dev/null; do sleep 0.02; done
}

from_all=$(ms)
"$tutti" launch --pause 0.05 --pause-most 1 --restarts 10 -- "${train[@]}" run.dir="$dir/run" >"$dir/log" 2>&1 </dev/null &
job=$!
wait_beyond 0

kinds=(kill kill kill wipe stop $full $cut)
done=0 worst_lost=0 sum_ms=0 worst_ms=0 lost_steps=0 killed=0
while [ $done -lt "$faults" ] && [ $SECONDS -lt "${MOST_S:-1000000}" ] && kill -0 "$job" 2>/dev/null; do
    at=$(last_step)
    wait_beyond $((at + RANDOM % 4))
    sleep 0.0$((RANDOM % 10))
    kind=${kinds[$((RANDOM % ${#kinds[@]}))]}
    pid=$(victim)
    [ -n "$pid" ] || continue
    deaths=$(grep -c "launch: the job" "$dir/log")
    from=$(ms) at=$(last_step)
    host='' ends=1
    case $kind in
    cut)
        host=$((RANDOM % 4 + 1)) ends=$((RANDOM % 2))
        touch "$dir/mark"
        link $host down
        sleep 0.5
        late() { find "$dir/run" -maxdepth 1 -name 'flight-rank*' -newer "$dir/mark" | wc -l; }
        while [ $ends = 1 ] && [ "$(late)" -lt 2 ] && kill -0 "$job" 2>/dev/null; do sleep 0.1; done
        link $host up
        ;;
    stop)
        ends=0
        kill -STOP "$pid" 2>/dev/null || continue
        sleep 0.$((RANDOM % 9 + 1))
        kill -CONT "$pid" 2>/dev/null
        ;;
    full)
        dd if=/dev/zero of="$memory/filler" bs=1M 2>/dev/null
        sleep 0.3
        at=$(last_step)
        rm -f "$memory/filler"
        wait_beyond "$at" # one checkpoint in memory after it
        for _ in 1 2; do # the one at hand may still have failed
            at=$(last_step)
            wait_beyond "$at"
        done
        from=$(ms)
        kill -KILL "$pid" 2>/dev/null || continue
        ;;
    *) kill -KILL "$pid" 2>/dev/null || continue ;;
    esac
    if [ $kind = wipe ]; then
        host=$((RANDOM % 4))
        rm -rf "$memory"/tutti-*/host-$host
    fi
    if [ $ends = 1 ]; then
        while [ "$(grep -c "launch: the job" "$dir/log")" = "$deaths" ] && kill -0 "$job" 2>/dev/null; do sleep 0.02; done
    fi
    died=$(grep "launch: the job" "$dir/log" | tail -1 | grep -o 'at step [0-9]*' | grep -o '[0-9]*')
    [ $ends = 1 ] || died=$(last_step)
    wait_beyond "$died"
    took=$(($(ms) - from))
    done=$((done + 1))
    went_on=$died
    if [ $ends = 1 ]; then
        went_on=$(grep -o 'resumed from .*: [0-9]* steps done' "$dir/log" | tail -1 | grep -o '[0-9]* steps' | grep -o '[0-9]*')
        lost=$((died - ${went_on:-0}))
        killed=$((killed + 1)) lost_steps=$((lost_steps + (lost > 0 ? lost : 0))) sum_ms=$((sum_ms + took))
        [ $lost -le $worst_lost ] || worst_lost=$lost
        [ $took -le $worst_ms ] || worst_ms=$took
    fi
    [ $kind != cut ] || kind="cut ($([ $ends = 1 ] && echo long || echo short))"
    echo "fault $done: $kind${host:+ of host $host} at step $died: went on from ${went_on:-0}, a new step after $took ms"
done
in_all=$(($(ms) - from_all))
# Not SIGTERM: Open MPI's launcher follows it with SIGKILL after a second, which a busy machine needs for a step and a checkpoint.
if [ -z "$cut" ]; then kill -USR1 "$job" 2>/dev/null; else kill -TERM "$(victim)"; fi # there none comes through to the launcher
wait "$job"
status=$?
job=
bad=0
[ $status = "$(if [ -n "$cut" ]; then echo 0; else echo 75; fi)" ] || { echo "the run ended with status $status:" && tail -5 "$dir/log"; bad=1; }
steps=$(last_step)
"${train[@]}" run.dir="$dir/reference" run.steps="$steps" checkpoint.memory_every=0 checkpoint.every=0 >"$dir/reference.log" 2>&1 </dev/null ||
    { echo "the undisturbed run failed:" && tail -5 "$dir/reference.log"; bad=1; }
last=$(printf 'checkpoints/step-%08d' "$steps")
[ -e "$dir/run/$last/manifest.json" ] || { echo "nothing was saved at step $steps"; bad=1; }
for f in "$dir/reference/$last"/boxes-*.safetensors; do
    cmp "$f" "$dir/run/$last/${f##*/}" || bad=1
done
[ $worst_lost -le 1 ] || bad=1
[ $done -ge "$faults" ] || [ -n "${MOST_S:-}" ] || { echo "the run was over after $done faults"; bad=1; }
[ -z "$(ls "$memory")" ] || { echo "memory is not given back: $(ls "$memory")"; bad=1; }
echo "storm: $done faults ($killed that ended the job) in $((in_all / 1000)) s of ${launcher:-threads}; $steps steps;" \
    "a new step after $((killed ? sum_ms / killed : 0)) ms on average, $worst_ms at most;" \
    "steps lost: $lost_steps in all, $worst_lost at most by one fault; final state" \
    "$([ $bad = 0 ] && echo "equal to the undisturbed run's to the bit" || echo "NOT as it should be")"
exit $bad
