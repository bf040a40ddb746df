#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long addresses
# Training with state on disk: a model whose state exceeds memory.limit is trained within it (held by ulimit, the most memory measured),
# with the numbers of a run that has all in memory; a folder that is missing, or too small, is refused at the start; whoever kills the
# run leaves nothing in the folder, and it goes on from its checkpoint.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

foxes 100 >"$dir/text.txt"
mkdir "$dir/disk"
# 7.6 million parameters: 18 bytes each are 131 MiB; 29 of them are gradients, which stay.
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 8, hidden: 256, heads: 4, ffn: 880, seq_len: 16}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 2, micro: 2}
optimizer: {schedule: {name: constant, warmup_steps: 2}}
checkpoint: {every: 3, keep: 0}
run: {threads: 1, tensorboard: false, steps: 5}
YAML
train() { "$tutti" train "$dir/tiny.yaml" "$@" >"$dir/log" 2>&1; }
away=("memory.offload=[optimizer,master,activations,params]" "memory.offload_to=$dir/disk")

train run.dir="$dir/plain" || fail "without: $(tail -3 "$dir/log")"
train run.dir="$dir/refused" memory.limit=90MiB && fail "90 MiB are enough without offload"
grep -q "memory.limit: 90.0 MiB a rank.*more.*memory.offload: \[optimizer, master\] to a folder" "$dir/log" || fail "says $(tail -1 "$dir/log")"
train run.dir="$dir/refused" memory.limit=50MiB "${away[@]:1}" "memory.offload=[optimizer,master,activations]" && fail "50 MiB are enough with weights"

# What Linux gives the process in all (ulimit -d: memory of its own, stacks of threads too) is less than its state.
# A sanitizer takes more than the model does.
state_kib=$((131 * 1024)) limited=1
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$(dirname "$tutti")/CMakeCache.txt" && limited=0
(
    [ $limited = 0 ] || ulimit -s 1024 -d $((90 * 1024))
    exec "$tutti" train "$dir/tiny.yaml" run.dir="$dir/away" memory.limit=50MiB "${away[@]}" >"$dir/log" 2>&1
) &
pid=$!
most=0
while kill -0 $pid 2>/dev/null; do
    now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null)
    [ "${now:-0}" -gt "$most" ] && most=$now
    sleep 0.05
