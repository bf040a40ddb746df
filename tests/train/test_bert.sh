#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long threads
# An encoder of text from its examples: hidden tokens, the same on more ranks and after an interruption; classes of texts on top of
# what was learnt, which it tells; its form of Hugging Face goes out and in; what is refused.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
mkdir text
cp "$root/CONTRIBUTING.md" "$root/SECURITY.md" text
small=(model.layers=1 model.hidden=32 model.heads=2 model.seq_len=48 model.max_positions=64 batch.global=8 batch.micro=2 precision.recipe=fp32
    run.threads=1 run.tensorboard=false)
hide=("$tutti" train "$root/examples/bert.yaml" "${small[@]}" data.train=text "data.valid=[]" data.cache_dir=cache checkpoint.every=6 run.eval_every=0)
losses() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
"${hide[@]}" run.dir=bert run.steps=12 2>log || fail "it does not train: $(tail -3 log)"
"${hide[@]}" run.dir=again run.steps=6 -n 2 parallel.tp=2 2>log || fail "two ranks: $(tail -3 log)"
"${hide[@]}" run.dir=again run.steps=12 2>log || fail "it does not go on: $(tail -3 log)"
paste <(losses bert) <(losses again) | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-3) bad = 1 } END { exit bad || NR != 12 }' ||
    fail "another run: $(paste <(losses bert) <(losses again))"

# Texts of a's are of class 1, of b's of class 0.
for i in $(seq 1 32); do printf '{"label": %d, "text": "%s"}\n' $((i % 2)) "$(printf '%*s' $((3 + i)) '' | tr ' ' "$([ $((i % 2)) = 1 ] && echo a || echo b)")"; done >c.jsonl
tell=("$tutti" train "$root/examples/bert_classes.yaml" "${small[@]}" model.classes=2 data.cache_dir=cache "data.train=[{path: c.jsonl, label: label}]"
    "data.valid=[{path: c.jsonl, label: label}]" run.eval_every=20 checkpoint.every=20)
"${tell[@]}" model.from=bert run.dir=told run.steps=20 optimizer.lr=3.0e-3 2>log || fail "classes: $(tail -3 log)"
grep -q "the head of model.classes is drawn anew" log || fail "of the new head nothing is said: $(cat log)"
tail -2 told/metrics.jsonl | grep -q '"valid_accuracy": *1[,.}]' || fail "it does not tell a from b: $(tail -2 told/metrics.jsonl)"
"${tell[@]}" model.from=bert run.dir=two run.steps=3 run.eval_every=0 -n 2 parallel.cp=2 2>log || fail "classes on two ranks: $(tail -3 log)"
"${tell[@]}" model.from=bert run.dir=one run.steps=3 run.eval_every=0 2>log || fail "classes: $(tail -3 log)"
paste <(losses one) <(losses two) | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-3) bad = 1 } END { exit bad || NR != 3 }' || fail "classes on two ranks are others"
for run in bert told; do
    "$tutti" checkpoint export $run $run.hf 2>log && "$tutti" checkpoint import $run.hf $run.back 2>log || fail "$run does not go out and in: $(tail -3 log)"
done
expect() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1 && fail "$*: not refused"
    grep -qF -- "$words" out || fail "$*: no '$words': $(head -5 out)"
}
expect "both ways" "$tutti" generate bert --prompt x
expect "has no label" "${tell[@]}" run.dir=x "data.train=[c.jsonl]"
expect "tells no classes" "${hide[@]}" run.dir=x "data.train=[{path: c.jsonl, label: label}]"
expect "c.jsonl:1: \"text\": wanted a class" "${tell[@]}" run.dir=x "data.train=[{path: c.jsonl, label: text}]"
expect "data.mlm.token: the tokenizer has no token" "${hide[@]}" run.dir=x data.mlm.id=-1
passed
