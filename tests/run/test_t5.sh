#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An encoder with a decoder from its example: spans of text, the same on more ranks and after an interruption; the plan is what is
# allocated; its form of Hugging Face goes out and in; what is refused.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$dir" || exit 1
mkdir text
cp "$root/CONTRIBUTING.md" "$root/SECURITY.md" text
small=(model.layers=2 model.encoder_layers=1 model.hidden=32 model.heads=2 model.ffn=48 model.seq_len=48 batch.global=8 batch.micro=2 precision.recipe=fp32
    run.threads=1 run.tensorboard=false)
t5=("$tutti" train "$root/examples/t5.yaml" "${small[@]}" data.train=text "data.valid=[text]" data.cache_dir=cache checkpoint.every=6 run.eval_every=12
    run.eval_batches=2)
losses() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
"${t5[@]}" run.dir=one run.steps=12 2>log || fail "it does not train: $(tail -3 log)"
grep -q '"valid_loss"' one/metrics.jsonl || fail "it is not evaluated"
peak=$(grep -o '"peak_bytes": *[0-9]*' one/metrics.jsonl | tail -1 | grep -o '[0-9]*$')
"$tutti" plan "${t5[@]:2}" run.steps=12 --json >plan.json 2>log || fail "no plan: $(tail -3 log)"
grep -Eq "\"peak_bytes\": *$peak[,}]" plan.json || fail "a peak of '$peak' bytes, planned: $(grep -Eo '"peak_bytes": *[0-9]*' plan.json | tr '\n' ' ')"
"${t5[@]}" run.dir=again run.steps=6 -n 2 parallel.tp=2 2>log || fail "two ranks: $(tail -3 log)"
"${t5[@]}" run.dir=again run.steps=12 -n 2 parallel.zero=3 2>log || fail "it does not go on: $(tail -3 log)"
paste <(losses one) <(losses again) | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-3) bad = 1 } END { exit bad || NR != 12 }' ||
    fail "another run: $(paste <(losses one) <(losses again))"
losses one | awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first) }' || fail "it does not learn: $(losses one)"
"$tutti" checkpoint export one one.hf 2>log && "$tutti" checkpoint import one.hf one.back 2>log || fail "it does not go out and in: $(tail -3 log)"
"${t5[@]}" model.from=one.hf run.dir=on run.steps=1 2>log || fail "it does not go on from its Hugging Face form: $(tail -3 log)"
expect() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1 && fail "$*: not refused"
    grep -qF -- "$words" out || fail "$*: no '$words': $(head -5 out)"
}
for key in id=300 id=9000000 "id=256 data.spans.start=400"; do # the vocabulary is the tokenizer's, where nobody says it
    # shellcheck disable=SC2086
    expect "is not among model.vocab = 257 numbers" "$tutti" train "$root/examples/t5.yaml" data.train=text data.valid=[] model.vocab=null data.spans.$key run.dir=no
done
sed 's/"decoder_start_token_id": *0/"decoder_start_token_id": 5/' one.hf/config.json >config.json && cp config.json one.hf/config.json
expect "decoder_start_token_id" "$tutti" checkpoint import one.hf no.back
expect "is an encoder with a decoder (t5)" "$tutti" generate one --prompt x
expect "parallel.pp: every layer of t5's decoder reads" "${t5[@]}" run.dir=x -n 2 parallel.pp=2
expect "parallel.cp: a sample of t5 is two texts" "${t5[@]}" run.dir=x -n 2 parallel.cp=2
expect "data.spans.id: the tokenizer has no token <extra_id_0>" "${t5[@]}" run.dir=x data.spans.id=-1
passed
