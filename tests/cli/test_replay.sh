#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti replay: any step of a run once more, from a checkpoint or from the first weights, with the digits that the run
# wrote; in another layout with digits close to them; nothing in the run's directory changes; steps, runs and layouts
# that cannot be are refused; a run whose record says something else is told so, with status 1.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cat >"$dir/c.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 16}
data: {train: [$root/README.md]}
batch: {global: 4, micro: 1}
parallel: {dp_shard: 2, zero: 3}
precision: {recipe: bf16}
checkpoint: {every: 3, keep: 1}
run: {threads: 1, steps: 7, tensorboard: false, dir: $dir/run}
YAML
"$tutti" train "$dir/c.yaml" -n 2 >"$dir/log" 2>&1 || fail "training: $(tail -3 "$dir/log")"
state() { (cd "$dir/run" && find . -type f -exec sha256sum {} + | sort && find . -printf '%p %T@\n' | sort); }
state >"$dir/before"

"$tutti" replay "$dir/run" >"$dir/out" 2>&1 || fail "which steps: $(cat "$dir/out")"
grep -q "^steps 1 to .* the first weights" "$dir/out" || fail "which steps: $(cat "$dir/out")"
for step in 2 5 7; do
    "$tutti" replay "$dir/run" --step $step >"$dir/out" 2>"$dir/err" || fail "step $step: $(tail -3 "$dir/err" "$dir/out")"
    grep -q "has the same, to the last digit" "$dir/out" || fail "step $step: $(head -9 "$dir/out")"
done
grep -q "embed.token" "$dir/out" || fail "no gradient norms: $(cat "$dir/out")"
# The norms of the parameters are those of the whole.
"$tutti" replay "$dir/run" --step 7 --json 2>/dev/null >"$dir/json" || fail "--json"
awk '/"grad_norm"/ {gsub(/[",]/, ""); n++; if (n == 1) all = $2; else sum += $2 * $2}
     END {r = sqrt(sum) / all; exit !(n > 5 && r > 0.999 && r < 1.001)}' "$dir/json" || fail "norms do not add up: $(cat "$dir/json")"
"$tutti" replay "$dir/run" --step 7 --one-rank >"$dir/out" 2>&1 || fail "in one rank: $(tail -3 "$dir/out")"
grep -qE "same, to the last digit|other by [0-9.]+e-(0[4-9]|[1-9][0-9])" "$dir/out" || fail "in one rank: $(head -12 "$dir/out")"
"$tutti" replay "$dir/run" --step 4 parallel.tp=2 parallel.dp_shard=1 parallel.zero=0 >"$dir/out" 2>&1 || fail "tp: $(tail -3 "$dir/out")"
grep -q "2 ranks" "$dir/out" || fail "tp: $(head -5 "$dir/out")"
state | diff - "$dir/before" >"$dir/diff" || fail "the run's directory changed: $(head -5 "$dir/diff")"
[ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'tutti-replay-*' -newer "$dir/before" -user "$(id -u)" 2>/dev/null | head -1)" ] || fail "a folder was left"

refused() {
    local want=$1 status
    shift
    "$tutti" replay "$@" >"$dir/out" 2>&1
    status=$?
    [ $status = 2 ] || fail "$*: status $status, not 2: $(tail -2 "$dir/out")"
    grep -q -- "$want" "$dir/out" || fail "$*: $(tail -2 "$dir/out")"
}
refused "was not made" "$dir/run" --step 99
refused "no such run" "$dir/nothing" --step 1
refused "config.yaml" "$dir" --step 1
refused "say different things" "$dir/run" --step 1 --one-rank -n 2
cp -r "$dir/run" "$dir/async"
sed -i 's/^\( *\)servers: 0/\1servers: 1/; s/^\( *\)server_mode: .*/\1server_mode: async/' "$dir/async/config.yaml"
refused "asynchronous server" "$dir/async" --step 2

