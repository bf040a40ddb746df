#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Learning by rewards as a user does it: the rewarded is learned; in every layout the answers of one rank, with
# log-probabilities that are to the bit those of training where whole layers are on a rank; stopped and gone on with; a
# hook that fails loses nothing; what cannot be is refused by name.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# shellcheck source=tests/train/learning.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/learning.sh"
cd "$dir" || exit 1
for i in $(seq 20); do echo "{\"prompt\": \"say $i: \", \"n\": $i}"; done >prompts.jsonl
cat >reward.sh <<'END'
awk 'match($0, /"answer":"[^"]*"/) { a = substr($0, RSTART + 10, RLENGTH - 11); n = gsub(/e/, "", a); print n; next } { print 0 }'
END
small grpo.yaml '{objective: grpo, grpo: {group: 4, tokens: 20, reward: "sh reward.sh", reward_tries: 1, at_once: 5}}' '{train: [prompts.jsonl]}' 44 'batch: {global: 16, micro: 4}
optimizer: {lr: 0.005, schedule: {name: constant, warmup_steps: 0}}
checkpoint: {every: 4}
run: {threads: 1, tensorboard: false, steps: 8, log_every: 1}'
answers() { figures "$1" reward answer_tokens logprobs_unlike logprobs_unlike_most grad_norm kl clip_fraction; }

train one
[ "$(answers one | wc -l)" = 8 ] || fail "steps: $(head -2 one/metrics.jsonl)"
answers one | awk '$3 != 0 || $4 != 0 { exit 1 }' || fail "bits: $(answers one)"
train long run.steps=30 optimizer.lr=0.01
answers long | awk 'NR <= 5 { a += $1 } { last[NR] = $1 } END { for (i = NR - 4; i <= NR; i++) b += last[i]; exit !(b > 3 * a && b > 8) }' ||
    fail "does not learn: $(answers long)"

# rewards that are all alike teach nothing, and that is said: at the first such batch, at the tenth
train alike 'train.grpo.reward=yes 2 | head -n 16' run.steps=12
[ "$(grep -c "rewards of all answers to a prompt are the same (2 the first one)" log)" = 2 ] || fail "rewards alike: $(grep warning log)"
grep -q "in 10 batches in a row: nothing is learnt from them" log || fail "rewards alike: $(grep warning log)"

# what is drawn has the probabilities that are learned from: of one prompt 4096 first tokens beside what each is said to have. The sum of
# squares over expectations has as many degrees of freedom as there are cells with 5 tokens or more; five of its deviations above that are
# allowed (7 of 28, and 49 where answers are drawn at a temperature of 0.9)
head -n 1 prompts.jsonl >single.jsonl
train draws model.from=long data.train='[single.jsonl]' train.grpo.group=4096 batch.global=4096 batch.micro=512 train.grpo.at_once=512 train.grpo.tokens=1 'train.grpo.reward=yes 1 | head -n 4096' run.steps=1 train.grpo.tell_every=1
awk 'match($0, /"ids":\[[0-9]+\]/) { id = substr($0, RSTART + 7, RLENGTH - 8); match($0, /"logprobs_written":\[[^]]*/); n[id]++; p[id] = exp(substr($0, RSTART + 20, RLENGTH - 20)) }
    END { for (id in n) { all += n[id]; if (NR * p[id] < 5) continue; cells++; seen += n[id]; share += p[id]; sum += (n[id] - NR * p[id]) ^ 2 / (NR * p[id]) }
      rest = NR * (1 - share); sum += (NR - seen - rest) ^ 2 / rest
      print NR, all, cells, share, sum; exit !(NR == 4096 && all == NR && cells >= 4 && share > 0.5 && share < 1 && sum < cells + 5 * sqrt(2 * cells)) }' \
    draws/answers/step-00000001.jsonl >where || fail "drawn and learned: $(cat where)"

