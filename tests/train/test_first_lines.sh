#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# The first and the last lines of a run, in the words that docs/cluster.md promises, and what ends.jsonl says of each way to end.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
unset "${!SLURM_@}"
train() { # RUN KEYS...
    local run=$1
    shift
    "$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=16 model.heads=2 model.kv_heads=2 model.ffn=32 model.seq_len=16 \
        batch.global=4 batch.micro=1 "data.train=$root/CHANGELOG.md" "data.valid=$root/CHANGELOG.md" run.eval_batches=1 checkpoint.every=0 run.tensorboard=false \
        run.threads=1 "run.dir=$dir/$run" "$@" 2>"$dir/$run.log"
}
has() { grep -qE "$2" "$dir/$1.log" || fail "$1: no line '$2' in: $(cat "$dir/$1.log")"; }
end() { tail -n 1 "$dir/$1/ends.jsonl"; }
say() { end "$1" | grep -qE "$2" || fail "$1: its end does not say $2: $(end "$1")"; }

train one run.steps=3 || fail "one: status $?"
has one '^ranks: 1$'
has one "^hosts: 1, $(hostname) \(rank 0\)$"
has one '^mesh: all axes 1, zero 0$'
has one '^threads: 1 per rank$'
has one '^binding: own, rank 0: [0-9,-]+$'
has one '^transport: none$'
has one '^kernels: (amx|avx|neon|ref)[a-z0-9-]*(, oneDNN [0-9.]+)?$'
has one '^done after step 3 of 3, loss [0-9.]+, validation loss [0-9.]+, [0-9.]+[kM]? tok/s, [0-9a-z. ]+; checkpoint .*/step-00000003$'
say one '"finished":true,"early":false,"first_step":0,"step":3,"steps":3,"signal":"","loss":[0-9.]+,"valid_loss":[0-9.]+,"tokens":192,"tokens_per_s":[0-9.]+,"seconds":[0-9.]+,"checkpoint":".*/step-00000003"}'
train one run.steps=3 || fail "nothing left: status $?"
has one '^nothing left to do: all 3 steps are done'
[ "$(grep -c . "$dir/one/ends.jsonl")" = 2 ] || fail "nothing left to do: no end: $(cat "$dir/one/ends.jsonl")"
say one '"finished":true,"early":false,"first_step":3,"step":3,.*"loss":null,.*"tokens_per_s":0,'

train two -n 2 run.steps=2 parallel.dp_shard=2 parallel.zero=1 || fail "two: status $?"
has two '^ranks: 2$'
has two '^mesh: dp_shard 2, zero 1$'
has two '^binding: shared, ranks 0-1: [0-9,-]+$'
has two '^transport: local, threads of one process$'
grep -qE '"transport":"local","mpi":"","hosts":1,"mesh":"dp_shard 2","zero":1,"binding":"shared","places":\[\{"first":0,"last":1,"host":"[^"]+","cores":"[0-9,-]+","threads":1\}\],"step":0\}' \
    "$dir/two/starts.jsonl" || fail "two: starts.jsonl: $(cat "$dir/two/starts.jsonl")"
train many -n 2 run.steps=1 run.threads=64 || fail "many: status $?"
[ "$(nproc)" -ge 128 ] || has many '^warning: .*: 2 ranks with 128 threads on [0-9]+ cores?.*: they take turns; run.threads=[0-9]+$'

# Stopped by a signal: not finished, and who goes on finishes.
for ranks in 1 2; do
    run=stop$ranks
    train $run -n $ranks run.steps=1000000 &
    until_so $! test -s "$dir/$run/metrics.jsonl"
    kill -USR1 "$(pgrep -P $!)"
    wait $! || fail "$run: status $?"
    has $run '^stopped after step [0-9]+ of 1000000, loss '
    say $run '"finished":false,"early":false,"first_step":0,"step":[0-9]+,"steps":1000000,"signal":"SIGUSR1",'
    done=$(end $run | sed 's/.*"step":\([0-9]*\),.*/\1/')
    train $run -n $ranks run.steps=$((done + 2)) optimizer.schedule.name=constant checkpoint.allow_changes=all || fail "$run goes on: status $?"
    say $run "\"finished\":true,\"early\":false,\"first_step\":$done,\"step\":$((done + 2)),"
done

# What failed has no end; an end that cannot be written is not a success, and the work is saved.
train bad run.steps=50 optimizer.name=sgd optimizer.lr=1e6 optimizer.clip=0 optimizer.schedule.name=constant optimizer.schedule.warmup_steps=0
[ $? = 1 ] || fail "a rate of 1e6 trains: $(tail -3 "$dir/bad.log")"
[ ! -e "$dir/bad/ends.jsonl" ] || fail "a run that failed has an end: $(cat "$dir/bad/ends.jsonl")"
mkdir -p "$dir/deaf/ends.jsonl"
for ranks in 1 2; do
    train deaf -n $ranks run.steps=$((2 * ranks))
    [ $? = 1 ] || fail "deaf: status $?"
    has deaf "step $((2 * ranks)) is saved, but the run cannot say that it has ended"
    [ -e "$dir/deaf/checkpoints/step-0000000$((2 * ranks))" ] || fail "deaf: nothing saved"
done
passed
