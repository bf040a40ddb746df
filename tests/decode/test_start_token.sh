#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the tokenizer puts before a text stands before it in whatever asks a model: eval's matches and choices, data synthesise. A model that
# has learned its documents behind that token writes something else without it.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
for i in $(seq 60); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs."; done >text.txt
"$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=44 model.seq_len=64 batch.global=8 batch.micro=4 \
    data.train=text.txt data.valid=[] data.cache_dir=cache data.tokenizer=byte optimizer.lr=0.02 run.threads=1 run.tensorboard=false run.steps=60 run.dir=run >log 2>&1 ||
    { fail "train: $(tail -3 log)"; exit 1; }
none=run/checkpoints/latest/tokenizer.json
end='<|endoftext|>'
sed "s/\"post_processor\": null/\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"$end\"}}, {\"Sequence\": {\"id\": \"A\"}}], \
\"special_tokens\": {\"$end\": {\"id\": \"$end\", \"ids\": [256], \"tokens\": [\"$end\"]}}}/" $none >start.json
cmp -s $none start.json && fail "the tokenizer has no template now either"

usual=(--dtype f32 --threads 1)
said() { "$tutti" generate run --tokenizer "$1" --prompt "$2" --temperature 0 --max-tokens 8 "${usual[@]}" --json 2>err | sed 's/.*"text":"\([^"]*\)".*/\1/'; }
# A prompt after which something else is written, from the first letter on, where nothing stands before it: of these two letters each is the
# likelier in its own case, whatever a machine rounds.
plain='[A-Za-z0-9. ]'
for prompt in ov {0..9} {a..z} {A..Z}; do
    with=$(said start.json $prompt) without=$(said $none $prompt)
    [ "${with:0:1}" = "${without:0:1}" ] || [[ $with != $plain* || $without != $plain* ]] || break
done
[ "${with:0:1}" != "${without:0:1}" ] || fail "the start token changes nothing: '$with'"

score() { "$tutti" eval run --tasks "$1" --tokenizer "$2" "${usual[@]}" --json 2>err | grep -oE '"(exact_match|accuracy)":[0-9.]+' | cut -d: -f2; }
echo "{\"prompt\": \"$prompt\", \"target\": \"$with\", \"max_tokens\": 8}" >with.jsonl
echo "{\"prompt\": \"$prompt\", \"target\": \"$without\", \"max_tokens\": 8}" >without.jsonl
[ "$(score with.jsonl start.json)$(score with.jsonl $none)$(score without.jsonl start.json)$(score without.jsonl $none)" = 1001 ] ||
    fail "match: '$with' with a start: $(score with.jsonl start.json), $(score with.jsonl $none); '$without': $(score without.jsonl start.json), $(score without.jsonl $none): $(cat err)"
echo "{\"prompt\": \"$prompt\", \"choices\": [\"${with:0:1}\", \"${without:0:1}\"], \"answer\": 0}" >choice.jsonl
[ "$(score choice.jsonl start.json)$(score choice.jsonl $none)" = 10 ] || fail "choice: $(score choice.jsonl start.json), without $(score choice.jsonl $none): $(cat err)"

echo "{\"prompt\": \"$prompt\"}" >prompts.jsonl
for t in start.json $none; do
    rm -rf made
    "$tutti" data synthesise run --tokenizer $t --prompts prompts.jsonl --out made --plain --temperature 0 --max-tokens 8 "${usual[@]}" >log 2>&1 || fail "synthesise: $(cat log)"
    [ $t = $none ] && wanted=$without n=${#prompt} || { wanted=$with n=$((${#prompt} + 1)); }
    grep -qF "{\"text\": \"$wanted\"" made/part-00000.jsonl && grep -qF "\"prompt_tokens\":$n," made/part-00000.jsonl ||
        fail "synthesise with $t: wanted '$wanted' behind $n tokens: $(cat made/part-00000.jsonl)"
done
passed
