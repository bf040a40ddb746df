#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Reward models as a user has them: one learns to score what is chosen above what is rejected, in layouts what one rank learns, stopped and
# gone on with to the bit; from a model that writes and from a reward model, out and in again; tutti score tells, line for line, the scores
# that training had, in either form of prompts, and names what is wrong with a line.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# shellcheck source=tests/train/learning.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/learning.sh"
cd "$dir" || exit 1
words=(one two three four five six seven eight nine ten)
for i in $(seq 20); do
    a=${words[$((i % 10))]} b=${words[$((i * 7 % 10))]}
    echo "{\"prompt\": \"$a and $b? \", \"chosen\": \"$b\", \"rejected\": \"$a, $a\"}"
done >pairs.jsonl
sed -E 's/"prompt": ("[^"]*"), "chosen": ("[^"]*"), "rejected": ("[^"]*")/"prompt": [{"role": "user", "content": \1}], "chosen": [{"role": "assistant", "content": \2}], "rejected": [{"role": "assistant", "content": \3}]/' pairs.jsonl >lists.jsonl
small score.yaml '{objective: reward, reward: {centre: 0.01}}' '{train: [{path: pairs.jsonl, chat: plain}], cache_dir: cache}' 32 'batch: {global: 8}
optimizer: {lr: 0.001, schedule: {name: constant, warmup_steps: 0}}
checkpoint: {every: 6}
run: {threads: 1, tensorboard: false, steps: 12, log_every: 1}'
rewards() { figures "$1" loss rewards_chosen rewards_rejected rewards_margin rewards_mean rewards_accuracy grad_norm; }
like() { # RUN OTHER TOLERANCE
    paste <(rewards "$1") <(rewards "$2") | awk -v most="$3" 'function off(a, b) { a -= b; return (a < 0 ? -a : a) }
        { n++; for (i = 1; i <= 7; i++) if (i != 6 && off($i, $(i + 7)) > most * (1 + ($(i + 7) < 0 ? -$(i + 7) : $(i + 7)))) { print NR, i, $i, $(i + 7); exit 1 } }
        END { if (n != 12) exit 1 }' >where || fail "$2 is not $1: $(cat where)"
}

train one
rewards one | awk 'function off(a) { return (a < 0 ? -a : a) } NR == 1 { if (off($1 - log(2)) > 0.2) exit 1 } { last = $1; right = $6; margin = $4
    if (off($5 - ($2 + $3) / 2) > 1e-6 || off($4 - ($2 - $3)) > 1e-6) exit 1 } END { exit !(NR == 12 && last < 0.5 && right == 1 && margin > 0.4) }' ||
    fail "does not learn: $(rewards one)"
train pair batch.global=2 run.steps=4 train.reward.centre=3
rewards pair | awk '{ d = $1 - log(1 + exp($3 - $2)) - 3 * ($2 + $3) ^ 2; if ((d < 0 ? -d : d) > 1e-6) { print; exit 1 } } END { exit NR != 4 }' || fail "the loss of a pair: $(rewards pair)"
[ ! -e one/reference.bin ] || fail "a reference of a reward model"

# a small step of plain descent lowers the loss by its length times the square of the gradient's norm: the gradient is that of the loss
head -n 4 pairs.jsonl >few.jsonl
train slope data.train='[{path: few.jsonl, chat: plain}]' optimizer.name=sgd optimizer.momentum=0 optimizer.clip=0 optimizer.weight_decay=0 optimizer.lr=0.0005 run.steps=2
figures slope loss grad_norm | awk 'NR == 1 { loss = $1; norm = $2 } NR == 2 { by = (loss - $1) / (0.0005 * norm * norm); print by; exit !(by > 0.97 && by < 1.03) }
    END { exit NR != 2 }' >where || fail "descent: $(cat where)"

