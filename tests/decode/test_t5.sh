#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long threads
# suite: unwatched threads
# An encoder with a decoder from its example: spans of text, the same on more ranks and after an interruption; the plan is what is
# allocated; its form of Hugging Face goes out and in; what is refused.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
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
# It writes: the same in pieces, over ranks and among others; a prompt's end and order change it, and nothing else does.
write() { "$tutti" generate "$@" --temperature 0 --max-tokens 12 --threads 1 --dtype f32 --json; }
text() { grep -o '"text":".*","stopped"'; }
write one --prompt "A test that fails" >alone 2>log || fail "it does not write: $(tail -3 log)"
grep -q '"prompt_tokens":17,"new_tokens":12' alone || fail "what it wrote: $(cat alone)"
write one --prompt "A test that fails" -n 2 >apart 2>log || fail "it does not write over two ranks: $(tail -3 log)"
[ "$(text <alone)" = "$(text <apart)" ] || fail "over two ranks it writes $(cat apart), not $(cat alone)"
printf '{"prompt": "%s"}\n' "Another prompt, a longer one" "A test that fails" "x" >prompts.jsonl
"$tutti" generate one --prompts prompts.jsonl --batch 2 --temperature 0 --max-tokens 12 --threads 1 --dtype f32 >many 2>log || fail "many prompts: $(tail -3 log)"
[ "$(sed -n 2p many | text)" = "$(text <alone)" ] || fail "among others it writes $(cat many), not $(cat alone)"
"$tutti" generate one --prompt "A test that fails" --beams 3 --max-tokens 12 --threads 1 >beams 2>log || fail "beams: $(tail -3 log)"
grep -q "A test that fails" beams && fail "the prompt is printed as if it were written on: $(cat beams)"
echo '{"task": "t", "prompt": "A test that fails", "target": "x", "max_tokens": 4}' >tasks.jsonl
"$tutti" eval one --tasks tasks.jsonl --threads 1 >scores 2>log || fail "it is not asked: $(tail -3 log)"
echo '{"task": "t", "prompt": "A test", "choices": ["x", "y"], "answer": 0}' >tasks.jsonl
expect "an encoder reads it (t5)" "$tutti" eval one --tasks tasks.jsonl
expect "is an encoder with a decoder (t5)" "$tutti" generate one --prompt x --draft ngram
expect "every layer of t5's decoder reads" "$tutti" generate one --prompt x -n 2 --pp 2
# What the decoder begins with is the files', goes on with training, and out again.
sed -i 's/"decoder_start_token_id": *0/"decoder_start_token_id": 5/' one.hf/config.json one.hf/generation_config.json
write one.hf --prompt "A test that fails" >five 2>log || fail "it does not write from its Hugging Face form: $(tail -3 log)"
[ "$(text <alone)" != "$(text <five)" ] || fail "what the decoder begins with is not read: $(cat five)"
"${t5[@]}" model.from=one.hf run.dir=five.run run.steps=1 2>log && "$tutti" checkpoint export five.run five.hf 2>>log || fail "it does not go on: $(tail -3 log)"
for file in config generation_config; do
    grep -q '"decoder_start_token_id": 5' five.hf/$file.json || fail "$file.json: $(cat five.hf/$file.json)"
done
sed -i 's/"decoder_start_token_id": *5/"decoder_start_token_id": 288/' one.hf/config.json
expect "decoder_start_token_id: 288 is not among vocab_size 288" "$tutti" checkpoint import one.hf no.back
expect "parallel.pp: every layer of t5's decoder reads" "${t5[@]}" run.dir=x -n 2 parallel.pp=2
expect "parallel.cp: a sample of t5 is two texts" "${t5[@]}" run.dir=x -n 2 parallel.cp=2
expect "data.spans.id: the tokenizer has no token <extra_id_0>" "${t5[@]}" run.dir=x data.spans.id=-1
# Pairs of texts: what it writes is told while it trains; an interrupted run is the same one, to the bit; in two ranks nearly.
bash "$root/examples/make_dates.sh" dates 60 2>/dev/null
pairs=("$tutti" train "$root/examples/dates_t5.yaml" model.layers=2 model.encoder_layers=1 model.hidden=32 model.heads=2 model.ffn=48 batch.global=8 batch.micro=2
    precision.recipe=fp32 run.threads=1 run.tensorboard=false run.eval_every=6 run.eval_batches=2 checkpoint.every=6 checkpoint.keep=9 data.cache_dir=cache)
"${pairs[@]}" run.dir=p1 run.steps=12 2>log || fail "pairs: $(tail -3 log)"
grep -q 'July 14, 1789 =  -> ' log || fail "what it writes is not told: $(tail -20 log)"
"${pairs[@]}" run.dir=p2 run.steps=6 2>log && "${pairs[@]}" run.dir=p2 run.steps=12 2>>log || fail "pairs do not go on: $(tail -3 log)"
[ "$(losses p1)" = "$(losses p2)" ] || fail "another run: $(paste <(losses p1) <(losses p2))"
"${pairs[@]}" run.dir=p3 run.steps=12 -n 2 parallel.tp=2 2>log || fail "pairs over two ranks: $(tail -3 log)"
paste <(losses p1) <(losses p3) | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-3) bad = 1 } END { exit bad || NR != 12 }' ||
    fail "two ranks: $(paste <(losses p1) <(losses p3))"
echo '{"a": "abcdefghijklmnopqrstuvwxyz", "b": "x"}' >long.jsonl
expect "what is read has 27 tokens with its end, and there is room for 22" "${pairs[@]}" run.dir=x "data.train=[{path: long.jsonl, target: b, column: a}]"
expect "record 1" "${pairs[@]}" run.dir=x model.encoder_len=12
"$tutti" data inspect "$root/examples/dates_t5.yaml" data.cache_dir=cache >seen 2>log || fail "samples are not shown: $(tail -3 log)"
grep -q "1[5-9][0-9][0-9]-\|20[0-9][0-9]-" seen || fail "a target is not shown: $(head -20 seen)"
echo '{"input": "read", "target": "said"}' >io.jsonl
"$tutti" data inspect "$root/examples/dates_t5.yaml" data.cache_dir=cache "data.train=[{path: io.jsonl, target: target}]" batch.global=1 batch.micro=1 >seen 2>log ||
    fail "input and target: $(tail -3 log)"
grep -q "^read<.*⟦said<" seen || fail "input and target: $(cat seen)"
passed
