#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# A byte is changed in each kind of file that a run leaves: token files, and every part of a checkpoint. Every command that reads the
# byte refuses with the file's name and a status above 0, and none does when the byte is put back. A cache that is seen to be damaged
# when it is opened is made again.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1

foxes 100 >text.txt
for i in $(seq 60); do echo "$i. Others sleep too, $((i * 5 % 7)) of them."; done >valid.txt
cat >tiny.yaml <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 24}
data: {train: [text.txt], valid: [valid.txt], cache_dir: cache}
batch: {global: 6, micro: 2}
checkpoint: {every: 2}
run: {threads: 1, steps: 4, tensorboard: false, eval_every: 4}
YAML
train() { "$tutti" train tiny.yaml run.dir="$1" "${@:2}"; }

# flip FILE AT: a bit of one byte; the same again puts it back. AT from the end when negative.
flip() {
    local at=$2 was
    [ "$at" -ge 0 ] || at=$(($(stat -c %s "$1") + at))
    was=$(od -An -tu1 -j "$at" -N1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((was ^ 4)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
# refused WHAT FILE COMMAND...: the status is 1 or 2, and what is said names the file
refused() {
    local what=$1 file=$2 status
    shift 2
    "$@" >log 2>&1 </dev/null
    status=$?
    [ $status = 1 ] || [ $status = 2 ] || fail "$what: status $status: $(tail -3 log)"
    grep -q -- "$file" log || fail "$what: no word of $file: $(tail -3 log)"
}
accepted() {
    "${@:2}" >log 2>&1 </dev/null || fail "$1: refused: $(tail -3 log)"
}
exported() { rm -rf out && "$tutti" checkpoint export "$1" out; }
resumed() { rm -rf again && train again checkpoint.resume="$1"; }

accepted "a first run" train first
"$tutti" data tokenize --tokenizer byte --out own text.txt >log 2>&1 || fail "tokenize: $(cat log)"
step=first/checkpoints/step-00000002

# ---- token files: 5 KB, so that one chunk holds all of the tokens ----
valid=$(grep -l . cache/*.tok | xargs ls -S | tail -1)
big=$(ls -S cache/*.tok | head -1)
for file in "$big" "$valid"; do
    for at in 4096 6000; do
        flip "$file" $at
        refused "training on byte $at of $file" "$file: damaged token file" train again checkpoint.resume=never
        grep -q "remove it and start again: it is a cache, and is made anew from" log || fail "no remedy: $(tail -1 log)"
        refused "two ranks on byte $at of $file" "$file: damaged token file" train again checkpoint.resume=never -n 2
        refused "resuming on it" "$file: damaged token file" resumed $step
        refused "inspecting it" "$file: damaged token file" "$tutti" data inspect "$file" --verify
        refused "showing it" "$file: damaged token file" "$tutti" data inspect "$file" --show 5
        flip "$file" $at
    done
    for at in 0 30 3000 4090 -1 -20 -60 -70; do # head, tail, the sums before it
        flip "$file" $at
        refused "inspecting byte $at" "$file" "$tutti" data inspect "$file"
        accepted "a damaged cache is made again" train again checkpoint.resume=never
        grep -q "$file: .*; making it again" log || fail "byte $at: no word that $file is made again"
        accepted "the new one" "$tutti" data inspect "$file" --verify
    done
done
flip own.tok 5000
refused "training on a token file of one's own" "own.tok: damaged token file.*; tokenize the text again" \
    train again checkpoint.resume=never "data.train=own"
[ -e own.tok ] || fail "a file of the user's was removed"

# ---- checkpoints ----
accepted "resuming" resumed $step
accepted "generating" "$tutti" generate $step --prompt a --max-tokens 2
accepted "exporting" exported $step
accepted "verifying" "$tutti" checkpoint verify $step
all() { # FILE: every command refuses
    refused "resuming: $1" "$1" resumed $step
    refused "two ranks resuming: $1" "$1" resumed $step -n 2
    refused "generating: $1" "$1" "$tutti" generate $step --prompt a --max-tokens 2
    refused "exporting: $1" "$1" exported $step
    [ ! -e out ] || fail "exporting: $1: left something"
    refused "verifying: $1" "$1" "$tutti" checkpoint verify $step
}
boxes=$step/boxes-00000.safetensors
header=$(od -An -tu8 -N8 $boxes)
for at in 3 40 $((header - 4)) $((header + 8)) $((header + 500)); do
    flip $boxes $at
    all "$boxes"
    refused "inspecting the tensors: byte $at" "$boxes" "$tutti" checkpoint inspect $step
    refused "comparing: byte $at" "$boxes" "$tutti" checkpoint diff $step first/checkpoints/step-00000004
    flip $boxes $at
done
for at in 0 100 -30 -3; do
    flip $step/manifest.json $at
    all $step/manifest.json
    refused "inspecting: manifest" $step/manifest.json "$tutti" checkpoint inspect $step
    flip $step/manifest.json $at
done
for name in tokenizer.json tokenizer_config.json; do
    flip $step/$name 20
    all $step/$name
    flip $step/$name 20
done
flip $step/config.yaml 20
refused "resuming: config.yaml" "$step/config.yaml" resumed $step
refused "verifying: config.yaml" "$step/config.yaml" "$tutti" checkpoint verify $step
flip $step/config.yaml 20
accepted "resuming from what was put back" resumed $step
accepted "verifying what was put back" "$tutti" checkpoint verify $step

passed
