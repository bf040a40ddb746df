#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long threads addresses
# What evaluations decide: the best checkpoint is kept beside the newest whatever checkpoint.keep says, a run that overfits ends after so
# many evaluations without a better one, and goes on to the same end from a checkpoint in its middle, in other layouts too; samples are
# written at each evaluation; none of it changes a number of training. At the end the mean of the newest checkpoints is there.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
for i in $(seq 60); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs."; done >text.txt
for i in $(seq 40); do echo "The $((i * 37 % 91)) lazy foxes sleep over $i brown dogs, quick."; done >other.txt
cat >tiny.yaml <<END
model: {layers: 2, hidden: 32, heads: 4, ffn: 48, seq_len: 24}
data: {train: [text.txt], valid: [other.txt], cache_dir: cache}
batch: {global: 8, micro: 4}
precision: {recipe: fp32}
optimizer: {lr: 0.02, schedule: {name: constant, warmup_steps: 0}}
run: {threads: 1, tensorboard: false, steps: 200, eval_every: 5, eval_batches: 2, sample_tokens: 8, sample_temperature: 0}
checkpoint: {every: 20, keep: 2}
END
train() { # RUN KEYS...
    local run=$1
    shift
    "$tutti" train tiny.yaml run.dir="$run" "$@" >log 2>&1 || fail "$run: $(tail -3 log)"
}
lines() { sed -nE 's/.*"step":([0-9]+),"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }
valid() { sed -nE 's/.*"step":([0-9]+),"valid_loss":([^,]*),.*/\1 \2/p' "$1/metrics.jsonl"; }
lowest() { valid "$1" | sort -g -k2,2 -s | head -1 | cut -d' ' -f1; }
named() { readlink "$1/checkpoints/$2" | sed 's/step-0*//'; }

best="checkpoint.best=eval_loss run.stop_early=4"
# shellcheck disable=SC2086
train one $best 'run.samples=[The quick,1]' checkpoint.average=2
at=$(lowest one) end=$(valid one | tail -1 | cut -d' ' -f1)
[ "$end" -lt 200 ] && [ "$end" = $((at + 20)) ] || fail "ends after $end, the best is $at: $(valid one)"
grep -q "stopped early after step $end of 200" log && grep -q "4 evaluations in a row" log || fail "does not say why: $(tail -3 log)"
[ "$(named one best)" = "$at" ] && [ "$(named one latest)" = "$end" ] || fail "best is $(named one best), latest $(named one latest)"
[ "$(find one/checkpoints -maxdepth 1 -name 'step-*' | wc -l)" = 3 ] || fail "kept: $(ls one/checkpoints)"
[ "$(grep -c '"best":true' one/metrics.jsonl)" -ge 2 ] && grep -q "\"step\":$at,.*\"best\":true" one/metrics.jsonl || fail "no line is the best"
grep -q '"finished":true,"early":true' one/ends.jsonl || fail "$(cat one/ends.jsonl)"
[ "$(wc -l <one/samples.jsonl)" = $((2 * $(valid one | wc -l))) ] || fail "$(wc -l <one/samples.jsonl) samples of $(valid one | wc -l) evaluations"
said=$("$tutti" generate one/checkpoints/best --prompt 'The quick' --max-tokens 8 --temperature 0 2>/dev/null)
grep -q "\"step\":$at,\"prompt\":\"The quick\",\"text\":\"${said#The quick}\"" one/samples.jsonl || fail "best says $said: $(grep "\"step\":$at," one/samples.jsonl)"
"$tutti" checkpoint average one --last 2 --out mean >log 2>&1 && "$tutti" checkpoint diff mean one/average >log 2>&1 || fail "the mean is another: $(tail -2 log)"
# shellcheck disable=SC2086
train one $best checkpoint.average=2
grep -q "nothing left to do: evaluations ended the run after step $end" log || fail "goes on: $(tail -2 log)"

# nothing of it changes training
train plain run.steps="$end" run.eval_every=0 'data.valid=[]'
[ "$(lines plain)" = "$(lines one)" ] || fail "training differs: $(diff <(lines plain) <(lines one) | head -4)"

# from its middle, between two evaluations and after the best, the same end
# shellcheck disable=SC2086
train all $best checkpoint.every=1 checkpoint.keep=0
[ "$(named all best)" = "$at" ] && [ "$(named all latest)" = "$end" ] || fail "all: best is $(named all best), latest $(named all latest)"
for keys in "$((at + 7)) -n 1" "$((at + 12)) -n 2 parallel.zero=3" "$((at - 1)) -n 4 parallel.pp=2 parallel.tp=2"; do
    rm -rf half && cp -r all half
    # shellcheck disable=SC2086
    train half ${keys#* } $best checkpoint.keep=0 checkpoint.resume="step-$(printf %08d "${keys%% *}")"
    [ "$(named half best)" = "$at" ] && grep -q "stopped early after step $end of 200" log || fail "$keys: best is $(named half best): $(tail -1 log)"
done

# an evaluation that is due where the run goes on, and was not made, comes before the next step
rm -rf half && cp -r all half
# shellcheck disable=SC2086
train half $best checkpoint.keep=0 checkpoint.resume="step-$(printf %08d $((at + 7)))" run.eval_every=$((at + 7)) run.steps=$((at + 8))
valid half | grep -q "^$((at + 7)) " || fail "the evaluation after step $((at + 7)) was not made up for: $(valid half)"

# from the best one by its name; where it is gone, that is said
rm -rf half && cp -r all half
# shellcheck disable=SC2086
train half $best checkpoint.keep=0 checkpoint.resume=best run.steps=$((at + 1))
grep -q "resumed from half/checkpoints/step-0*$at:" log || fail "not from the best: $(grep resumed log)"
rm -rf half "all/checkpoints/step-$(printf %08d "$at")"
# shellcheck disable=SC2086
train all $best checkpoint.keep=0 checkpoint.resume="step-$(printf %08d $((at + 6)))"
grep -q "of step $at, is not in" log && [ "$(named all best)" -gt "$at" ] || fail "the best one is gone: $(named all best): $(grep best log)"

refused() { # WORDS KEYS...
    local words=$1
    shift
    "$tutti" train tiny.yaml run.dir=no "$@" >out 2>&1
    [ $? = 2 ] && grep -qF -- "$words" out || fail "does not say '$words': $*: $(tail -1 out)"
}
refused "checkpoint.best: goes by evaluations, and run.eval_every: 0" checkpoint.best=eval_loss run.eval_every=0
refused "run.stop_early: goes by evaluations, and data.valid names no text" run.stop_early=2 'data.valid=[]'
refused "run.samples: goes by evaluations" 'run.samples=[x]' run.eval_every=0
refused "run.samples[0].prompt: is required" 'run.samples=[{prompt: null}]'
refused "checkpoint.average: one checkpoint" checkpoint.average=1
refused "choose checkpoint.keep: 5" checkpoint.average=5
refused "checkpoint.best: ranks of an asynchronous server" checkpoint.best=eval_loss -n 2 parallel.servers=1 parallel.server_mode=async
passed
