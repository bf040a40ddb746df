#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program under every signal that ends processes: the step is finished and saved, in one rank and in several; before the first
# step nothing half done is left but texts' tokens to go on with; readers of stderr may go. What a second signal means: test_signals.c.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
at_end() { kill -9 $(jobs -p) 2>/dev/null; }

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 1, hidden: 16, heads: 2, ffn: 16, seq_len: 16}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 6, micro: 1}
checkpoint: {every: 0}
run: {steps: 10000000, threads: 1, log_every: 10000000, tensorboard: false}
END

# begin NAME KEYS...: in the background; its process in $pid
begin() {
    local name=$1
    shift
    env --default-signal=INT "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" "$@" 2>>"$dir/$name.log" &
    pid=$!
}
# until_there WHAT PATTERN FILE
until_there() {
    until_so $pid grep -qs -- "$2" "$3" || fail "$1: '$2' did not come: $(tail -3 "$dir/$1.log")"
}
# saved NAME: stopped with a checkpoint of its last step, and says so
saved() {
    local steps
    steps=$(grep -c '"loss"' "$dir/$1/metrics.jsonl")
    [ -d "$dir/$1/checkpoints/$(printf step-%08d "$steps")" ] || fail "$1: no checkpoint of step $steps: $(ls "$dir/$1/checkpoints")"
    grep -q "stopped after step $steps" "$dir/$1.log" || fail "$1: does not say that it stopped: $(tail -3 "$dir/$1.log")"
    "$tutti" checkpoint verify "$dir/$1" >"$dir/out" 2>&1 || fail "$1: a broken checkpoint: $(cat "$dir/out")"
}

# ---- every signal, one rank and several ----
for ranks in 1 3; do
    for signal in INT TERM HUP USR1 USR2 XCPU; do
        name=$signal$ranks
        begin "$name" -n $ranks
        until_there "$name" '"step":5,' "$dir/$name/metrics.jsonl"
        kill -$signal $pid
        sleep 0.02
        kill -$signal $pid 2>/dev/null # the same request
        wait $pid
        status=$?
        [ $status = 0 ] || fail "$name: status $status"
        grep -q "SIG$signal: finishing this step" "$dir/$name.log" || fail "$name: does not say what came: $(tail -3 "$dir/$name.log")"
        saved "$name"
    done
done

# ---- a run is asked where it is, and goes on ----
begin where -n 3
until_there where '"step":5,' "$dir/where/metrics.jsonl"
kill -QUIT $pid
until_there where "SIGQUIT: the run goes on; stacks of all threads are in" "$dir/where.log"
grep -q "^3 ranks in [123] place" "$dir/where/stacks.txt" || fail "where: no groups: $(cat "$dir/where/stacks.txt")"
for rank in 0 1 2; do
    grep -q "^rank $rank: step [0-9]*, .*; " "$dir/where/stacks-rank0.txt" || fail "where: rank $rank does not say what it is in"
    grep -A60 "^thread .* of rank $rank: " "$dir/where/stacks-rank0.txt" | grep -q "^    trainer_rank" || fail "where: no stack of rank $rank"
done
# It has read the signal a moment ago: on a busy machine it does not sleep yet.
grep -qE "^thread .* 'signals': (sleeps|runs)" "$dir/where/stacks-rank0.txt" || fail "where: no other threads"
rm "$dir/where/stacks.txt"
before=$(grep -c '"loss"' "$dir/where/metrics.jsonl")
until_there where "\"step\":$((before + 3))," "$dir/where/metrics.jsonl"
kill -TERM $pid
wait $pid || fail "where: status $?"
saved where

# ---- CPU seconds that are used up: the kernel repeats the signal every second, then kills ----
(ulimit -S -t 1 && exec "$tutti" train "$dir/tiny.yaml" run.dir="$dir/cpu" 2>"$dir/cpu.log")
[ $? = 0 ] || fail "cpu: status is not 0: $(tail -3 "$dir/cpu.log")"
saved cpu

# ---- nohup ----
(trap '' HUP && exec "$tutti" train "$dir/tiny.yaml" run.dir="$dir/nohup" 2>"$dir/nohup.log") &
pid=$!
until_there nohup '"step":5,' "$dir/nohup/metrics.jsonl"
kill -HUP $pid
before=$(grep -c '"loss"' "$dir/nohup/metrics.jsonl")
until_there nohup "\"step\":$((before + 50))," "$dir/nohup/metrics.jsonl"
kill -USR1 $pid
wait $pid || fail "nohup: status $?"
saved nohup
grep -q SIGHUP "$dir/nohup.log" && fail "nohup: heard of SIGHUP"

