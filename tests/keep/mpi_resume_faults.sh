#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# A process that does not see the newest checkpoint, as behind a network file system: rank 0 decides, the rank is named, nobody
# trains, nothing is published; when it sees it, all go on from there (test_resume.c). What rank 0 alone refuses is refused by all.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 6, micro: 1}
optimizer: {schedule: {name: constant}}
comm: {timeout_s: 1000} # longer than ranks() lets them wait: what is found only then is not found
checkpoint: {every: 4, keep: 0}
run: {dir: $dir/run, threads: 1, steps: 8, tensorboard: false}
YAML
files() { (cd "$dir/run" && find . -type f ! -name lock ! -name starts.jsonl ! -name ends.jsonl ! -name 'flight*' -exec cksum {} + | sort); }

for keys in "parallel.dp_replicate=3" "parallel.zero=1"; do
    rm -rf "$dir/run"
    # shellcheck disable=SC2086
    ranks 3 "$tutti" train "$dir/tiny.yaml" $keys >"$dir/log" 2>&1 || fail "$keys: the beginning: $(tail -3 "$dir/log")"
    before=$(files)
    for rank in 1 2; do
        # shellcheck disable=SC2086
        ranks 3 "$programs/test_resume" $rank "$dir/tiny.yaml" $keys run.steps=12 >"$dir/log" 2>&1
        status=$?
        [ $status = 1 ] || [ $status = 2 ] || fail "$keys, rank $rank: status $status: $(tail -5 "$dir/log")"
        grep -q "rank $rank: cannot resume: .*step-00000008: .*; rank 0 goes on from step 8, publication 2" "$dir/log" ||
            fail "$keys, rank $rank is not named: $(tail -5 "$dir/log")"
        [ "$(files)" = "$before" ] || fail "$keys, rank $rank: the folder changed"
    done
    # shellcheck disable=SC2086
    ranks 3 "$programs/test_resume" 0 "$dir/tiny.yaml" $keys run.steps=12 >"$dir/log" 2>&1 && fail "$keys: went on from an older one"
    grep -q "step-00000008.*checkpoint.resume=step-00000004" "$dir/log" ||
        fail "$keys: rank 0: $(tail -5 "$dir/log")"
    [ "$(files)" = "$before" ] || fail "$keys, rank 0: the folder changed"
    # Rank 0 alone compares the config with the checkpoint's: what it refuses ends all of them, and at once.
    # shellcheck disable=SC2086
    ranks 3 "$tutti" train "$dir/tiny.yaml" $keys run.steps=12 run.seed=99 >"$dir/log" 2>&1 && fail "$keys: went on with another seed"
    [ $? != 124 ] || fail "$keys, another seed: they wait for each other"
    grep -q "run.seed" "$dir/log" || fail "$keys, another seed: $(tail -5 "$dir/log")"
    [ "$(files)" = "$before" ] || fail "$keys, another seed: the folder changed"
    # shellcheck disable=SC2086
    ranks 3 "$tutti" train "$dir/tiny.yaml" $keys run.steps=12 >"$dir/log" 2>&1 || fail "$keys: going on: $(tail -3 "$dir/log")"
    grep -q "resumed from .*step-00000008: 8 steps done" "$dir/log" || fail "$keys: not from step 8: $(cat "$dir/log")"
done
passed
