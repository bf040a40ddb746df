#!/bin/bash
# A training run of which one process stops answering, or is killed: it ends in seconds, names the rank, is not successful, and
# leaves the flight recorder in the run's folder.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "$2/tests/comm/mpirun.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for i in $(seq 200); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep."; done >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 1.0e-4, schedule: {name: constant, warmup_steps: 2}}
comm: {timeout_s: 2}
run: {threads: 1, steps: 10000000, tensorboard: false, eval_every: 0, log_every: 10000000}
YAML

# pids of the program among the descendants of a process
processes_of() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        [ "$(readlink "/proc/$child/exe")" = "$(readlink -f "$tutti")" ] && echo "$child"
        processes_of "$child"
    done
}

# fault SIGNAL PATTERN STATUS
fault() {
    local run=$dir/$1 pid victim status from
    ranks 2 "$tutti" train "$dir/tiny.yaml" run.dir="$run" >"$dir/log" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        [ -s "$run/metrics.jsonl" ] && [ "$(wc -l <"$run/metrics.jsonl")" -ge 3 ] && break
        sleep 0.1
    done
    victim=$(processes_of "$pid" | tail -1)
    [ -n "$victim" ] || fail "$1: no process to signal: $(cat "$dir/log")"
    from=$SECONDS
    kill -"$1" "$victim"
    wait "$pid"
    status=$?
    [ $status != 0 ] && [ $status != 124 ] && { [ "$3" = - ] || [ $status = "$3" ]; } || fail "$1: status $status"
    [ $((SECONDS - from)) -le 15 ] || fail "$1: took $((SECONDS - from)) s"
    grep -qE -- "$2" "$dir/log" || fail "$1: no line like '$2' in: $(tail -20 "$dir/log")"
    [ -n "$2" ] || return
    grep -qs "^rank [01].*operations" "$run"/flight-rank*.txt || fail "$1: no flight recorder in $(ls "$run")"
}

fault STOP "^error: rank [01] is late: .*has waited 2\." 1
# MPICH's launcher kills the others before they can look, and says so itself.
if [ "$library" = mpich ]; then fault KILL "" -; else fault KILL "^error: rank [01] is gone: its process ended" -; fi
[ $failures = 0 ]
