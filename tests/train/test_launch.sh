#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long threads
# tutti launch: which ends are followed by another start, how often, after which pause; signals go on to the job; a quiet job is
# killed; a run that is killed goes on from its memory to the bits of a run that nobody disturbed.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
launch() { "$tutti" launch --pause 0.01 "$@" >"$dir/out" 2>"$dir/err"; }
ends() { # STATUS STARTS WHAT...: how a job that counts its starts ends
    local status=$1 starts=$2
    shift 2
    rm -f "$dir/starts"
    launch "$@"
    local got=$?
    [ $got = "$status" ] || fail "$*: status $got, wanted $status: $(cat "$dir/err")"
    [ "$(wc -l <"$dir/starts")" = "$starts" ] || fail "$*: $(wc -l <"$dir/starts") starts, wanted $starts: $(cat "$dir/err")"
}
count="echo x >>$dir/starts;"
ends 0 1 -- bash -c "$count exit 0"
ends 2 1 -- bash -c "$count exit 2"
ends 1 3 --restarts 2 -- bash -c "$count exit 1"
grep -q "ended with status 1 .*restart 2, 2 of 2" "$dir/err" || fail "no cause: $(cat "$dir/err")"
grep -q "start 3 without a new step, the last" "$dir/err" || fail "it gives up and does not say so: $(cat "$dir/err")"
ends 1 2 --restarts 1 -- bash -c "$count"' kill -9 $$'
grep -q "the job was killed by signal 9 (Killed)" "$dir/err" || fail "the signal is not named: $(cat "$dir/err")"
ends 1 1 --restarts 0 -- bash -c "$count exit 137"
grep -q "status 137 (Killed)" "$dir/err" || fail "the signal behind a status is not named: $(cat "$dir/err")"
ends 0 3 --restarts 5 -- bash -c "$count"' [ $(wc -l <'"$dir/starts"') = 3 ]'
launch -- "$dir/none"
[ $? = 127 ] || fail "a command that is not there"
launch --restarts -1 -- true
[ $? = 2 ] || fail "--restarts -1"

# A program whose name and words are those of a run, and that dies after one step each time.
cat >"$dir/tutti-fake" <<'SH'
#!/bin/bash
# train CONFIG run.dir=DIR MOST
run=${3#run.dir=}
mkdir -p "$run"
echo x >>"$run/../starts"
step=$(($(wc -l <"$run/metrics.jsonl" 2>/dev/null || echo 0) + 1))
[ "${FAKE:-}" != stuck ] || step=0
[ $step = 0 ] || echo "{\"step\":$step}" >>"$run/metrics.jsonl"
[ "${FAKE:-}" != quiet ] || { setsid sleep 600 & echo $! >"$run/apart"; wait; }
[ "${FAKE:-}" != fails ] || { trap 'exit 1' TERM; touch "$run/ready"; while :; do sleep 0.1; done; }
[ "${FAKE:-}" != saves ] || { trap 'echo "{\"finished\":false}" >"$run/ends.jsonl"; exit 0' TERM; touch "$run/ready"; while :; do sleep 0.1; done; }
[ $step -lt 6 ] && [ "${FAKE:-}" != stuck ] || { [ "${FAKE:-}" = stuck ] || exit 0; }
exit 1
SH
chmod +x "$dir/tutti-fake"
echo "run: {steps: 6}" >"$dir/c.yaml"
ends 0 6 --restarts 1 -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/steps"
grep -q "at step 5; .*restart 5, 1 of 1 without" "$dir/err" || fail "progress does not reset the count: $(cat "$dir/err")"
FAKE=stuck ends 1 3 --restarts 2 -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/stuck"
for file in metrics ends; do # what cannot be read is told, once, and is not taken for what is not there
    mkdir -p "$dir/unread-$file/$file.jsonl"
    FAKE=stuck ends 1 1 --restarts 0 -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/unread-$file"
    grep -q "what the run has done is not known: .*$file.jsonl" "$dir/err" || fail "$file.jsonl cannot be read: $(cat "$dir/err")"
done
FAKE=quiet ends 1 1 --restarts 0 --quiet 5 -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/quiet"
grep -q "no new step after step 1 for 5 s: the job is killed" "$dir/err" || fail "quiet: $(cat "$dir/err")"
! grep -qs '^[^)]*) [^Z]' "/proc/$(cat "$dir/quiet/apart")/stat" || fail "a process in a group and session of its own outlived the quiet job"
FAKE=fails "$tutti" launch -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/failed" >"$dir/out" 2>"$dir/err" &
launcher=$!
until_so $launcher test -e "$dir/failed/ready"
kill -TERM $launcher
wait $launcher
status=$?
[ $status = 1 ] || fail "failed after a signal: status $status: $(cat "$dir/err")"
FAKE=saves "$tutti" launch -- "$dir/tutti-fake" train "$dir/c.yaml" "run.dir=$dir/asked" >"$dir/out" 2>"$dir/err" &
launcher=$!
until_so $launcher test -e "$dir/asked/ready"
kill -TERM $launcher
wait $launcher
status=$?
[ $status = 75 ] || fail "stopped by a signal before its end: status $status: $(cat "$dir/err")"

# A real run.
foxes 200 >"$dir/text.txt"
mkdir "$dir/memory"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
parallel: {dp_shard: 4, zero: 1}
comm: {ranks_per_host: 1}
checkpoint: {every: 0, memory_every: 1, memory_dir: $dir/memory}
run: {threads: 1, steps: 120, tensorboard: false, log_every: 1000}
YAML
# One that makes no step in time says where it is before it is killed: in five seconds it comes to its first step, and not to its end.
launch --restarts 0 --quiet 5 -- "$tutti" train "$dir/tiny.yaml" -n 2 run.dir="$dir/long" parallel.dp_shard=2 checkpoint.memory_every=0 \
    model.hidden=256 model.ffn=1024 model.layers=8 model.seq_len=512 batch.global=4096
grep -q "^2 ranks in [12] place" "$dir/long/stacks.txt" || fail "a quiet job does not say where it is: $(cat "$dir/err")"

"$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/ref" checkpoint.memory_every=0 >"$dir/log" 2>&1 || fail "reference: $(tail -3 "$dir/log")"
"$tutti" launch --pause 0.01 --restarts 3 -- "$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/run" >"$dir/log" 2>&1 &
launcher=$!
until_so $launcher grep -qs '"step":5,' "$dir/run/metrics.jsonl"
# shellcheck disable=SC2046
kill -9 $(cat /proc/$launcher/task/*/children)
wait $launcher || fail "the run that was killed: $(tail -5 "$dir/log")"
if grep -q "launch: the job was killed by signal 9" "$dir/log"; then # it may have been done by then
    grep -q "resumed from $dir/memory/.*/step-[0-9]*: [1-9][0-9]* steps done" "$dir/log" || fail "not from memory: $(cat "$dir/log")"
fi
for w in 0 1 2 3; do
    cmp "$dir/ref/checkpoints/step-00000120/boxes-0000$w.safetensors" "$dir/run/checkpoints/step-00000120/boxes-0000$w.safetensors" ||
        fail "other bits than the undisturbed run's"
done
[ -z "$(ls "$dir/memory")" ] || fail "memory is not given back: $(ls -R "$dir/memory")"
passed