# ---- nohup, and a library that takes the signal for itself while it is loaded, as UCX does ----
cat >"$dir/takes.c" <<END
#include <signal.h>
static void heard(int number) { (void)number; }
__attribute__((constructor)) static void take(void) { signal(SIGHUP, heard); }
END
${CC:-cc} -shared -fPIC -o "$dir/takes.so" "$dir/takes.c" || fail "takes: no compiler"
for ignored in 0 1; do
    (
        [ $ignored = 0 ] || trap '' HUP
        export ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" LD_PRELOAD=$dir/takes.so
        exec "$tutti" train "$dir/tiny.yaml" run.dir="$dir/takes$ignored" 2>"$dir/takes$ignored.log"
    ) &
    pid=$!
    until_there takes$ignored '"step":5,' "$dir/takes$ignored/metrics.jsonl"
    kill -HUP $pid
    if [ $ignored = 1 ]; then
        before=$(grep -c '"loss"' "$dir/takes1/metrics.jsonl")
        until_there takes1 "\"step\":$((before + 50))," "$dir/takes1/metrics.jsonl"
        kill -USR1 $pid
    fi
    wait $pid || fail "takes$ignored: status $?"
    saved takes$ignored
    [ "$(grep -c SIGHUP "$dir/takes$ignored.log")" = $((1 - ignored)) ] || fail "takes$ignored: $(cat "$dir/takes$ignored.log")"
done

# ---- nobody reads stderr: the run goes on to its end ----
"$tutti" train "$dir/tiny.yaml" run.dir="$dir/head" run.steps=200 run.log_every=1 2> >(head -2 >"$dir/head.out")
status=$?
[ $status = 0 ] || fail "head: status $status"
[ -d "$dir/head/checkpoints/step-00000200" ] || fail "head: no checkpoint of the last step"
[ "$(grep -c '"loss"' "$dir/head/metrics.jsonl")" = 200 ] || fail "head: $(grep -c '"loss"' "$dir/head/metrics.jsonl") lines of metrics"
# Closed from the beginning: nothing that is opened may take the number of stderr and get its lines.
for which in all err; do
    name=closed-$which
    if [ $which = all ]; then
        "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" run.log_every=1 <&- >&- 2>&- &
    else
        "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" run.log_every=1 2>&- &
    fi
    pid=$!
    until_there head '"step":200,' "$dir/$name/metrics.jsonl"
    kill -USR1 $pid
    wait $pid || fail "$name: status $?"
    [ -d "$dir/$name/checkpoints/$(printf step-%08d "$(grep -c '"loss"' "$dir/$name/metrics.jsonl")")" ] || fail "$name: nothing saved"
    "$tutti" checkpoint verify "$dir/$name" >"$dir/out" 2>&1 || fail "$name: a broken checkpoint: $(cat "$dir/out")"
    head -90 "$dir/$name/metrics.jsonl" | cut -d, -f1-3 >"$dir/out" # while the learning rate warms up
    head -90 "$dir/head/metrics.jsonl" | cut -d, -f1-3 | cmp - "$dir/out" || fail "$name: other metrics"
    grep -rl "tok/s" "$dir/$name" && fail "$name: progress lines in files of the run"
done

# ---- before the first step: in the middle of tokenizing ----
yes "The quick brown fox jumps over the lazy dogs, 1234567 of them, and they sleep." | head -c 60000000 >"$dir/long.txt"
for ranks in 1 3; do
    rm -rf "$dir/cache2"
    begin early$ranks -n $ranks data.tokenizer="$root/tests/data/fixtures/gpt2.json" data.train="[$dir/long.txt]" data.cache_dir="$dir/cache2"
    until_so $pid compgen -G "$dir/cache2/*.tmp" >/dev/null
    kill -TERM $pid
    wait $pid
    status=$?
    [ $status = 143 ] || fail "early, $ranks ranks: status $status: $(cat "$dir/early$ranks.log")"
    [ -z "$(find "$dir/cache2" -type f ! -name '*.tok.work')" ] || fail "early, $ranks ranks: left $(ls "$dir/cache2")"
    grep -q "SIGTERM" "$dir/early$ranks.log" && grep -q "stopped while texts were tokenized" "$dir/early$ranks.log" ||
        fail "early, $ranks ranks: says $(cat "$dir/early$ranks.log")"
    grep -qi "rank.*gone\|BUG" "$dir/early$ranks.log" && fail "early, $ranks ranks: blames somebody: $(cat "$dir/early$ranks.log")"
done

# ---- in the middle of a long validation: of a part nothing is said ----
for ranks in 1 3; do
    begin valid$ranks -n $ranks data.valid="[$dir/text.txt, $dir/long.txt]" run.eval_every=20 run.eval_batches=0
    until_there valid$ranks '"step":20,' "$dir/valid$ranks/metrics.jsonl"
    sleep 0.2
    kill -USR1 $pid
    wait $pid || fail "valid, $ranks ranks: status $?"
    saved valid$ranks
    grep -q valid_loss "$dir/valid$ranks/metrics.jsonl" && fail "valid, $ranks ranks: a figure of a part"
done

passed
