#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Checkpoints know no layout: a run that changes its layout at every stop (data, zero, tensor, sequence, context, pipeline; more
# ranks and fewer) ends with the weights and moments of one rank that never stopped, to rounding; and what one layout saves is, right
# after loading by another, saved again bit for bit.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 5, hidden: 36, heads: 6, kv_heads: 3, ffn: 50, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 6, micro: 1}
precision: {recipe: fp32}
optimizer: {lr: 1.0e-3, schedule: {name: constant, warmup_steps: 2}}
run: {threads: 1, tensorboard: false, eval_every: 0}
END

# train NAME STEPS RANKS KEYS...
train() {
    local name=$1 steps=$2 ranks=$3
    shift 3
    "$tutti" train "$dir/tiny.yaml" -n "$ranks" run.dir="$dir/$name" run.steps="$steps" "$@" >"$dir/log" 2>&1 ||
        fail "$name, $steps steps, $ranks ranks $*: $(tail -3 "$dir/log")"
}

# The softmax does not feel a bias of the keys: its gradient is 0 but for rounding, of which Adam makes whole steps.
same() { # A B TOLERANCE WHAT
    "$tutti" checkpoint diff "$1" "$2" --tolerance "$3" >"$dir/diff" 2>&1
    [ $? -le 1 ] || fail "$4: $(head -5 "$dir/diff")"
    grep '^[a-z]*/' "$dir/diff" | grep -v 'attn\.k\.bias' >"$dir/differ" && fail "$4: $(head -5 "$dir/differ")"
}

layouts=(
    "1"
    "2 parallel.tp=2"
    "4 parallel.dp_shard=2 parallel.zero=3 parallel.tp=2 parallel.sequence_parallel=true"
    "3 parallel.pp=3"
    "4 parallel.pp=2 parallel.schedule=zbv parallel.zero=2"
    "6 parallel.dp_shard=3 parallel.zero=1 parallel.pp=2"
    "3 parallel.tp=3"
    "4 parallel.cp=4 parallel.cp_algorithm=two_level parallel.zero=3"
    "6 parallel.dp_shard=3 parallel.cp=2 parallel.cp_algorithm=all_to_all parallel.zero=1"
    "8 parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3 parallel.tp=2"
    "2 parallel.pp=2 parallel.schedule=dualpipe"
    "8 parallel.pp=2 parallel.tp=2 parallel.zero=3"
)
for family in llama gpt2; do
    extra=(model.family=$family)
    [ $family = gpt2 ] && extra+=(model.kv_heads=6 model.tie_embeddings=true)
    want=$family-want wander=$family-wander
    train $want $((2 * ${#layouts[@]})) 1 "${extra[@]}"
    steps=0
    for layout in "${layouts[@]}"; do
        steps=$((steps + 2))
        read -r ranks keys <<<"$layout"
        # shellcheck disable=SC2086
        train $wander $steps "$ranks" "${extra[@]}" $keys
    done
    same "$dir/$want" "$dir/$wander" 1e-4 "$family: after ${#layouts[@]} layouts"
done

# One more step of learning rate 0 in another layout changes nothing at all but the moments.
train again 2 4 parallel.tp=2 parallel.zero=3
cp -r "$dir/again" "$dir/other"
train other 3 6 parallel.pp=3 parallel.zero=3 optimizer.lr=0 optimizer.schedule.min_lr=0
"$tutti" checkpoint diff "$dir/again" "$dir/other" --tolerance 0 >"$dir/diff" 2>&1
grep -q "master" "$dir/diff" && fail "weights changed by passing through another layout: $(grep master "$dir/diff" | head -3)"

passed