for keys in "2 parallel.zero=3" "2 parallel.tp=2 parallel.sequence_parallel=true" "2 parallel.cp=2" "4 parallel.pp=2 parallel.schedule=zbh1 parallel.zero=1"; do
    rm -rf other
    # shellcheck disable=SC2086
    train other -n ${keys%% *} ${keys#* }
    like one other 2e-4
    # shellcheck disable=SC2086
    as_planned other -n ${keys%% *} ${keys#* }
done

# stopped, and gone on with: the same bits
train half run.steps=6
train half
[ "$(rewards half)" = "$(rewards one)" ] || fail "stopped: $(diff <(rewards half) <(rewards one) | head -4)"

# what is asked, as a reward's hook gets it
asked() { sed -E "s/\"prompt\": (.*), \"chosen\": (.*), \"rejected\": (.*)}/{\"answer\":\\$2,\"ended\":${3:-true},\"record\":{\"prompt\":\1}}/; s/^\{//" "$1" |
    sed -E 's/"answer":\[\{"role": "assistant", "content": ("[^"]*")\}\]/"answer":\1/'; }
scores() { "$tutti" score "$@" --threads 1 2>out || fail "score $1: $(cat out)"; }
asked pairs.jsonl 2 >chosen.jsonl
mean() { awk '{ s += $1 } END { printf "%.6g %d\n", s / NR, NR }' "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) < 2e-6 * (1 + (a < 0 ? -a : a))) }'; }
scores one <chosen.jsonl >told
# one step without a step of all pairs, by the weights that one ended with
all() { train "$1" model.from=one batch.global=40 optimizer.lr=1e-12 optimizer.schedule.min_lr=0 run.steps=1 "${@:2}"; }
all again
read -r is n <<<"$(mean told)"
[ "$n" = 20 ] && near "$is" "$(figures again rewards_chosen)" || fail "scores: $n of mean $is, in training $(figures again rewards_chosen)"
asked pairs.jsonl 3 | scores one >told_rejected
near "$(mean told_rejected)" "$(figures again rewards_rejected)" || fail "scores: $(mean told_rejected), in training $(figures again rewards_rejected)"
paste told told_rejected | awk '$1 > $2 { n++ } END { exit n != 20 }' || fail "chosen below rejected: $(paste told told_rejected | head -3)"
scores one --batch 1 <chosen.jsonl | paste told - | awk '{ d = $1 - $2; if ((d < 0 ? -d : d) > 1e-5) exit 1 }' || fail "one at a time they are others"
scores one --tp 2 --pp 2 <chosen.jsonl | paste told - | awk '{ d = $1 - $2; if ((d < 0 ? -d : d) > 1e-5) exit 1 } END { exit NR != 20 }' || fail "over ranks they are others"
asked pairs.jsonl 2 false | scores one | paste told - | awk '$1 == $2 { exit 1 } END { exit NR != 20 }' || fail "what is not ended is scored as if it were"
all at_text model.score_at=text
near "$(asked pairs.jsonl 2 false | scores one | mean /dev/stdin)" "$(figures at_text rewards_chosen)" || fail "read before the end: $(figures at_text rewards_chosen)"
all lists data.train='[{path: lists.jsonl, chat: plain}]' model.seq_len=64 model.max_positions=64
near "$(asked lists.jsonl 2 | scores lists | mean /dev/stdin)" "$(figures lists rewards_chosen)" ||
    fail "lists: $(asked lists.jsonl 2 | scores lists | mean /dev/stdin), in training $(figures lists rewards_chosen)"
echo '{"answer": "two", "record": {"messages": [{"role": "user", "content": "one and two? "}]}}' | scores lists >messages
[ "$(wc -l <messages)" = 1 ] || fail "messages: $(cat messages)"
printf '{"prompt": "x", "answer": ""}\r\n\n  \n{"prompt": "x", "answer": "y"}' | scores one >bare
[ "$(wc -l <bare)" = 2 ] || fail "bare records: $(cat bare)"

yes 'one two three four' | head -40 >words.txt
# out and in again: the same scores; a model that writes becomes one; what writes is no reward model, and the other way round
"$tutti" checkpoint export one hf >log 2>&1 || fail "export: $(cat log)"
grep -q '"LlamaForSequenceClassification"' hf/config.json && grep -q '"LABEL_0"' hf/config.json || fail "config.json: $(cat hf/config.json)"
scores hf --tokenizer byte <chosen.jsonl | cmp -s - told || fail "exported: $(scores hf --tokenizer byte <chosen.jsonl | head -2), $(head -2 told)"
if "$tutti" checkpoint export at_text text >log 2>&1; then
    near "$(scores text --tokenizer byte <chosen.jsonl | mean /dev/stdin)" "$(figures at_text rewards_chosen)" || fail "read before the end, exported: $(grep pad text/config.json)"
else fail "export: $(cat log)"; fi
sed 's/"0": *"LABEL_0"/"0": "a", "1": "b"/' hf/config.json >log && cp -r hf two && cp log two/config.json
"$tutti" score two --tokenizer byte <chosen.jsonl >log 2>&1
[ $? = 2 ] && grep -q 'id2label: LlamaForSequenceClassification of 2 labels' log || fail "two labels: $(cat log)"
train writes train.objective=next data.train=words.txt data.pack=joined train.reward.centre=0 model.family=gpt2 model.kv_heads=4 model.tie_embeddings=true run.steps=1
train made model.from=writes model.kv_heads=4 model.seq_len=32 run.steps=1
grep -q 'has no score: score.weight is drawn anew' log || fail "a new score: $(cat log)"
config=made/config.yaml
train made run.steps=2
config=score.yaml
train alone model.from=writes model.kv_heads=4 model.seq_len=32 run.steps=1 adapter.kind=lora 'adapter.targets=[q]'
grep -q 'score.weight is drawn anew and stays so, since it is not trained' log || fail "a frozen score: $(cat log)"
"$tutti" data inspect score.yaml --step 1 --sample 0 >log 2>&1 && grep -qF '⟦<|endoftext|>⟧' log && grep -q 'a loss of 1$' log || fail "inspect: $(head -5 log)"
for what in '--format gguf' --adapter; do
    # shellcheck disable=SC2086
    "$tutti" checkpoint export one no $what >log 2>&1
    [ $? = 2 ] && grep -q 'is a reward model, whose score has no place in' log || fail "export $what: $(cat log)"
done
"$tutti" score writes <chosen.jsonl >log 2>&1
[ $? = 2 ] && grep -q 'has no score (score.weight)' log || fail "a model that writes: $(cat log)"
"$tutti" generate one --prompt x >log 2>&1
[ $? = 2 ] && grep -q 'is a reward model, and writes no text; ask it with tutti score' log || fail "generate: $(cat log)"
refused "is a reward model, which tells no next token" train.objective=dpo model.from=one train.reward.centre=0

# adapters and the score; evaluations
train lora model.from=one model.seq_len=32 adapter.kind=lora 'adapter.targets=[q,v,o]' 'train.only=[score.weight]' data.valid='[{path: pairs.jsonl, chat: plain}]' run.eval_every=6 run.eval_batches=2
grep -q '"valid_accuracy":1' lora/metrics.jsonl || fail "lora: $(grep valid lora/metrics.jsonl)"
scores lora <chosen.jsonl | cmp -s - told && fail "adapters change nothing"

wrong() { # WORDS LINE
    printf '{"answer": "a", "record": {"prompt": "b"}}\n%s\n' "$2" | "$tutti" score one --threads 1 >out 2>log
    [ $? != 0 ] && grep -qF -- "$1" log && [ "$(wc -l <out)" = 1 ] || fail "does not say '$1': $2: $(cat log), $(cat out)"
}
wrong 'standard input: line 2: wanted an object with "answer", a text' '{"record": {"prompt": "b"}}'
wrong 'standard input: line 2: wanted an object' '[1]'
wrong 'standard input: line 2' '{"answer": "a", '
wrong 'standard input: line 2: the prompt is empty' '{"answer": "a", "record": {"prompt": ""}}'
wrong 'standard input: line 2: ended: wanted true or false' '{"answer": "a", "ended": 1, "record": {"prompt": "b"}}'
wrong 'standard input: line 2: wanted a record with "prompt"' '{"answer": "a", "record": {"prompt": 7}}'
wrong "line 2: the last message is the assistant's" '{"answer": "a", "record": {"messages": [{"role": "assistant", "content": "b"}]}}'
wrong 'line 2: 45 tokens, and there is room for 32' '{"answer": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "record": {"prompt": "b"}}'

refused "model.family: mamba2 has no form with a score" model.family=mamba2
refused "model.dropout: beside train.objective: reward" model.dropout=0.1
refused "data.train: beside train.objective: reward: train_on" data.train='[{path: pairs.jsonl, chat: plain, train_on: all}]'
refused "run.sample_every: beside train.objective: reward" run.sample_every=2
refused "model.tie_embeddings: a reward model has no output matrix" model.tie_embeddings=true
refused "choose model.seq_len: " model.seq_len=20
passed
