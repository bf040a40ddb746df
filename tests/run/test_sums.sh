#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of learning by rewards, made smaller: a model that writes sums as a sloppy person does is right more often after a program
# said which of its answers are right; and the reward's program says 1 of right answers only, whatever else they are.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
# shellcheck source=tests/run/learning.sh
. "$2/tests/run/learning.sh"
cd "$dir" || exit 1
ln -s "$root/examples" examples
sh examples/make_sums.sh sums || fail "make_sums.sh"
[ "$(wc -l <sums/sloppy.jsonl)" = 6000 ] && [ "$(sort -u sums/prompts.jsonl | wc -l)" = 100 ] || fail "records: $(wc -l sums/*)"
right=$(sed -E 's/.*"([0-9]+)\+([0-9]+)=.*: "([0-9]+)".*/\1 \2 \3/' sums/sloppy.jsonl | awk '$1 + $2 == $3 { n++ } END { print n }')
[ "$right" -gt 2200 ] && [ "$right" -lt 2600 ] || fail "$right of 6000 are right"

asked() { printf '{"answer":"%s","ended":true,"tokens":3,"step":1,"group":0,"record":{"prompt": "%s"}}\n' "$@" | sh examples/reward_sums.sh | tr '\n' ' '; }
[ "$(asked 15 7+8= 14 7+8= 015 7+8= '' 0+0= 0 0+0= 0 0+00= '15\"' 7+8= '1' 7+8= ' 15' 7+8= 15 7+8 18 9+9=)" = "1 0 0 0 1 1 0 0 0 0 1 " ] ||
    fail "rewards: $(asked 15 7+8= 14 7+8= 015 7+8= '' 0+0= 0 0+0= 0 0+00= '15\"' 7+8= '1' 7+8= ' 15' 7+8= 15 7+8 18 9+9=)"

small=(model.hidden=32 model.ffn=64 run.threads=1 run.tensorboard=false run.log_every=1)
config=examples/sums.yaml
train runs/sums "${small[@]}" optimizer.lr=0.008 batch.global=64 batch.micro=64
config=examples/sums_rewards.yaml
train runs/sums-rewards model.from=runs/sums "${small[@]}" optimizer.lr=0.001 run.steps=40
figures runs/sums-rewards reward | awk '{ r[NR] = $1 } END { for (i = 1; i <= 4; i++) { before += r[i] / 4; after += r[NR - i + 1] / 4 } print before, after
    exit !(NR == 40 && before < 0.5 && after > before + 0.2) }' >mean || fail "mean reward: $(cat mean)"
passed
