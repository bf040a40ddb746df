#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti report --exponents: the picture of a run's numbers by exponent, of the step that is asked for; what is missing or
# damaged is said; a run that goes on drops the lines behind its checkpoint.
tutti=$1 root=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
train() {
    "$tutti" train "$root/examples/quickstart.yaml" model.layers=2 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=64 model.seq_len=32 batch.global=4 \
        batch.micro=2 "data.train=$root/README.md" data.valid=[] run.threads=1 "run.dir=$dir/run" precision.recipe=fp16 "$@" 2>"$dir/err" || fail "train: $(tail -4 "$dir/err")"
}
says() { # STATUS WORDS COMMAND...
    local status=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    local got=$?
    [ $got = "$status" ] || fail "$*: status $got, not $status: $(cat "$dir/out" "$dir/err")"
    grep -q "$words" "$dir/out" "$dir/err" || fail "$*: does not say '$words': $(cat "$dir/out" "$dir/err")"
}
train run.steps=2 checkpoint.every=2
says 2 "train with run.exponents_every" "$tutti" report "$dir/run" --exponents "$dir/a.svg"
train run.steps=5 checkpoint.every=2 checkpoint.keep=9 run.exponents_every=1
train run.steps=6 checkpoint.every=2 checkpoint.keep=9 run.exponents_every=1 checkpoint.resume=step-00000004
[ "$(grep -o '^{"step":[0-9]*' "$dir/run/exponents.jsonl" | tr -cd '0-9\n' | tr '\n' ' ')" = "3 4 5 6 " ] || fail "steps: $(cut -c1-20 "$dir/run/exponents.jsonl")"
says 0 a.svg "$tutti" report "$dir/run" --exponents "$dir/a.svg"
grep -q "step 6, fp16: numbers by size; red: without the loss scale" "$dir/a.svg" || fail "the head of the picture"
[ "$(grep -c 'class="bin"' "$dir/a.svg")" -gt 40 ] || fail "a picture without numbers"
[ "$(grep -c 'class="without"' "$dir/a.svg")" = 2 ] || fail "not two outlines without the loss scale"
! grep -qE '"-[0-9]|nan|inf' "$dir/a.svg" || fail "boxes of no size: $(grep -E '"-|nan|inf' "$dir/a.svg" | head -3)"
says 0 a.svg "$tutti" report "$dir/run" --exponents "$dir/a.svg" --step 4
grep -q "step 4, fp16" "$dir/a.svg" || fail "not step 4"
says 2 "has no step 7; it has 3, 4, 5, 6" "$tutti" report "$dir/run" --exponents "$dir/a.svg" --step 7
# Damaged lines are passed over: no number of theirs is drawn, or trusted as an index.
sed -i -e '2s/"first":-*[0-9]*/"first":-9000/' -e '3s/"counts":\[/"counts":[-1,/' -e '4s/"loss_scale":[0-9]*/"loss_scale":3/' "$dir/run/exponents.jsonl"
printf '{"step":9,"recipe":"<b>","loss_scale":1}\nhalf a li' >>"$dir/run/exponents.jsonl"
says 0 a.svg "$tutti" report "$dir/run" --exponents "$dir/a.svg"
grep -q "step 3, fp16" "$dir/a.svg" || fail "a damaged line was drawn: $(grep class=.head "$dir/a.svg")"
echo '{}' >"$dir/run/exponents.jsonl"
says 2 "has no line that tells numbers by exponent" "$tutti" report "$dir/run" --exponents "$dir/a.svg"
says 2 "workers of a parameter server do not add up" "$tutti" plan "$root/examples/quickstart.yaml" -n 3 parallel.servers=1 run.exponents_every=5
[ $failures = 0 ]
