#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A storm of faults over a run that goes on by itself (run.elastic): processes are killed (kill -9) at random moments until there
# were so many; then the run is asked to stop, and what it saved is compared to the bit with a run of as many steps that nobody
# disturbed. Needs Open MPI 5 with fault tolerance.
#
#   bench/elastic.sh TUTTI MPIRUN [KILLS [RANKS [SPARES [RANKS_PER_HOST [SEED]]]]]
#   MEMORY=0          checkpoints on disk only (EVERY=10 steps); else in memory after every step as well, in a folder of /dev/shm
#   MOST_S=SECONDS    after which nobody else is killed: the storm is over with the kills it had
#
# Each kill of a rank at work uses up a spare, so after SPARES kills the run is stopped (it saves) and started again with as many
# spares: how many starts there were is said. A start that ends by itself, or makes no step for QUIET_S=120 seconds, is a failure,
# is counted, and the storm goes on.
#
#   one     a rank at work, now and then rank 0
#   two     two of them at once
#   again   one, and another one while the others recover
#   spare   one that waits: nobody goes back for it
# Prints a line for each fault: who, the step that was done, the step that the run went on from, seconds until a step was made that
# was not there before (and until all was open again, by starts.jsonl). Status 0: the same bits, no start failed, and with checkpoints
# in memory no fault cost more than one step.
set -u
tutti=$1 mpirun=$2 wanted=${3:-200} ranks=${4:-8} spares=${5:-24} per_host=${6:-2} seed=${7:-1}
RANDOM=$seed
dir=$(mktemp -d "${TMPDIR:-/tmp}/tutti-elastic-XXXXXX")
memory=
[ "${MEMORY:-1}" = 0 ] || memory=$(mktemp -d /dev/shm/tutti-elastic-XXXXXX)
launcher=
cleanup() {
    [ -z "$launcher" ] || { kill -TERM "$launcher" 2>/dev/null; wait "$launcher" 2>/dev/null; }
    rm -rf "$dir" "$memory"
}
trap cleanup EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
seq 1 4000 | sed 's/$/ the quick brown fox jumps over the lazy dog/' >"$dir/text.txt"
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: $dir/text.txt, cache_dir: $dir/cache}
batch: {global: 16, micro: 1}
optimizer: {schedule: {name: constant, warmup_steps: 5}}
run: {steps: 100000000, threads: 1, elastic: true, tensorboard: false, log_every: 1000000, seed: $seed}
checkpoint: {every: ${EVERY:-10}, incremental: false, keep: 2}
comm: {timeout_s: 120, ranks_per_host: $per_host}
END
[ -z "$memory" ] || sed -i "s|keep: 2|keep: 2, memory_every: 1, memory_dir: $memory|" "$dir/c.yaml"
run=$dir/run log=$dir/log

