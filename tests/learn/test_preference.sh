#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Preference training as a user does it: a model learns to prefer what is chosen, in every layout what one rank learns, stopped and
# gone on with to the bit, with adapters, in both forms of records; what cannot be is refused by name.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# shellcheck source=tests/train/learning.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/learning.sh"
cd "$dir" || exit 1
words=(one two three four five six seven eight nine ten)
for i in $(seq 40); do
    a=${words[$((i % 10))]} b=${words[$((i * 7 % 10))]}
    echo "{\"prompt\": \"$a and $b? \", \"chosen\": \"$b\", \"rejected\": \"$a, $a\"}"
done >pairs.jsonl
sed -E 's/"prompt": ("[^"]*"), "chosen": ("[^"]*"), "rejected": ("[^"]*")/"chosen": [{"role": "user", "content": \1}, {"role": "assistant", "content": \2}], "rejected": [{"role": "user", "content": \1}, {"role": "assistant", "content": \3}]/' pairs.jsonl >talks.jsonl
sed -E 's/"prompt": ("[^"]*"), "chosen": ("[^"]*"), "rejected": ("[^"]*")/"prompt": [{"role": "user", "content": \1}], "chosen": [{"role": "assistant", "content": \2}], "rejected": [{"role": "assistant", "content": \3}]/' pairs.jsonl >lists.jsonl
small dpo.yaml '{objective: dpo, dpo: {beta: 0.2}}' '{train: [{path: pairs.jsonl, chat: plain}], cache_dir: cache}' 32 'batch: {global: 8}
optimizer: {lr: 0.002, schedule: {name: constant, warmup_steps: 0}}
checkpoint: {every: 6}
run: {threads: 1, tensorboard: false, steps: 12, log_every: 1}'
rewards() { figures "$1" loss rewards_chosen rewards_rejected rewards_margin rewards_accuracy grad_norm; }
like() { # RUN OTHER TOLERANCE
    paste <(rewards "$1") <(rewards "$2") | awk -v most="$3" 'function off(a, b) { a -= b; return (a < 0 ? -a : a) }
        { n++; for (i = 1; i <= 6; i++) if (i != 5 && off($i, $(i + 6)) > most * (1 + ($(i + 6) < 0 ? -$(i + 6) : $(i + 6)))) { print NR, i, $i, $(i + 6); exit 1 } }
        END { if (n != 12) exit 1 }' >where || fail "$2 is not $1: $(cat where)"
}

train one
[ "$(rewards one | wc -l)" = 12 ] || fail "steps: $(head -2 one/metrics.jsonl)"
rewards one | awk 'NR == 1 { d = $1 - log(2); if ((d < 0 ? -d : d) > 1e-7 || $2 != 0 || $5 != 0) exit 1 } { last = $1; right = $5; margin = $4 }
    END { exit !(last < 0.5 && right == 1 && margin > 0.3) }' || fail "does not learn: $(rewards one)"
[ "$(stat -c %s one/reference.bin)" = $((8 * (5 + 80 + 1))) ] || fail "reference: $(stat -c %s one/reference.bin) bytes"

# a small step of plain descent lowers the loss by its length times the square of the gradient's norm: the gradient is that of the loss
head -n 4 pairs.jsonl >few.jsonl
train slope data.train='[{path: few.jsonl, chat: plain}]' optimizer.name=sgd optimizer.momentum=0 optimizer.clip=0 optimizer.weight_decay=0 optimizer.lr=0.001 run.steps=2
figures slope loss grad_norm | awk 'NR == 1 { loss = $1; norm = $2 } NR == 2 { by = (loss - $1) / (0.001 * norm * norm); print by; exit !(by > 0.98 && by < 1.02) }
    END { exit NR != 2 }' >where || fail "descent: $(cat where)"

for keys in "2 parallel.dp_shard=2" "5 parallel.dp_replicate=5" "2 parallel.zero=3" "2 parallel.tp=2 parallel.sequence_parallel=true" \
    "2 parallel.cp=2" "2 parallel.pp=2" "4 parallel.pp=2 parallel.schedule=zbh1 parallel.zero=1"; do
    rm -rf other
    # shellcheck disable=SC2086
    train other -n ${keys%% *} ${keys#* }
    like one other 2e-4
    # shellcheck disable=SC2086
    as_planned other -n ${keys%% *} ${keys#* }
done

# stopped, and gone on with: the same bits; a reference that is gone is not made up
train half run.steps=6
cp -r half two
train two -n 2 parallel.zero=2
like one two 2e-4
train half
[ "$(rewards half)" = "$(rewards one)" ] || fail "stopped: $(diff <(rewards half) <(rewards one) | head -4)"
train half run.steps=13 -n 2 parallel.zero=2
rm half/reference.bin
"$tutti" train dpo.yaml run.dir=half run.steps=14 >out 2>&1
[ $? = 2 ] && grep -q "reference.bin: is not there" out || fail "no reference: $(tail -1 out)"

# both forms of conversations are the same tokens; a prompt's template is part of them
for form in talks lists; do train $form data.train="[{path: $form.jsonl, chat: plain}]" model.seq_len=64 run.steps=3; done
[ "$(rewards talks)" = "$(rewards lists)" ] || fail "the forms differ: $(rewards talks) / $(rewards lists)"

# adapters: only they move; evaluations; the base is what it was
"$tutti" checkpoint export one base >log 2>&1 || fail "export: $(cat log)"
train lora model.from=base model.seq_len=32 adapter.kind=lora 'adapter.targets=[q,v,o]' optimizer.lr=0.005 data.valid='[{path: pairs.jsonl, chat: plain}]' run.eval_every=6 run.eval_batches=2 checkpoint.best=eval_loss
rewards lora | awk 'NR == 1 && ($1 > 0.6931473 || $1 < 0.6931470) { exit 1 } { last = $1 } END { exit !(last < 0.69) }' || fail "lora: $(rewards lora)"
grep -q '"valid_accuracy":1' lora/metrics.jsonl && [ -e lora/checkpoints/best ] || fail "lora: $(grep valid lora/metrics.jsonl)"

refused "model.dropout: beside train.objective: dpo" model.dropout=0.1
refused "batch.micro: beside train.objective: dpo" batch.micro=2
refused "batch.global: beside train.objective: dpo" batch.global=7
refused "data.pack: beside train.objective: dpo" data.pack=joined
refused "parallel.servers: beside" -n 2 parallel.servers=1
refused "precision.recipe: beside" precision.recipe=fp8-current
refused "choose model.seq_len: " model.seq_len=20
refused "name one (chat)" data.train=pairs.jsonl
echo '{"prompt": "a", "chosen": "b"}' >bad.jsonl
refused 'bad.jsonl: record 1, at byte 0: wanted a record with "prompt", "chosen" and "rejected"' data.train='[{path: bad.jsonl, chat: plain}]'
echo '{"prompt": "a", "chosen": "b", "rejected": ""}' >bad.jsonl
refused 'an empty prompt, chosen or rejected answer' data.train='[{path: bad.jsonl, chat: plain}]'
echo '{"chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "rejected": [{"role": "user", "content": "z"}, {"role": "assistant", "content": "y"}]}' >bad.jsonl
refused 'differ before their last messages' data.train='[{path: bad.jsonl, chat: plain}]'
echo '{"prompt": [{"role": "user", "content": "x"}], "chosen": [{"role": "assistant", "content": "y"}], "rejected": [{"role": "user", "content": "z"}]}' >bad.jsonl
refused 'rejected: no message of the assistant' data.train='[{path: bad.jsonl, chat: plain}]'
passed
