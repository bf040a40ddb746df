# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that send signals to a rank of a training run, after tests/comm/mpirun.sh: fills dir, and sets
# strike NAME RANKS RANK SIGNAL KEYS...: trains in $dir/NAME, and when some steps are done sends the signal to the process of
# the rank; what was printed is in $dir/log, the status in $status; checks what is so after every such end. Who is killed is known at
# once, where the others would wait for longer than ranks() lets them; who stops is late after 5 s, in which the others come on a busy
# machine too.
# shellcheck shell=bash disable=SC2034,SC2154
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 1.0e-4, schedule: {name: constant, warmup_steps: 2}}
comm: {timeout_s: 5, timeout_start_s: 600} # reading text takes as long as it takes
checkpoint: {every: 7}
run: {threads: 1, steps: 10000000, tensorboard: false, eval_every: 0, log_every: 10000000}
YAML

# shellcheck source=scripts/processes.sh
. "$root/scripts/processes.sh"
# process_of_rank LAUNCHER RANK
process_of_rank() {
    local pid
    for pid in $(processes_of "$1"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=$2" && echo "$pid"
    done
}

strike() {
    local name=$1 n=$2 rank=$3 signal=$4 run=$dir/$1 launcher victim
    shift 4
    [ "$signal" != KILL ] || set -- "$@" comm.timeout_s=1000
    ranks "$n" "$tutti" train "$dir/tiny.yaml" run.dir="$run" "$@" >"$dir/log" 2>&1 &
    launcher=$!
    until_so $launcher grep -qs '"step":10,' "$run/metrics.jsonl"
    victim=$(process_of_rank "$launcher" "$rank")
    [ -n "$victim" ] || fail "$name: no process to signal: $(cat "$dir/log")"
    kill -"$signal" "$victim"
    wait "$launcher"
    status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "$name: status $status"
    "$tutti" checkpoint verify "$run" >"$dir/out" 2>&1 || fail "$name: a broken checkpoint: $(cat "$dir/out")"
    for saved in "$run"/checkpoints/*; do
        [[ $saved = */latest || $saved = */step-???????? ]] || fail "$name: half a checkpoint: $saved"
    done
}

# named NAME PATTERN: the log has a line like it and the flight recorder is in the run's folder, with the cause on top and all
# ranks; the launcher's own banners may come before.
named() {
    local flight
    flight=$(cat "$dir/$1"/flight-rank*.txt 2>/dev/null)
    grep -qE -- "^error: $2" "$dir/log" || fail "$1: no line like '$2' in: $(tail -20 "$dir/log")"
    [ "$(grep -c '^error: ' "$dir/log")" = 1 ] || fail "$1: more than one cause: $(grep '^error: ' "$dir/log")"
    head -1 <<<"$flight" | grep -qE -- "^$2" || fail "$1: the flight recorder begins with '$(head -1 <<<"$flight")'"
    grep -q "^rank 0, the last .*operations" <<<"$flight" || fail "$1: the flight recorder lists no operations"
}
