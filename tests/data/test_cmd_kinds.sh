#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tokenizers that are not byte-level, end to end: a token file, a run that trains on text, what it generates, and its export with the
# tokenizer's file as it was.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
for i in $(seq 40); do echo "First Citizen: before we proceed any further, hear me speak. $i"; done > "$dir/text.txt"
small="model.layers=1 model.hidden=32 model.ffn=64 model.seq_len=16 batch.global=2 batch.micro=2 run.steps=2"
for kind in llama2 t5 bert; do
    at="$dir/$kind"
    mkdir "$at"
    cp "$root/tests/data/kinds/$kind.json" "$at/tokenizer.json"
    "$tutti" data tokenize --tokenizer "$at" --out "$at/out" "$dir/text.txt" > "$dir/said" 2>&1 || fail "$kind: tokenize: $(cat "$dir/said")"
    # shellcheck disable=SC2086
    "$tutti" train "$root/examples/quickstart.yaml" data.tokenizer="$at/tokenizer.json" data.train="$dir/text.txt" data.valid=[] run.dir="$at/run" $small \
        > "$dir/said" 2>&1 || fail "$kind: train: $(tail -3 "$dir/said")"
    "$tutti" generate "$at/run" --prompt "First Citizen" --max-tokens 8 > "$dir/said" 2>&1 || fail "$kind: generate: $(cat "$dir/said")"
    grep -q "First Citizen" "$dir/said" || fail "$kind: the prompt is not there: $(cat "$dir/said")"
    "$tutti" checkpoint export "$at/run" "$at/hf" > "$dir/said" 2>&1 || fail "$kind: export: $(cat "$dir/said")"
    cmp "$at/tokenizer.json" "$at/hf/tokenizer.json" || fail "$kind: the exported tokenizer is another"
done
passed
