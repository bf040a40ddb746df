#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# What a stranger copies from the README runs: every command of the program there, in order, in a folder with the README's names;
# training is cut short, FOLDER is some text, HF_FOLDER an exported model. `bench` takes minutes and has tests of its own.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
ran=0
mkdir -p "$dir/build" "$dir/FOLDER"
ln -s "$tutti" "$dir/build/tutti"
cp -r "$root/examples" "$root/docs" "$root/README.md" "$dir/"
mkdir -p "$dir/tests" && cp -r "$root/tests/train" "$dir/tests/train" && cp -r "$root/src" "$dir/src"
cp "$root/CONTRIBUTING.md" "$dir/FOLDER/a.txt"
cd "$dir" || exit 1
short=(model.layers=5 model.hidden=32 model.heads=4 model.ffn=64 model.seq_len=32 batch.global=16 run.steps=2 run.threads=1 run.eval_batches=1)
"$tutti" train examples/quickstart.yaml "${short[@]}" data.train=FOLDER data.valid=[] run.dir=hf >log 2>&1 && "$tutti" checkpoint export hf HF_FOLDER >log 2>&1 ||
    fail "no model to start from: $(tail -2 log)"

while read -r line; do
    line=${line%%#*}
    read -ra words <<<"$line"
    more=()
    case $line in
    *" bench "*) continue ;;
    *"train --help"*) ;;
    *"train examples/finetune"*) more=(model.seq_len=32 run.steps=2 run.threads=1) ;;
    *"train examples/five_d"*) more=(run.steps=1 run.threads=1 data.train=FOLDER data.valid=[]) ;;
    *" train "*) more=("${short[@]}") ;;
    esac
    # shellcheck disable=SC2086
    eval "${line}" '"${more[@]}"' >log 2>&1 || fail "$line: $(tail -2 log)"
    ran=$((ran + 1))
done < <(grep -E '^    build/tutti ' "$root/README.md")
[ $ran -ge 12 ] || fail "the README has only $ran commands"
# What it says of verify is what verify says.
grep -q "$("$tutti" verify examples/quickstart.yaml -n 4 model.layers=2 model.hidden=32 model.ffn=64 model.seq_len=32 batch.global=4 batch.micro=2 | tail -1)" \
    "$root/README.md" || fail "verify says something else than the README"
passed