# a distance to what the run began with, several updates of a batch: loss, distance and what is clipped are the formula's
train two train.grpo.updates=2 train.grpo.beta=0.1 train.grpo.clip=0.05 train.grpo.clip_high=0.1 train.grpo.tell_every=1 run.steps=6 checkpoint.every=2
for step in 1 2 3 4 5 6; do
    awk 'function list(name) { match($0, "\"" name "\":\\[[^]]*"); return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) }
        function number(name) { match($0, "\"" name "\":[^,}]*"); return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) }
        { n = split(list("logprobs_written"), old, ","); a = number("advantage"); mean = 0
          if (n != split(list("logprobs"), now, ",") || n != split(list("logprobs_reference"), ref, ",") || n != number("tokens")) exit 1
          r[NR] = number("reward"); adv[NR] = a
          for (i = 1; i <= n; i++) {
              ratio = exp(now[i] - old[i]); held = ratio < 0.95 ? 0.95 : ratio > 1.1 ? 1.1 : ratio
              least = ratio * a < held * a ? ratio * a : held * a
              clipped += held * a < ratio * a; tokens++
              d = exp(ref[i] - now[i]) - (ref[i] - now[i]) - 1
              kl += d; mean += (-least + 0.1 * d) / n }
          loss += mean / 16 }
        END { for (g = 1; g <= NR; g += 4) {
                  m = (r[g] + r[g + 1] + r[g + 2] + r[g + 3]) / 4; v = 0
                  for (i = g; i < g + 4; i++) v += (r[i] - m) ^ 2 / 3
                  for (i = g; i < g + 4; i++) { off = adv[i] - (r[i] - m) / (sqrt(v) + 1e-4); if (off > 1e-9 || off < -1e-9) exit 1 } }
              if (NR != 16) exit 1
              printf "%.9f %.9f %.9f\n", loss, kl / tokens, clipped / tokens }' two/answers/step-0000000$step.jsonl || fail "step $step: its answers"
done >plain
paste plain <(figures two loss kl clip_fraction) | awk '
    { for (i = 1; i <= 3; i++) { off = $i - $(i + 3); if (off > 3e-8 || off < -3e-8) { print NR, i, $i, $(i + 3); exit 1 } }
      if ((NR == 1 && $5 != 0) || (NR > 1 && $5 <= 0) || (NR % 2 && $6 != 0)) { print "kl, clip", $0; exit 1 } clipped += $6 }
    END { if (NR != 6 || clipped <= 0) { print NR, clipped; exit 1 } }' >where || fail "the formula: $(cat where)"
# how long an answer is weighs as train.grpo.mean says
for mean in answers tokens constant; do
    train "mean-$mean" model.from=long train.grpo.mean=$mean train.grpo.tell_every=1 'train.grpo.stop=[e]' run.steps=1
    awk -v mean=$mean 'function number(name) { match($0, "\"" name "\":[^,}]*"); return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) }
        { n = number("tokens"); a = number("advantage"); sum += a; by_token += a * n; all += n; if (n < 20) short++ }
        END { if (NR != 16 || !short) exit 1
              printf "%.9f\n", -(mean == "answers" ? sum / 16 : mean == "tokens" ? by_token / all : by_token / (16 * 20)) }' \
        "mean-$mean/answers/step-00000001.jsonl" >plain || fail "mean $mean: its answers"
    paste plain <(figures "mean-$mean" loss) | awk '{ off = $1 - $2; if (off > 3e-8 || off < -3e-8) { print; exit 1 } }' >where || fail "mean $mean: $(cat where)"
done
[ "$(figures mean-constant loss)" != "$(figures mean-tokens loss)" ] || fail "constant is tokens: $(figures mean-tokens loss)"
# a forward pass of the same weights, in the batch and beside it: what wrote a batch learns from it
[ "$(figures two logprobs_unlike | tr '\n' ' ')" = "0 - 0 - 0 - " ] || fail "bits: $(figures two logprobs_unlike)"

