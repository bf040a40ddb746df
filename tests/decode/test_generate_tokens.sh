#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti generate --tokens: the ids that a model is asked with, known by construction: of a tokenizer that puts nothing before a text, of one
# that puts a token there, of a template that puts several and ends a text; of an empty prompt; in every way of writing.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
for i in $(seq 60); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs."; done >text.txt
"$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=44 model.seq_len=64 batch.global=2 batch.micro=2 \
    data.train=text.txt data.valid=[] data.cache_dir=cache data.tokenizer=byte run.threads=1 run.tensorboard=false run.steps=1 run.dir=run >log 2>&1 ||
    { fail "train: $(tail -3 log)"; exit 1; }

# Tokenizers of eleven tokens. tokenizer NAME PROCESSOR CONFIG
tokenizer() {
    mkdir "$1"
    cat >"$1/tokenizer.json" <<END
{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "decoder": null, "post_processor": $2,
 "added_tokens": [{"id": 8, "content": "<s>", "special": true}, {"id": 9, "content": "</s>", "special": true}, {"id": 10, "content": "[GO]", "special": true}],
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "cd": 5, "abcd": 6, " ": 7}, "merges": ["a b", "c d", "ab cd"]}}
END
    echo "$3" >"$1/tokenizer_config.json"
}
text='{"Sequence": {"id": "A", "type_id": 0}}'
special() { printf '{"SpecialToken": {"id": "%s", "type_id": 0}}' "$1"; }
ids='"special_tokens": {"<s>": {"id": "<s>", "ids": [8], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [9], "tokens": ["</s>"]}, "[GO]": {"id": "[GO]", "ids": [10], "tokens": ["[GO]"]}}'
template() { printf '{"type": "TemplateProcessing", "single": [%s], "pair": [%s], %s}' "$1" "$text" "$ids"; }
ends='"bos_token": "<s>", "eos_token": "</s>"'
tokenizer none null "{$ends}"
tokenizer asked null "{$ends, \"add_bos_token\": true}" # which decides nothing
tokenizer start "$(template "$(special '<s>'), $text")" "{$ends}"
tokenizer unasked "$(template "$(special '<s>'), $text")" "{$ends, \"add_bos_token\": false}"
tokenizer both "$(template "$(special '[GO]'), $(special '<s>'), $text, $(special '</s>')")" "{$ends}"
tokenizer behind "$(template "$text, $(special '</s>')")" "{$ends}"
tokenizer bert '{"type": "BertProcessing", "cls": ["[GO]", 10], "sep": ["</s>", 9]}' "{$ends}"
tokenizer nameless null '{"bos_token": null, "eos_token": "</s>"}'

# ask TOKENIZER PROMPT IDS: as numbers between commas
ask() {
    local from=() wanted=$3 n=$(($(tr -dc , <<<"$3" | wc -c) + 1)) lines
    [ "$1" = own ] || from=(--tokenizer "$1")
    local usual=(generate run "${from[@]}" --temperature 0 --max-tokens 2 --dtype f32 --threads 1 --tokens)
    "$tutti" "${usual[@]}" --json --prompt "$2" >out 2>err || fail "$1 '$2': $(cat err)"
    grep -qF "\"prompt_ids\":[$wanted]," out && grep -qF "\"prompt_tokens\":$n," out || fail "$1 '$2': wanted $wanted, $n of them: $(cat out)"
    "$tutti" "${usual[@]}" --json --beams 2 --prompt "$2" >out 2>err || fail "$1 '$2', beams: $(cat err)"
    grep -qF "\"prompt_ids\":[$wanted]," out && grep -qF "\"prompt_tokens\":$n," out || fail "$1 '$2', beams: wanted $wanted: $(cat out)"
    "$tutti" "${usual[@]}" --prompt "$2" >out 2>err || fail "$1 '$2', as text: $(cat err)"
    grep -qx "the prompt is $n tokens:" err || fail "$1 '$2': wanted $n tokens: $(cat err)"
    lines=$(sed -n '/^the prompt is/,$p' err | sed -n "2,$((n + 1))p" | awk '{print $1}' | paste -sd,)
    [ "$lines" = "$wanted" ] || fail "$1 '$2': wanted $wanted in lines: $(cat err)"
    [ -n "$2" ] || return
    echo "{\"prompt\": \"$2\"}" >prompts.jsonl
    "$tutti" "${usual[@]}" --prompts prompts.jsonl >out 2>err || fail "$1 '$2', of a file: $(cat err)"
    grep -qF "\"prompt_ids\":[$wanted]," out && grep -qF "\"prompt_tokens\":$n," out || fail "$1 '$2', of a file: wanted $wanted: $(cat out)"
}
ask own 'ab c' 97,98,32,99
for t in none asked behind nameless; do ask $t 'abcd ab' 6,7,4; done
for t in start unasked; do ask $t 'abcd ab' 8,6,7,4; done
ask both 'abcd ab' 10,8,6,7,4
ask bert 'abcd ab' 10,6,7,4
# Who writes it puts it there a second time, and is shown it.
ask start '<s>a' 8,8,0
ask none '<s>a' 8,0
# An empty prompt begins a document: by what the tokenizer puts there, else by bos, else by what ends one.
ask start '' 8
ask both '' 10,8
ask none '' 8
ask behind '' 8
ask nameless '' 9
ask own '' 256
# Each as its piece.
"$tutti" generate run --tokenizer both --prompt 'cd' --max-tokens 1 --threads 1 --tokens >out 2>err || fail "pieces: $(cat err)"
[ "$(sed -n '/^the prompt is/,$p' err | sed -n 2,4p)" = "$(printf '%8d  %s\n' 10 '[GO]' 8 '<s>' 5 cd)" ] || fail "pieces: $(cat err)"
# What it says of add_bos_token, which older readers go by.
"$tutti" generate run --tokenizer asked --prompt a --max-tokens 1 --threads 1 >out 2>err
grep -q 'asked.*add_bos_token is true' err || fail "not a word of add_bos_token: $(cat err)"
# Without it nothing of that.
"$tutti" generate run --tokenizer both --prompt a --max-tokens 1 --threads 1 --json >out 2>err
grep -q 'prompt_ids' out err && fail "unasked: $(cat out err)"
# And they are what the model is asked with: the same ids, said in another way, give the same text.
said() { "$tutti" generate run "$@" --temperature 0 --max-tokens 8 --dtype f32 --threads 1 --json 2>err | grep -o '"text":"[^"]*"'; }
[ "$(said --tokenizer start --prompt 'abcd')" = "$(said --tokenizer none --prompt '<s>abcd')" ] || fail "the start is shown, and something else is asked: $(cat err)"
[ "$(said --tokenizer both --prompt 'abcd')" = "$(said --tokenizer none --prompt '[GO]<s>abcd')" ] || fail "the template is shown, and something else is asked"
passed