# A batch that the run left out is left out again, and what follows has its digits.
"$tutti" train "$dir/c.yaml" -n 2 run.dir="$dir/skips" "run.skip=[4]" run.steps=6 >"$dir/log" 2>&1 || fail "training: $(tail -3 "$dir/log")"
"$tutti" replay "$dir/skips" --step 6 >"$dir/out" 2>&1 || fail "behind a batch that was left out: $(tail -3 "$dir/out")"
grep -q "has the same, to the last digit" "$dir/out" || fail "behind a batch that was left out: $(head -9 "$dir/out")"
"$tutti" replay "$dir/skips" --step 4 >"$dir/out" 2>&1 || fail "a batch that was left out: $(tail -3 "$dir/out")"
grep -q "left out   its batch" "$dir/out" || fail "a batch that was left out: $(head -9 "$dir/out")"

# So is one by fp16, whose norm is not finite, or whose loss is none; its line has null for it. And one without a trained token.
grep -q "has the same, to the last digit" "$dir/out" || fail "a batch that was left out: $(cat "$dir/out")"
"$tutti" train "$dir/c.yaml" -n 2 run.dir="$dir/fp16" precision.recipe=fp16 precision.loss_scale.initial=4294967296 run.steps=24 >"$dir/log" 2>&1 ||
    fail "fp16: $(tail -3 "$dir/log")"
grep -q '"skip_cause": *"gradient"' "$dir/fp16/metrics.jsonl" || fail "fp16: nothing was left out: $(cat "$dir/fp16/metrics.jsonl")"
for step in 1 3 5 24; do
    "$tutti" replay "$dir/fp16" --step $step >"$dir/out" 2>&1 || fail "fp16: step $step: $(head -9 "$dir/out")"
    grep -q "has the same, to the last digit" "$dir/out" || fail "fp16: step $step: $(head -9 "$dir/out")"
done
talk() { echo "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"weight\": $1}]}"; }
{ talk 1 && talk 0 && talk 1; } >"$dir/talks.jsonl"
"$tutti" train "$dir/c.yaml" run.dir="$dir/untrained" data.train="[{path: $dir/talks.jsonl, chat: plain}]" data.pack=padded data.order=sequential model.seq_len=48 \
    parallel.dp_shard=1 parallel.zero=0 batch.global=1 run.steps=3 run.log_every=1 >"$dir/log" 2>&1 || fail "without a trained token: $(tail -3 "$dir/log")"
[ "$(grep -c "^warning.*no token of its batch is trained" "$dir/log")" = 1 ] || fail "without a trained token: $(cat "$dir/log")"
grep -q "^step 2/3  loss -  grad norm -  " "$dir/log" || fail "without a trained token: $(grep "^step" "$dir/log")"
"$tutti" replay "$dir/untrained" --step 2 >"$dir/out" 2>&1 || fail "without a trained token: $(head -9 "$dir/out")"
grep -q "left out   no token" "$dir/out" && grep -q "has the same, to the last digit" "$dir/out" || fail "without a trained token: $(head -9 "$dir/out")"
sed -i '2s/"skip_cause": *"untrained"/"skip_cause": "loss"/' "$dir/untrained/metrics.jsonl"
"$tutti" replay "$dir/untrained" --step 2 >"$dir/out" 2>&1 && fail "another cause: $(head -9 "$dir/out")"

# A record that says something else, and one whose lines are damaged.
cp -r "$dir/run" "$dir/other"
sed -i 's/^\({"step": *5, *"loss": *\)[0-9.]*/\19.5/' "$dir/other/metrics.jsonl"
"$tutti" replay "$dir/other" --step 5 >"$dir/out" 2>&1
status=$?
[ $status = 1 ] || fail "a record that is other: status $status: $(head -5 "$dir/out")"
grep -q "has loss 9.5" "$dir/out" || fail "a record that is other: $(head -8 "$dir/out")"
printf '{"step": 5, "loss"\n\0\0\nnot json\n' >"$dir/other/metrics.jsonl"
"$tutti" replay "$dir/other" --step 5 >"$dir/out" 2>&1 || fail "damaged metrics: $(tail -2 "$dir/out")"
grep -q "has no line of it" "$dir/out" || fail "damaged metrics: $(head -8 "$dir/out")"
passed