# nothing to gain: the model stays what it is; pulled hard, it stays near
train still 'train.grpo.reward=yes 1 | head -n 16' train.grpo.beta=1 run.steps=1
[ "$(figures still kl grad_norm)" = "0 0" ] || fail "nothing to gain: $(figures still kl grad_norm)"
# a small step of plain descent lowers the loss by its length times the square of the gradient's norm: the gradient is that of the loss. At
# the reference its pull is 0, a step away it takes from the gradient
plain=(train.grpo.updates=2 train.grpo.clip=1 train.grpo.clip_high=1000 optimizer.name=sgd optimizer.momentum=0 optimizer.clip=0 optimizer.weight_decay=0 optimizer.lr=0.01 run.steps=2)
train near "${plain[@]}" train.grpo.beta=30
train far "${plain[@]}" train.grpo.beta=0.000001
paste <(figures near loss grad_norm kl) <(figures far loss grad_norm kl) | awk '
    NR == 1 { loss = $4; norm = $5; pull = $2 / $5 - 1; if (pull > 1e-6 || pull < -1e-6 || norm <= 0) { print; exit 1 } }
    NR == 2 { by = (loss - $4) / (0.01 * norm * norm); print by, $2 / $5, $3; exit !(by > 0.98 && by < 1.02 && $2 < 0.97 * $5 && $3 > 0) }
    END { exit NR != 2 }' >where || fail "descent, and what holds it: $(cat where)"

# bytes: the weights that move, a second time, and as much on its way; of adapters they are few; what is planned is the limit
bytes() { "$tutti" plan grpo.yaml --json "$@" 2>&1 | grep -Eo "\"$of\": *[0-9]+" | grep -Eo '[0-9]+$' | head -1; }
of=peak_bytes
params=$(of=params bytes)
[ $(($(bytes train.grpo.beta=1) - $(bytes))) = $((8 * params)) ] || fail "$(bytes train.grpo.beta=1), $(bytes) bytes for $params parameters"
lora=(adapter.kind=lora 'adapter.targets=[q,v]' adapter.rank=3)
[ $(($(bytes "${lora[@]}" train.grpo.beta=1) - $(bytes "${lora[@]}"))) = $((8 * 2 * 3 * (32 + 32 + 32 + 16))) ] || fail "adapters: $(bytes "${lora[@]}" train.grpo.beta=1), $(bytes "${lora[@]}")"
"$tutti" checkpoint export one base >log 2>&1 || fail "export: $(cat log)"
train lora "${lora[@]}" model.from=base model.seq_len=44 train.grpo.beta=0.5 train.grpo.updates=2 run.steps=4 "memory.limit=$(bytes "${lora[@]}" train.grpo.beta=1)"
as_planned lora "${lora[@]}" train.grpo.beta=1
figures lora kl grad_norm | awk 'NR == 1 && ($1 != 0 || $2 <= 0) { exit 1 } NR > 1 && $1 <= 0 { exit 1 } END { exit NR != 4 }' || fail "lora: $(figures lora kl grad_norm)"
refused "memory.limit: " "memory.limit=$(($(bytes) - 1))"

