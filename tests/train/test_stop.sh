#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Stopping a run from outside: interrupted, terminated, killed at any moment, without room on the disk, and twice at
# once. Whatever happens, a restart ends where an undisturbed run ends, bit for bit.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
at_end() { kill -9 $(jobs -p) 2>/dev/null; }


foxes 400 >"$dir/text.txt"

# train NAME KEYS...: in the foreground
train() {
    local name=$1
    shift
    "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" "$@" 2>>"$dir/$name.log"
}
cat >"$dir/tiny.yaml" <<END
model: {layers: 2, hidden: 32, heads: 4, ffn: 44, seq_len: 32, dropout: 0.1}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 4, micro: 2}
optimizer: {lr: 0.01, schedule: {name: cosine, warmup_steps: 20, min_lr: 1.0e-4}}
checkpoint: {every: 50}
run: {steps: 1500, threads: 1, log_every: 100000, tensorboard: false}
END

losses() { sed -E '/"saved"|"loaded"/d; s/"(step_s|tokens_per_s|mfu|data_wait_s)":[^,]*,?//g' "$dir/$1/metrics.jsonl"; }

# same NAME: ended as the undisturbed run did
same() {
    cmp -s "$dir/want/checkpoints/step-00001500/boxes-00000.safetensors" \
        "$dir/$1/checkpoints/step-00001500/boxes-00000.safetensors" || fail "$1: other weights than without a stop"
    [ "$(losses want)" = "$(losses "$1")" ] || fail "$1: other metrics than without a stop"
}

has_steps() { [ -e "$dir/$1/metrics.jsonl" ] && [ "$(grep -c '"loss"' "$dir/$1/metrics.jsonl")" -ge "$2" ]; }
# wait_for_step NAME N: of the process in $pid, until N lines of metrics are there
wait_for_step() {
    until_so $pid has_steps "$1" "$2" || fail "$1: step $2 did not come"
}

train want || fail "the undisturbed run"

# The job is started with the default action for SIGINT, which a shell without job control takes from its children.
for signal in INT TERM; do
    name=stop$signal
    env --default-signal=INT "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" 2>"$dir/$name.log" &
    pid=$!
    wait_for_step $name 70
    kill -$signal $pid
    wait $pid
    status=$?
    [ $status = 0 ] || fail "SIG$signal: exit status $status"
    grep -q "stopped after step" "$dir/$name.log" || fail "SIG$signal: does not say that it stopped: $(cat "$dir/$name.log")"
    steps=$(grep -c '"loss"' "$dir/$name/metrics.jsonl")
    [ -d "$dir/$name/checkpoints/$(printf step-%08d "$steps")" ] || fail "SIG$signal: no checkpoint of step $steps"
    [ "$steps" -lt 1500 ] || fail "SIG$signal came too late to test anything"
    train $name || fail "SIG$signal: going on"
    grep -q "resumed from .*$steps steps done" "$dir/$name.log" || fail "SIG$signal: does not resume from step $steps"
    same $name
done

# Killed at five different moments of one run.
for i in 1 2 3 4 5; do
    "$tutti" train "$dir/tiny.yaml" run.dir="$dir/killed" checkpoint.every=7 2>>"$dir/killed.log" &
    pid=$!
    before=$(wc -l 2>/dev/null <"$dir/killed/metrics.jsonl" || echo 0)
    wait_for_step killed $((before + 20 + i * 13))
    sleep 0.00$i
    kill -9 $pid
    wait $pid 2>/dev/null
    "$tutti" checkpoint verify "$dir/killed" >"$dir/out" 2>&1 || fail "killed: a broken checkpoint: $(cat "$dir/out")"
done
train killed checkpoint.every=7 || fail "killed: going on"
same killed
[ "$(grep -c 'resumed from' "$dir/killed.log")" = 5 ] || fail "killed: did not resume five times"
[ -z "$(find "$dir/killed/checkpoints" -name '.tmp*' -o -name '.trash*')" ] || fail "killed: leftovers in checkpoints/"

# Two processes on one run directory: the second is told who holds it, the first is not disturbed.
"$tutti" train "$dir/tiny.yaml" run.dir="$dir/two" run.steps=1000000 2>"$dir/two.log" &
pid=$!
wait_for_step two 10
out=$(train two 2>&1; echo "status $?"; tail -2 "$dir/two.log")
[[ "$out" == *"status 2"* && "$out" == *"$pid"* && "$out" == *"$dir/two"* ]] || fail "two at once: $out (the first is $pid)"
kill -0 $pid || fail "two at once: the first one is gone"
kill -TERM $pid
wait $pid || fail "two at once: the first one failed"

# No room for a save: exit status 1, the checkpoint before it is whole, and with room the run goes on from there.
train room run.steps=60 || fail "room: the beginning"
(
    ulimit -f 64 # KiB: enough for metrics, too little for the boxes
    train room checkpoint.retries=2 checkpoint.retry_s=0.1
)
[ $? = 1 ] || fail "room: status is not 1"
tail -1 "$dir/room.log" | grep -q "step-00000060.*intact\|intact.*step-00000060" || fail "room: says $(tail -1 "$dir/room.log")"
"$tutti" checkpoint verify "$dir/room" >/dev/null 2>&1 || fail "room: the last checkpoint is broken"
train room run.steps=70 || fail "room: going on"
tail -1 "$dir/room.log" | grep -q "after step 70" || fail "room: does not go on"

# Numbers that break: status 1, and what to do.
train nan run.steps=50 || fail "nan: the beginning"
train nan optimizer.lr=1e6 optimizer.weight_decay=1e6 precision.recipe=fp32 run.steps=400
[ $? = 1 ] || fail "nan: status is not 1"
tail -1 "$dir/nan.log" | grep -q "not finite.*first seen in.*optimizer.lr" || fail "nan: says $(tail -1 "$dir/nan.log")"

passed
