#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goodput under a fault rate, measured and by the closed form: a run of 4 ranks is killed at moments drawn from an exponential
# distribution and started again, for several distances between checkpoints in memory.
#
#   scripts/goodput.sh [SECONDS [MTBF [STEPS...]]]     seconds for each distance (50), mean seconds between faults (10), steps between
#                                                      saves (1 8 32 128)
#   TUTTI=build/tutti
#
# As it stands it takes less than five minutes. Each distance has its SECONDS and no more: a fault that would come later does not.
#
# Goodput is the sum of the seconds of the steps that stayed (metrics.jsonl has each once) over all seconds. The closed form is
# Daly's, for segments of tau seconds of steps, a save of delta seconds, R seconds from a fault until the program steps again
# and a mean M between faults: tau / (M exp(R/M) (exp((tau + delta)/M) - 1)). Young's best tau is sqrt(2 delta M). tau and R
# are measured in the same run, delta beside it: what saving after
# every step adds to the time of a run that nobody disturbs.
set -u
seconds=${1:-50} mtbf=${2:-10}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- 1 8 32 128
root=$(cd "$(dirname "$0")/.." && pwd)
tutti=${TUTTI:-$root/build/tutti}
dir=$(mktemp -d)
memory=$(mktemp -d /dev/shm/tutti-goodput-XXXXXX)
job=
cleanup() {
    [ -z "$job" ] || { kill -TERM "$job" 2>/dev/null; wait "$job" 2>/dev/null; }
    rm -rf "$dir" "$memory"
}
trap cleanup EXIT
RANDOM=${SEED:-1}
for i in $(seq 300); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep."; done >"$dir/text.txt"
cat >"$dir/c.yaml" <<YAML
model: {family: llama, layers: 4, hidden: 128, heads: 4, ffn: 352, seq_len: 128}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 2}
optimizer: {schedule: {name: constant, warmup_steps: 5}}
parallel: {dp_shard: 4, zero: 1}
comm: {ranks_per_host: 1}
checkpoint: {every: 0, memory_dir: $memory}
run: {threads: 1, steps: 100000000, tensorboard: false, log_every: 1000000}
YAML
now() { date +%s.%N; }
lines() { wc -l <"$1" 2>/dev/null || echo 0; }
below() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        [ "$(readlink "/proc/$child/exe")" = "$(readlink -f "$tutti")" ] && echo "$child"
    done
}
step_seconds() { grep -ho '"step_s":[0-9][0-9.e-]*' "$1/metrics.jsonl" | cut -d: -f2; } # not that of "ranks", which is a list
# Of a run that nobody disturbs, what passes beside its steps, for each of them.
beside() { # STEPS BETWEEN SAVES
    "$tutti" train "$dir/c.yaml" -n 4 run.dir="$dir/calm" run.steps=100 checkpoint.memory_every="$1" >"$dir/log" 2>&1
    step_seconds "$dir/calm" | awk -v all="$(grep -o '"seconds":[0-9.]*' "$dir/calm/ends.jsonl" | cut -d: -f2)" '{ s += $1; n++ } END { print (all - s) / n }'
    rm -rf "$dir/calm"
}
save=$(awk -v a="$(beside 1)" -v b="$(beside 0)" 'BEGIN {print (a > b ? a - b : 0)}')
printf '%8s %8s %8s %8s %8s %8s | %8s %8s\n' steps tau_s save_s R_s faults M_s measured daly
for every; do
    rm -rf "$dir/run" "$memory"/*
    "$tutti" launch --pause 0 --restarts 1000 -- "$tutti" train "$dir/c.yaml" -n 4 run.dir="$dir/run" checkpoint.memory_every="$every" \
        >"$dir/log" 2>&1 </dev/null &
    job=$!
    while [ ! -s "$dir/run/metrics.jsonl" ]; do sleep 0.05; done
    from=$(now) faults=0 down=0
    while [ "$(awk -v a="$(now)" -v b="$from" -v s="$seconds" 'BEGIN {print (a - b < s)}')" = 1 ]; do
        wait_s=$(awk -v u=$((RANDOM + 1)) -v m="$mtbf" 'BEGIN {printf "%.3f", -m * log(u / 32769)}')
        left=$(awk -v a="$(now)" -v b="$from" -v s="$seconds" -v w="$wait_s" 'BEGIN {l = s - (a - b); print (w < l ? w : -(l > 0 ? l : 0))}')
        sleep "${left#-}"
        [ "${left:0:1}" != - ] || break
        for p in $(below "$job"); do kill -9 "$p"; done
        faults=$((faults + 1))
        t=$(now) resumed=$(grep -c 'hosts: ' "$dir/log")
        while [ "$(grep -c 'kernels: ' "$dir/log")" -le "$resumed" ] && kill -0 "$job"; do sleep 0.02; done # set up: it steps now
        down=$(awk -v d="$down" -v a="$(now)" -v b="$t" 'BEGIN {print d + a - b}')
    done
    all=$(awk -v a="$(now)" -v b="$from" 'BEGIN {print a - b}')
    kill -TERM "$job"
    wait "$job"
    job=
    step_seconds "$dir/run" | awk -v every="$every" -v all="$all" -v faults="$faults" -v down="$down" -v save="$save" '
        { sum += $1; n++ }
        END {
            M = all / (faults ? faults : 1); R = faults ? down / faults : 0; tau = every * sum / n
            printf "%8d %8.3f %8.4f %8.2f %8d %8.2f | %8.3f %8.3f\n", every, tau, save, R, faults, M, sum / all,
                tau / (M * exp(R / M) * (exp((tau + save) / M) - 1)) }'
done