ms() { date +%s%3N; }
last_step() { # the last whole line of metrics.jsonl
    local step
    step=$(tail -c 4096 "$run/metrics.jsonl" 2>/dev/null | grep -o '^{"step":[0-9]*,.*}$' | tail -1 | grep -o '[0-9]*' | head -1)
    echo "${step:-0}"
}
lines() { wc -l 2>/dev/null <"$run/starts.jsonl" || echo 0; }
alive() { kill -0 "$launcher" 2>/dev/null; }
start() {
    dead=()
    "$mpirun" --with-ft ulfm -np $((ranks + spares)) "$tutti" train "$dir/c.yaml" run.dir="$run" run.spares="$spares" >>"$log" 2>&1 </dev/null &
    launcher=$! starts=$((starts + 1)) used=0
    wait_beyond "$(last_step)" || fail_start "made no step"
}
# Why a start is given up. The next one goes on from what there is.
fail_start() {
    echo "start $starts $1: $(tail -3 "$log" | tr '\n' ' ')"
    cp "$log" "${TMPDIR:-/tmp}/tutti-elastic-failed-$starts.log"
    failures=$((failures + 1))
    for pid in $(pgrep -P "$launcher"); do kill -9 "$pid" 2>/dev/null; done
    kill -9 "$launcher" 2>/dev/null
    wait "$launcher" 2>/dev/null
    launcher=
}
wait_beyond() { # STEP: until a step after it is made; non-zero: the job is over, or makes none
    local until=$((SECONDS + ${QUIET_S:-120}))
    while [ "$(last_step)" -le "$1" ]; do
        alive && [ $SECONDS -lt $until ] || return 1
        sleep 0.02
    done
}
# The members that are at work, and those that wait: crew.c gives the seat of one who is gone to the next spare, so that the lowest
# numbers of those that are alive are at work.
seats() {
    local m
    work=() waits=()
    for ((m = 0; m < ranks + spares; m++)); do
        [ -z "${dead[m]:-}" ] || continue
        if [ ${#work[@]} -lt "$ranks" ]; then work+=("$m"); else waits+=("$m"); fi
    done
}
pid_of() { # MEMBER
    local pid
    for pid in $(pgrep -P "$launcher"); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "PMIX_RANK=$1" && echo "$pid"
    done
}
stop() { # it saves, and all end
    local until=$((SECONDS + ${QUIET_S:-120}))
    seats
    kill -TERM "$(pid_of "${work[0]}")"
    while alive && [ $SECONDS -lt $until ]; do sleep 0.1; done
    if alive; then fail_start "did not stop"; else wait "$launcher"; fi
    launcher=
}
strike() { # MEMBER: it is gone
    local pid
    pid=$(pid_of "$1")
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null || return 1
    dead[$1]=1 all=$((all + 1)) used=$((used + 1))
}

all=0 faults=0 starts=0 failures=0 worst_lost=0 lost_steps=0 sum_ms=0 worst_ms=0 timed=0 used=0
from_all=$(ms)
start
kinds=(one one one one two again spare)
while [ $all -lt "$wanted" ] && [ $SECONDS -lt "${MOST_S:-1000000}" ]; do
    if [ -n "$launcher" ] && [ $used -ge "$spares" ]; then
        stop
    fi
    [ -n "$launcher" ] || { start; continue; }
    sleep 0.$((RANDOM % 10))
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    [ $((spares - used)) -ge 2 ] || kind=one
    seats
    a=$((RANDOM % ranks)) b=$((RANDOM % ranks))
    [ $b != $a ] || b=$(((a + 1) % ranks))
    was=$(lines) at=$(last_step) from=$(ms)
    case $kind in
    spare)
        who=${waits[RANDOM % ${#waits[@]}]}
        strike "$who" || continue # it was gone before
        ;;
    two)
        who="${work[a]} ${work[b]}"
        strike "${work[a]}" || { fail_start "has lost a rank that nobody killed"; continue; }
        strike "${work[b]}" || { fail_start "has lost a rank that nobody killed"; continue; }
        ;;
    *)
        who=${work[a]}
        strike "$who" || { fail_start "has lost a rank that nobody killed"; continue; }
        ;;
    esac
    if [ $kind = again ]; then
        sleep 0.$((RANDOM % 10))
        who="$who ${work[b]}" step=$(last_step)
        [ "$step" -le "$at" ] || [ "$(lines)" != "$was" ] || at=$step
        was=$(lines)
        strike "${work[b]}" || { fail_start "has lost a rank that nobody killed"; continue; }
    fi
    faults=$((faults + 1))
    if [ $kind = spare ]; then
        wait_beyond $((at + 1)) || { fail_start "stood still after a spare was killed"; continue; }
        echo "fault $faults: $kind (member $who) at step $at: nobody went back"
        continue
    fi
    # What was done by then: the last step seen before the first line of a new epoch is there (metrics.jsonl is cut after it). No step
    # is made in a world that a dead rank is in.
    until=$((SECONDS + ${QUIET_S:-120}))
    while :; do
        step=$(last_step) now=$(lines)
        [ "$now" = "$was" ] || break
        [ "$step" -le "$at" ] || at=$step
        alive && [ $SECONDS -lt $until ] || break
        sleep 0.02
    done
    if [ "$(lines)" = "$was" ] || ! wait_beyond "$at"; then
        fail_start "did not go on after member(s) $who were killed ($kind)"
        continue
    fi
    took=$(($(ms) - from))
    went_on=$(tail -n +$((was + 1)) "$run/starts.jsonl" | head -1 | grep -o '"step":[0-9]*' | head -1 | grep -o '[0-9]*')
    open_s=$(tail -1 "$run/starts.jsonl" | grep -o '"going_on_s":[0-9.e+-]*' | cut -d: -f2)
    lost=$((at - went_on))
    [ $lost -ge 0 ] || lost=0 # it had saved a step that was not yet in the metrics
    lost_steps=$((lost_steps + lost)) timed=$((timed + 1)) sum_ms=$((sum_ms + took))
    [ $lost -le $worst_lost ] || worst_lost=$lost
    [ $took -le $worst_ms ] || worst_ms=$took
    echo "fault $faults: $kind (member $who) at step $at: went on from $went_on, a new step after $took ms (open after ${open_s:-?} s); $all kills, start $starts"
done
in_all=$(($(ms) - from_all))
[ -n "$launcher" ] || start
stop
bad=0
steps=$(last_step)
last=$(printf 'checkpoints/step-%08d' "$steps")
"$mpirun" --with-ft ulfm -np "$ranks" "$tutti" train "$dir/c.yaml" run.dir="$dir/plain" run.steps="$steps" checkpoint.every=1000000000 \
    checkpoint.memory_every=0 >"$dir/plain.log" 2>&1 </dev/null || { echo "the undisturbed run failed:" && tail -5 "$dir/plain.log"; bad=1; }
[ -e "$run/$last/manifest.json" ] || { echo "nothing was saved at step $steps"; bad=1; }
for f in "$dir/plain/$last"/boxes-*; do cmp "$f" "$run/$last/${f##*/}" || bad=1; done
same=$([ $bad = 0 ] && echo "equal to the undisturbed run's to the bit" || echo "NOT as it should be")
[ -z "$memory" ] || [ $worst_lost -le 1 ] || bad=1
[ $failures = 0 ] || bad=1
echo "elastic storm: $all kills in $faults faults, $starts starts of $ranks ranks ($per_host a host) and $spares spares, $((in_all / 1000)) s; $failures starts failed;" \
    "$steps steps; a new step after $((timed ? sum_ms / timed : 0)) ms on average, $worst_ms at most; steps lost: $lost_steps in all, $worst_lost at most by one fault;" \
    "final state $same"
exit $bad