done
wait $pid || fail "with state on disk: $(tail -3 "$dir/log")"
[ "$most" -gt 0 ] && { [ $limited = 0 ] || [ "$most" -lt $state_kib ]; } || fail "the most memory was $most KiB, the state is $state_kib"
echo "state $state_kib KiB, most memory $most KiB"
grep -q "^offload: activations, optimizer, master, params, .* MiB in $dir/disk" "$dir/log" || fail "does not say where: $(grep offload "$dir/log")"
for s in 3 5; do
    for f in "$dir/plain/checkpoints/step-0000000$s"/*.safetensors; do
        cmp -s "$f" "$dir/away/checkpoints/step-0000000$s/$(basename "$f")" || fail "step $s: $(basename "$f") differs"
    done
done
losses() { sed 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/' "$1/metrics.jsonl"; }
[ "$(losses "$dir/plain")" = "$(losses "$dir/away")" ] || fail "other losses"

# Killed in the middle, and started again; a checkpoint of a run without offload is gone on with, too.
rm -rf "$dir/away/checkpoints/step-00000005"
"$tutti" train "$dir/tiny.yaml" run.dir="$dir/killed" run.steps=4000 "${away[@]}" >"$dir/log" 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -e "$dir/killed/checkpoints/step-00000003" ]; do sleep 0.1; done # however slow it is
kill -9 $pid
wait $pid 2>/dev/null
[ -z "$(ls -A "$dir/disk")" ] || fail "left behind: $(ls -A "$dir/disk")"
rm -rf "$dir"/killed/checkpoints/step-0000000[4-9] "$dir"/killed/checkpoints/step-000000[1-9]*
cp -r "$dir/plain" "$dir/other"
rm -rf "$dir/other/checkpoints/step-00000005"
for run in killed other; do
    train run.dir="$dir/$run" checkpoint.resume=step-00000003 "${away[@]}" || fail "$run goes on: $(tail -3 "$dir/log")"
    for f in "$dir/plain/checkpoints/step-00000005"/*.safetensors; do
        cmp -s "$f" "$dir/$run/checkpoints/step-00000005/$(basename "$f")" || fail "$run: $(basename "$f") differs"
    done
done

# What a step moves is told: all that waits there and back, of all ranks. The sum does not know how they share it.
disk=$("$tutti" plan "$dir/tiny.yaml" "${away[@]:1}" "memory.offload=[optimizer,master]" --json | tr -d ' \n' | grep -oE '"disk":[0-9]+' | head -1 | cut -d: -f2)
for n in 1 2; do
    train -n $n run.dir="$dir/moved$n" run.steps=2 checkpoint.every=0 parallel.zero=$((n - 1)) "${away[@]:1}" "memory.offload=[optimizer,master]" ||
        fail "$n ranks: $(tail -3 "$dir/log")"
    [ "${disk:-0}" -gt 0 ] && [ "$(grep -c "\"offload_put_bytes\":$disk,\"offload_get_bytes\":$disk,\"offload_wait_s\":[0-9]" "$dir/moved$n/metrics.jsonl")" = 2 ] ||
        fail "$n ranks, $disk bytes on disk: $(cat "$dir/moved$n/metrics.jsonl")"
    grep -q "step 2/2 .* disk .*, waited .* s  ETA" "$dir/log" || fail "the progress line is $(grep 'step 2/2' "$dir/log")"
done
grep -q offload "$dir/plain/metrics.jsonl" && fail "a run in memory tells of a disk"

# Somebody writes to the file of one rank of two while they train: the step that reads it ends the run on both, by name.
"$tutti" train "$dir/tiny.yaml" -n 2 run.dir="$dir/bad" run.steps=100000 checkpoint.every=0 "${away[@]}" >"$dir/log" 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -s "$dir/bad/metrics.jsonl" ]; do sleep 0.1; done
file=
for f in /proc/$pid/fd/*; do case $(readlink "$f") in "$dir/disk/"*) file=$f ;; esac; done
[ -n "$file" ] || fail "the run has no file in the folder"
# What is written between a read and the step's own write is gone with it: many times, and over many steps.
steps() { grep -c '"loss"' "$dir/bad/metrics.jsonl"; }
until=$(($(steps) + 30))
for ((i = 0; i < 100 || $(steps) < until; i++)); do
    kill -0 $pid 2>/dev/null || break
    dd if=/dev/urandom of="$file" bs=65536 seek=$((i % 40)) count=1 conv=notrunc,nocreat 2>/dev/null
    sleep 0.05
done
kill -0 $pid 2>/dev/null && { fail "a run goes on with other bytes than it wrote: $i times, until step $(steps)"; kill $pid; }
wait $pid
status=$?
[ $status = 1 ] || fail "other bytes: status $status"
grep -q "memory.offload_to: $dir/disk: the 4096 bytes at .* are not those that were written" "$dir/log" || fail "other bytes: $(tail -3 "$dir/log")"
[ ! -e "$dir/bad/checkpoints/latest" ] || fail "saved what was computed from other bytes"

# What cannot be had.
refused() { # status words arguments
    local status=$1 words=$2
    shift 2
    train run.dir="$dir/no" "$@"
    [ $? = "$status" ] || fail "$*: another status"
    tail -1 "$dir/log" | grep -q "$words" || fail "$* says $(tail -1 "$dir/log")"
}
refused 2 "memory.offload_to: $dir/none: this folder is for what is offloaded; make it" "memory.offload=[optimizer]" "memory.offload_to=$dir/none"
refused 2 "muon cannot be stepped in stretches" "${away[@]}" optimizer.name=muon
refused 2 "the weights are their own master" "${away[@]}" precision.recipe=fp32
refused 2 "params beside comm.param" "${away[@]}" comm.param=int8
refused 2 "params beside optimizer.ema, which reads all of them each step where they are their own master" \
    "memory.offload=[params]" precision.recipe=fp32 optimizer.ema=0.99
refused 2 "are not offloaded beside parallel.servers" -n 2 "memory.offload=[params]" parallel.servers=1
refused 2 "sgd without momentum keeps nothing" "memory.offload=[optimizer]" optimizer.name=sgd optimizer.momentum=0
(
    ulimit -f 20000
    refused 2 "this rank offloads .* in one file; choose another folder, raise the limit (ulimit -f" "${away[@]}"
)

passed
