#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# The average of weights (optimizer.ema): keeping it changes no number of a run, whose validation measures the last weights; generate
# --ema and checkpoint export --ema use it, and refuse by name where there is none.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 2, hidden: 32, heads: 2, ffn: 44, seq_len: 32}
data: {train: [$dir/text.txt], valid: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 4}
optimizer: {lr: 0.02, schedule: {name: constant, warmup_steps: 0}}
run: {threads: 1, tensorboard: false, steps: 30, eval_every: 15, eval_batches: 2}
END
train() { # NAME KEYS...
    local name=$1
    shift
    "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" "$@" >"$dir/log" 2>&1 || fail "$name: $(tail -3 "$dir/log")"
}
losses() { grep -oE '"(step|loss|grad_norm|valid_loss)":[^,}]*' "$dir/$1/metrics.jsonl"; }
train with optimizer.ema=0.9
train without
train two -n 2 parallel.zero=1 optimizer.ema=0.9
[ "$(losses with | grep -c valid_loss)" = 2 ] || fail "no validation: $(losses with)"
[ "$(losses with)" = "$(losses without)" ] || fail "an average changes the run: $(diff <(losses with) <(losses without) | head -4)"

said() { "$tutti" generate "$@" --prompt 'The quick' --max-tokens 30 --temperature 0 --dtype f32 --threads 1 2>"$dir/err" || fail "generate $*: $(cat "$dir/err")"; }
exported() { # OUT ARGUMENTS...
    local out=$1
    shift
    "$tutti" checkpoint export "$@" "$dir/$out" --dtype f32 >"$dir/log" 2>&1 || fail "export $*: $(cat "$dir/log")"
}
for run in with two; do
    exported "$run-last" "$dir/$run"
    exported "$run-average" --ema "$dir/$run"
    "$tutti" checkpoint diff "$dir/$run-last" "$dir/$run-average" >"$dir/diff" 2>&1 && fail "$run: the average is the last weights"
    last=$(said "$dir/$run") average=$(said "$dir/$run" --ema)
    [ "$last" != "$average" ] || fail "$run: --ema says what the last weights say: $last"
    [ "$last" = "$(said "$dir/$run-last")" ] || fail "$run: export wrote other weights than generate uses"
    [ "$average" = "$(said "$dir/$run-average")" ] || fail "$run: export --ema wrote other weights than generate --ema uses"
done
exported without-last "$dir/without"
"$tutti" checkpoint diff "$dir/with-last" "$dir/without-last" >"$dir/diff" 2>&1 || fail "an average changes the last weights: $(head -3 "$dir/diff")"

refused() { # ARGUMENTS...
    "$tutti" "$@" >"$dir/out" 2>&1
    [ $? = 2 ] && grep -q "holds no averaged weights: it was not trained with optimizer.ema" "$dir/out" || fail "$*: $(cat "$dir/out")"
}
refused generate "$dir/without" --prompt x --ema
refused generate "$dir/with-last" --prompt x --ema
refused checkpoint export "$dir/without" "$dir/no" --ema
refused checkpoint export "$dir/with-last" "$dir/no" --ema
[ ! -e "$dir/no" ] || fail "a refused export left a folder"
passed
