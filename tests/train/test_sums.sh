#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# The example of learning by rewards, made smaller: a model that writes sums as a sloppy person does is right more often after a program
# said which of its answers are right; and the reward's program says 1 of right answers only, whatever else they are. A reward model learns to
# say it, too.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# shellcheck source=tests/train/learning.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/learning.sh"
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

# a reward model tells right sums from wrong ones that it has not seen, and a model learns from what it says
[ "$(cat sums/pairs.jsonl sums/valid.jsonl | sed -E 's/.*"([0-9]+)\+([0-9]+)=.*: "([0-9]+)".*: "([0-9]+)".*/\1 \2 \3 \4/' | awk '$1 + $2 == $3 && $3 != $4 { n++ } END { print n }')" = 4200 ] ||
    fail "pairs: $(head -3 sums/pairs.jsonl)"
config=examples/sums_score.yaml
train runs/score model.from=runs/sums "${small[@]}" optimizer.lr=0.004 run.steps=140 run.eval_every=140
grep -o '"valid_accuracy":[^,}]*' runs/score/metrics.jsonl | awk -F: '{ print $2; exit !($2 > 0.7) }' >share || fail "right pairs: $(cat share)"
config=examples/sums_rewards.yaml
train runs/scored model.from=runs/sums "${small[@]}" optimizer.lr=0.001 run.steps=8 "train.grpo.reward=$tutti score runs/score --threads 1"
figures runs/scored reward | awk 'NR == 1 { before = $1 } { after = $1 } END { print before, after; exit !(NR == 8 && after > before + 0.1) }' >mean || fail "mean score: $(cat mean)"
passed
