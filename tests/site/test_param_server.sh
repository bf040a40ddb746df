#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: devices untouchable
# suite: long addresses
# The parameter server through the program: synchronous training ends with the weights of data parallelism, bit for bit where the
# norm plays no part; a run goes from servers to data parallelism and back; asynchronous training learns, keeps to its bound of
# staleness, measures it, stops at a signal and resumes; what does not go together is refused.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
at_end() { kill -9 $(jobs -p) 2>/dev/null; }

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 2, hidden: 36, heads: 6, kv_heads: 3, ffn: 50, seq_len: 24, dropout: 0.1}
data: {train: [$dir/text.txt], valid: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 6, micro: 2}
optimizer: {lr: 2.0e-3, clip: 0, schedule: {name: constant, warmup_steps: 2}}
run: {threads: 1, tensorboard: false, eval_every: 4, eval_batches: 2}
checkpoint: {every: 5}
END

# train NAME STEPS RANKS KEYS...
train() {
    local name=$1 steps=$2 ranks=$3
    shift 3
    "$tutti" train "$dir/tiny.yaml" -n "$ranks" run.dir="$dir/$name" run.steps="$steps" "$@" >"$dir/log" 2>&1 ||
        fail "$name, $steps steps, $ranks ranks $*: $(tail -3 "$dir/log")"
}
same() { # A B WHAT
    "$tutti" checkpoint diff "$dir/$1" "$dir/$2" --tolerance 0 >"$dir/diff" 2>&1 || fail "$3: $(head -3 "$dir/diff")"
    [ "$(grep -o '"valid_loss":[^,]*' "$dir/$1/metrics.jsonl")" = "$(grep -o '"valid_loss":[^,]*' "$dir/$2/metrics.jsonl")" ] ||
        fail "$3: other validation losses"
}

# ---- synchronous ----
for recipe in fp32 bf16; do
    train dp-$recipe 8 3 precision.recipe=$recipe
    train one-$recipe 8 4 precision.recipe=$recipe parallel.servers=1
    train two-$recipe 8 5 precision.recipe=$recipe parallel.servers=2
    same dp-$recipe one-$recipe "$recipe: one server"
    same dp-$recipe two-$recipe "$recipe: two servers"
    train wander-$recipe 2 5 precision.recipe=$recipe parallel.servers=2
    train wander-$recipe 4 3 precision.recipe=$recipe parallel.zero=1
    train wander-$recipe 6 6 precision.recipe=$recipe parallel.servers=3
    train wander-$recipe 8 4 precision.recipe=$recipe parallel.servers=1
    "$tutti" checkpoint diff "$dir/dp-$recipe" "$dir/wander-$recipe" --tolerance 0 >"$dir/diff" 2>&1 ||
        fail "$recipe: from servers to data parallelism and back: $(head -3 "$dir/diff")"
done

# ---- asynchronous ----
for k in 0 1 3; do
    train async-$k 60 5 parallel.servers=2 parallel.server_mode=async parallel.staleness=$k checkpoint.every=20
    # A pull and its push: the others can have pushed at most what lies between k + 1 steps behind and k + 1 ahead.
    max=$(grep -o '"staleness_max":[0-9]*' "$dir/async-$k/metrics.jsonl" | cut -d: -f2 | sort -n | tail -1)
    [ "${max:-99}" -le $((2 * (2 * k + 1))) ] || fail "staleness $k: measured up to ${max:-nothing}"
    lines=$(grep -c '"staleness_mean":[0-9.]*,"staleness_max"' "$dir/async-$k/metrics.jsonl")
    [ "$lines" = 60 ] || fail "staleness $k: measured in $lines of 60 steps"
    grep -q "^step 60/60 .* stale [0-9.]*, at most [0-9]" "$dir/log" || fail "staleness $k: progress does not say it: $(grep ^step "$dir/log" | tail -1)"
    first=$(grep -m1 -o '"loss":[0-9.]*' "$dir/async-$k/metrics.jsonl" | cut -d: -f2)
    last=$(grep -o '"valid_loss":[0-9.]*' "$dir/async-$k/metrics.jsonl" | tail -1 | cut -d: -f2)
    awk "BEGIN {exit !($last < 0.8 * $first)}" || fail "staleness $k: loss from $first to $last only"
done
train async-1 70 4 parallel.servers=1 # the checkpoint of an asynchronous run goes on synchronously

"$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/stop" run.steps=100000 run.eval_every=0 checkpoint.every=0 parallel.servers=1 \
    parallel.server_mode=async >"$dir/log" 2>&1 &
pid=$!
until_so $! test -s "$dir/stop/metrics.jsonl"
kill -INT $pid
wait $pid || fail "interrupted: status $?: $(tail -3 "$dir/log")"
ls "$dir/stop/checkpoints" | grep -q step- || fail "interrupted: nothing saved"

# ---- refused ----
for keys in "parallel.servers=4" "parallel.servers=1 parallel.tp=3" "parallel.servers=1 parallel.zero=2" "parallel.servers=1 precision.grad=bf16"; do
    # shellcheck disable=SC2086
    "$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/no" $keys >"$dir/log" 2>&1
    [ $? = 2 ] || fail "$keys: not refused: $(tail -1 "$dir/log")"
done

passed
