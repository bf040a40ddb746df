#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The disk is full for one of several ranks: a limit on the size of a file that only the largest rank's boxes exceed. Nobody
# publishes a checkpoint, the rank is named, the status is 1, the checkpoint before is whole, and with room the run goes on.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

foxes 100 >"$dir/text.txt"
# Three layers in two stages: unlike boxes.
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 3, hidden: 64, heads: 4, ffn: 180, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 4, micro: 1}
parallel: {pp: 2}
run: {dir: $dir/run, threads: 1, tensorboard: false}
YAML
train() { "$tutti" train "$dir/tiny.yaml" -n 2 "$@" >"$dir/log" 2>&1; }

train run.steps=2 || fail "the beginning: $(tail -3 "$dir/log")"
saved=$dir/run/checkpoints/step-00000002
mapfile -t sizes < <(stat -c %s "$saved"/boxes-*.safetensors)
[ ${#sizes[@]} = 2 ] || { fail "not two files of boxes: $(ls "$saved")"; exit 1; }
small=${sizes[0]} large=${sizes[1]} rank=1
[ "$small" -lt "$large" ] || { small=${sizes[1]} large=${sizes[0]} rank=0; }
limit=$(((small / 1024 + large / 1024) / 2)) # KiB
[ $((limit * 1024)) -gt "$small" ] && [ $((limit * 1024)) -lt "$large" ] || fail "no limit between $small and $large"

(ulimit -f $limit; train run.steps=4 checkpoint.retries=1 checkpoint.retry_s=0.1)
status=$?
[ $status = 1 ] || fail "status $status: $(tail -3 "$dir/log")"
tail -1 "$dir/log" | grep -q "step 4 was not saved: rank $rank: .*boxes-0000$rank.*File too large.*intact: .*step-00000002" ||
    fail "says $(tail -1 "$dir/log")"
[ ! -e "$dir/run/checkpoints/step-00000004" ] || fail "half a checkpoint was published"
"$tutti" checkpoint verify "$dir/run" >"$dir/out" 2>&1 || fail "the checkpoint before: $(cat "$dir/out")"
# While the last save waits for room, a signal is heard, by all ranks.
rm "$dir/log"
(ulimit -f $limit; exec "$tutti" train "$dir/tiny.yaml" -n 2 run.steps=4 checkpoint.retries=2 checkpoint.retry_s=4000 >"$dir/log" 2>&1) &
pid=$!
until_so $pid grep -qs "the run waits for it" "$dir/log"
kill -TERM $pid
wait $pid
status=$?
[ $status = 143 ] || fail "SIGTERM beside a full disk: status $status: $(tail -2 "$dir/log")"
tail -1 "$dir/log" | grep -q "stopped by SIGTERM while the run waited to save step 4 again, which is not saved: .*File too large" || fail "says $(tail -1 "$dir/log")"
train run.steps=4 || fail "with room: $(tail -3 "$dir/log")"
grep -q "resumed from .*step-00000002" "$dir/log" || fail "does not go on from step 2"
"$tutti" checkpoint verify "$dir/run" >"$dir/out" 2>&1 || fail "the last checkpoint: $(cat "$dir/out")"

passed