# the first step is of the same answers everywhere, to the bit; later ones follow from sums that ranks round
for keys in "2 parallel.dp_shard=2 batch.micro=2" "3 parallel.dp_replicate=3 batch.micro=1" "2 parallel.zero=3" "2 parallel.zero=2" "4 parallel.pp=2 parallel.schedule=zbh1 parallel.zero=1 batch.micro=2" \
    "2 parallel.tp=2 parallel.sequence_parallel=true" "2 parallel.cp=2"; do
    rm -rf other
    # shellcheck disable=SC2086
    train other -n ${keys%% *} ${keys#* } run.steps=4 checkpoint.every=2 train.grpo.updates=2 train.grpo.beta=0.1 train.grpo.clip=0.05 train.grpo.clip_high=0.1
    paste <(answers other) <(answers two) | head -4 | awk -v cut="$keys" '
        function off(a, b) { a -= b; return (a < 0 ? -a : a) }
        { if ($1 != $8 || $2 != $9 || off($5, $12) > 2e-4 * $12 || $4 > 1e-5 || off($6, $13) > 1e-6 + 1e-3 * $13 || off($7, $14) > 0.004) { print; exit 1 }
          if (cut !~ /tp=|cp=/ && NR % 2 && $3 != 0) { print; exit 1 } n++ } END { exit n < 4 }' >where || fail "$keys: $(cat where)"
    # shellcheck disable=SC2086
    as_planned other -n ${keys%% *} ${keys#* } train.grpo.updates=2 checkpoint.every=2 train.grpo.beta=0.1
done
for keys in "1 run.threads=2" "2 parallel.zero=2"; do
    rm -rf other
    # shellcheck disable=SC2086
    train other -n ${keys%% *} ${keys#* } run.steps=2 precision.recipe=bf16 model.seq_len=120 train.grpo.tokens=100 batch.global=8
    answers other | awk '$3 != 0 || $2 < 70 { exit 1 } END { exit NR < 2 }' || fail "bf16, $keys: $(answers other)"
done

# stopped, and gone on with: the same bits
train half run.steps=5
train half
[ "$(answers half)" = "$(answers one)" ] || fail "stopped: $(diff <(answers half) <(answers one) | head -4)"
held=(train.grpo.updates=2 train.grpo.beta=0.1 train.grpo.clip=0.05 train.grpo.clip_high=0.1 checkpoint.every=2)
train halves "${held[@]}" run.steps=2
train halves "${held[@]}" run.steps=6
[ "$(answers halves)" = "$(answers two)" ] || fail "stopped, held: $(diff <(answers halves) <(answers two) | head -4)"
train halves "${held[@]}" run.steps=8 -n 2 parallel.zero=3
"$tutti" train grpo.yaml run.dir=halves "${held[@]}" run.steps=10 run.seed=7 'checkpoint.allow_changes=[run.seed]' >out 2>&1
[ $? = 2 ] && grep -q 'was held to other weights' out || fail "another reference: $(tail -1 out)"
# a signal comes at any moment: a run stops between batches
"$tutti" train grpo.yaml run.dir=stopped train.grpo.updates=4 train.grpo.tell_every=1 run.steps=4000 checkpoint.every=0 >out 2>&1 &
child=$!
until_so $! test -e stopped/answers/step-00000006.jsonl
kill -TERM $child
wait $child
saved=$(grep -o 'saved step [0-9]*' out | tail -1)
[ -n "$saved" ] && [ $((${saved##* } % 4)) = 0 ] || fail "stopped amid a batch: $(tail -2 out)"

# a hook that fails loses nothing: what was done is saved, and goes on
cp reward.sh whole.sh
echo 'cat >in; grep -q "\"step\":7," in && echo 1 || sh whole.sh <in' >reward.sh
"$tutti" train grpo.yaml run.dir=fails >out 2>&1
[ $? = 1 ] && grep -q 'step 6 was saved, and nothing is lost: .*1 numbers, wanted 16' out && [ -d fails/checkpoints/step-00000006 ] ||
    fail "hook: $(tail -2 out)"
mv whole.sh reward.sh
train fails
[ "$(answers fails)" = "$(answers one)" ] || fail "after the hook: $(diff <(answers fails) <(answers one) | head -4)"

# conversations, an end by a text
echo '{"messages": [{"role": "user", "content": "say it"}]}' >talks.jsonl
train talks data.train='[{path: talks.jsonl, chat: plain}]' model.seq_len=96 run.steps=2 'train.grpo.stop=[e]' train.grpo.advantage=mean train.grpo.mean=tokens
grep -q '"answers_ended":0.' talks/metrics.jsonl || fail "no answer ends: $(cat talks/metrics.jsonl)"

refused "train.grpo.reward: beside train.objective: grpo: what are answers worth" train.grpo.reward=null
refused "batch.global: beside train.objective: grpo" batch.global=18
refused "data.pack: beside train.objective: grpo: a sequence is one answer" data.pack=best_fit
refused "checkpoint.every: beside train.objective: grpo: checkpoints are of whole batches" train.grpo.updates=3 run.steps=9
refused "run.steps: beside train.objective: grpo: checkpoints are of whole batches" train.grpo.updates=2 run.steps=7
refused "checkpoint.memory_every: beside train.objective: grpo" train.grpo.updates=2 checkpoint.memory_every=3
refused "model.dropout: beside" model.dropout=0.1
refused "train.grpo.tokens: beside" train.grpo.tokens=99
refused "parallel.servers: beside" -n 2 parallel.servers=1
refused "precision.recipe: beside" precision.recipe=fp8-current
refused "data.valid: beside" data.valid='[prompts.jsonl]'
refused "name one (data.train: chat)" data.train='[talks.jsonl]'
refused "tokens long; beside answers of train.grpo.tokens there is room for" train.grpo.tokens=40
echo '{"question": "a"}' >bad.jsonl
refused 'wanted a record with "prompt"' data.train='[bad.jsonl]'
passed
