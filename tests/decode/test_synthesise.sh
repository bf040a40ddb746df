#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti data synthesise: samples are what generate says, a function of (model, options, seed, prompt, sample) and of nothing else; provenance;
# filters; killed at any moment or out of room it goes on with the same bytes; bad prompts are told with file and line.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
foxes 200 >text.txt
"$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=44 model.seq_len=64 batch.global=8 batch.micro=4 \
    data.train=text.txt data.valid=[] data.cache_dir=cache data.tokenizer=byte optimizer.lr=0.02 run.threads=1 run.tensorboard=false run.steps=60 run.dir=run >log 2>&1 ||
    { fail "train: $(tail -3 log)"; exit 1; }
for i in $(seq 0 11); do echo "{\"prompt\": \"The quick $i\", \"topic\": \"dogs $i\", \"n\": $i}"; done >prompts.jsonl

# made OUT ARGUMENTS...: one run; its lines in the order of the parts go to OUT.lines.
made() {
    local out=$1
    shift
    "$tutti" data synthesise run --prompts prompts.jsonl --out "$out" --max-tokens 12 --dtype f32 --threads 1 --plain "$@" >"$out.said" 2>"$out.err" ||
        { fail "$out: status $?: $(tail -2 "$out.err")"; return 1; }
    cat "$out"/part-*.jsonl >"$out.lines" 2>/dev/null
}
# refused STATUS WORDS ARGUMENTS...
refused() {
    local wanted=$1 words=$2 status
    shift 2
    "$tutti" data synthesise run --max-tokens 4 --threads 1 "$@" >refused.out 2>refused.err
    status=$?
    [ $status = "$wanted" ] || fail "$*: status $status: $(cat refused.err)"
    grep -qE -- "$words" refused.err || fail "$*: not a word of '$words': $(cat refused.err)"
}
same() { diff -r --exclude=.lock "$1" "$2" >differ 2>&1 || fail "$1 and $2 differ: $(head -c 600 differ)"; }

# What it says is what generate says.
made greedy --temperature 0
[ "$(wc -l <greedy.lines)" = 12 ] || fail "12 prompts gave $(wc -l <greedy.lines) lines: $(cat greedy.said)"
said=$("$tutti" generate run --prompt 'The quick 7' --max-tokens 12 --temperature 0 --dtype f32 --threads 1 --json 2>/dev/null | grep -o '"text":"[^"]*"')
[ -n "$said" ] && [ "$(sed -n 8p greedy.lines | sed 's/^{"text": \("[^"]*"\).*/"text":\1/')" = "$said" ] || fail "prompt 7: generate says $said: $(sed -n 8p greedy.lines)"

# A Hugging Face directory says the same, and has no step; --rules may be absent, the file packed.
"$tutti" checkpoint export run hf --dtype f32 >log 2>&1 || fail "export: $(cat log)"
gzip -c prompts.jsonl >prompts.jsonl.gz
"$tutti" data synthesise hf --prompts prompts.jsonl.gz --out theirs --max-tokens 12 --dtype f32 --threads 1 --plain --temperature 0 >log 2>&1 || fail "hf: $(cat log)"
diff <(sed 's/, "source.*//' greedy.lines) <(sed 's/, "source.*//' theirs/part-*) >differ || fail "a Hugging Face directory says something else: $(head -2 differ)"
grep -q '"model":"hf","weights":"[0-9a-f]*","tokenizer"' theirs/part-00000.jsonl || fail "hf: $(head -1 theirs/part-00000.jsonl)"
sed -i 's/"bos_token_id"/"bos_token_id" /' hf/config.json
if "$tutti" data synthesise hf --prompts prompts.jsonl.gz --out theirs --max-tokens 12 --dtype f32 --threads 1 --plain --temperature 0 >log 2>&1; then fail "other files, and nobody says so"; fi
grep -q 'other weights or another tokenizer' log || fail "other files: $(cat log)"

# Provenance; the same samples for other numbers of threads, parts, samples and prompts.
made all --samples 3 --part-samples 7
[ "$(ls all)" = "$(printf 'part-0000%s.jsonl\n' 0 1 2 3)" ] || fail "parts of 9, 9, 9 and 9: $(ls all)"
grep '"prompt":5,"sample":1,' all.lines | grep -qE '^\{"text": ".+", "source": "prompts.jsonl", "document": 5, "offset": [0-9]+, "bytes": [0-9]+, "prompt":"The quick 5","generated":\{"model":"run/checkpoints/step-00000060","step":60,"weights":"[0-9a-f]{16}","tokenizer":"[0-9a-f]{16}","dtype":"f32","seed":1,"prompt":5,"sample":1,"temperature":0.8,"top_k":0,"top_p":1,"max_tokens":12,"max_length":64,"prompt_tokens":11,"tokens":[0-9]+,"stopped":"(length|end of text)"\}\}$' ||
    fail "provenance: $(grep '"prompt":5' all.lines)"
[ "$(sed 's/^{"text": \("[^"]*"\).*/\1/' all.lines | sort -u | wc -l)" -gt 20 ] || fail "36 samples are nearly all the same: $(cut -c1-40 all.lines)"
"$tutti" checkpoint inspect run --json | grep -q '"step": *60' || fail "the run has no step 60"
grep -q "^all: $(wc -l <all.lines) of 36 samples kept (.* %), .* of 12 prompts, 4 parts" all.said && [ "$(wc -l <all.lines)" -ge 30 ] || fail "counts: $(cat all.said)"
for i in 1 2 3 4; do head -1 prompts.jsonl; done >alike.jsonl
"$tutti" data synthesise run --prompts alike.jsonl --out alike --plain --threads 1 --max-tokens 12 >log 2>&1 || fail "alike: $(cat log)"
[ "$(sed 's/^{"text": \("[^"]*"\).*/\1/' alike/part-00000.jsonl | sort -u | wc -l)" = 4 ] || fail "the same prompt four times gives the same text: $(cut -c1-60 alike/part-*)"
for batch in 1 5 40; do
    made batch$batch --samples 3 --part-samples 7 --batch $batch
    diff all.lines batch$batch.lines >differ || fail "$batch at once say something else: $(head -2 differ)"
done
made threads --samples 3 --part-samples 7 --threads 2
same all threads
made one --samples 1
diff <(grep '"sample":0,' all.lines) one.lines >differ || fail "sample 0 is another one when there is one: $(head -2 differ)"
head -5 prompts.jsonl >few && mv prompts.jsonl twelve && mv few prompts.jsonl
made few --samples 3
mv twelve prompts.jsonl
diff <(grep '"prompt":[0-4],"sample"' all.lines) few.lines >differ || fail "five prompts of twelve give other samples: $(head -2 differ)"
made seed --samples 3 --seed 2
diff -q <(cut -d, -f1 all.lines) <(cut -d, -f1 seed.lines) >/dev/null && fail "another seed gives the same samples"

# Killed at any moment it goes on; a start that finds everything done does nothing.
many=(--max-tokens 40 --samples 6 --part-samples 6)
made whole "${many[@]}"
for parts in 1 2 5 9; do
    "$tutti" data synthesise run --prompts prompts.jsonl --out killed --dtype f32 --threads 1 --plain "${many[@]}" >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ ! -e "killed/part-0000$parts.jsonl" ]; do :; done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $parts != 1 ] || cp killed/.synthesis.json earlier
    for f in killed/part-*; do cmp -s "$f" "whole/${f#killed/}" || fail "killed: $f is not what it shall be"; done
done 2>/dev/null
grep -q '"complete":false' earlier || fail "the first kill came too late: $(head -c 300 earlier)"
made killed "${many[@]}"
same whole killed
made killed "${many[@]}"
grep -q 'nothing was left to do' killed.said || fail "done, and says: $(cat killed.said)"
same whole killed
# As after a kill between a part and its count, with an unfinished one.
cp earlier killed/.synthesis.json
echo garbage >killed/.part-00002.jsonl.tmp
made killed "${many[@]}"
grep -qE 'goes on behind sample (6|12|18)$' killed.err || fail "from the start: $(cat killed.err)"
same whole killed
# What it left is damaged.
for bad in 's/"complete":true/"complete":/' 's/"parts":\[[0-9]*/"parts":[-1/' 's/"samples":72/"samples":-72/' 's/"schema":"tutti/"schema":"tuttj/'; do
    rm -rf harmed && cp -r whole harmed && sed -i "$bad" harmed/.synthesis.json
    refused 2 'what an earlier start left is damaged' --prompts prompts.jsonl --out harmed --dtype f32 --plain "${many[@]}"
done

# No room: what was complete stays, nothing unfinished has a name, and it goes on.
for most in 1 2 3; do
    (trap '' XFSZ && ulimit -f $most && "$tutti" data synthesise run --prompts prompts.jsonl --out room --max-tokens 12 --dtype f32 --threads 1 --plain --samples 3 --part-samples 7) >log 2>&1 &&
        fail "$most KiB were enough"
    for f in room/part-*; do [ ! -e "$f" ] || cmp -s "$f" "all/${f#room/}" || fail "no room: $f is not what it shall be"; done
done
made room --samples 3 --part-samples 7
same all room

# Filters see what was generated, or with --with-prompt all of it; what they removed is counted.
printf 'rules:\n  - length: {max_chars: 14}\n' >short.yaml
made short --samples 2 --rules short.yaml
[ "$(wc -l <short.lines)" -ge 20 ] && grep -q 'length  *dropped 0 of 24' short.said || fail "24 samples of 12 characters: $(cat short.said)"
made long --samples 2 --rules short.yaml --with-prompt
grep -qE 'length  *dropped (2[0-4]) of 24' long.said && [ "$(wc -l <long.lines)" -le 4 ] || fail "with their prompts they are longer: $(cat long.said)"
made with --samples 2 --with-prompt
grep -vq '^{"text": "The quick [0-9]' with.lines && fail "--with-prompt: $(head -1 with.lines)"
"$tutti" data synthesise run --prompts prompts.jsonl --out packed --max-tokens 12 --dtype f32 --threads 1 --samples 3 --part-samples 7 >log 2>&1 || fail "packed: $(cat log)"
# What is packed is read as the folder that it is, and holds the same.
tokens() { # FOLDER
    mkdir "$1.t" && "$tutti" data tokenize --tokenizer byte --out "$1.t/t" "$1" >/dev/null 2>log || fail "tokenize $1: $(cat log)"
    (cd "$1.t" && "$tutti" data inspect t --tokenizer byte --show 9999 | grep -v "on disk") # whose size counts the names of files
}
[ "$(tokens packed)" = "$(tokens all)" ] || fail "packed parts hold other text"

# Templates.
echo -n 'On {{ topic | upper }}, {{ n + 1 }}:' >t.jinja
made text --template 'On {{ topic | upper }}, {{ n + 1 }}:'
made file --template t.jinja
cmp -s text.lines file.lines || fail "a template is another one in a file"
sed -n 4p text.lines | grep -q '"prompt":"On DOGS 3, 4:"' || fail "template: $(sed -n 4p text.lines)"

# The model hits its end: 60 tokens of prompt leave room for 5 (64 positions, and one that is said and not read).
echo "{\"prompt\": \"$(printf 'x%.0s' $(seq 60))\"}" >long.jsonl
"$tutti" data synthesise run --prompts long.jsonl --out end --plain --threads 1 --temperature 0 >log 2>&1 || fail "end: $(cat log)"
grep -q '"tokens":5,"stopped":"cache full"' end/part-00000.jsonl || fail "end: $(cat end/part-*)"

# Refused, by file and line.
{ cat prompts.jsonl; echo '{"question": "what?"}'; } >lacks.jsonl
refused 2 'lacks.jsonl:13: wanted a string member "prompt" \(it has: question\)' --prompts lacks.jsonl --out bad
[ "$(ls bad)" = "" ] || fail "something was made before the bad prompt was told: $(ls bad)"
refused 2 "lacks.jsonl:13: .*'topic' is undefined" --prompts lacks.jsonl --out bad --template 'On {{ topic }}'
{ echo '{"prompt": 3}'; echo '{"prompt": ""}'; echo 'no JSON'; head -1 prompts.jsonl; echo '{"prompt": "a\u0000b"}'; echo "{\"prompt\": \"$(printf 'x%.0s' $(seq 65))\"}"; } >worst.jsonl
refused 2 'worst.jsonl:1: wanted a string member' --prompts worst.jsonl --out bad
"$tutti" data synthesise run --prompts worst.jsonl --out skips --plain --threads 1 --skip-bad --max-tokens 4 --json >skips.out 2>log || fail "--skip-bad: $(cat log)"
grep -q '"prompts":1,"bad":5,"samples_made":1,' skips.out || fail "--skip-bad: $(cat skips.out)"
[ "$(grep -o '^worst.jsonl:[0-9]' skips.skipped | tr -d '\n')" = "$(printf 'worst.jsonl:%s' 1 2 3 5 6)" ] || fail "skipped: $(cat skips.skipped)"
grep -q '65 tokens long, and there is room for 64' skips.skipped || fail "no word of the length: $(cat skips.skipped)"
grep -q '"prompt":2,"sample":0' skips/part-00000.jsonl || fail "its number: $(cat skips/part-*)"
: >empty.jsonl
refused 2 'empty.jsonl' --prompts empty.jsonl --out bad
refused 2 'absent.jsonl: No such file' --prompts absent.jsonl --out bad
refused 2 'there is no file t.jnja' --prompts prompts.jsonl --out bad --template t.jnja
refused 2 -- '--template:1:' --prompts prompts.jsonl --out bad --template 'On {{ topic'
refused 2 'would be the same' --prompts prompts.jsonl --out bad --samples 2 --temperature 0
refused 2 'other options' --prompts prompts.jsonl --out all --plain --samples 3 --part-samples 7
echo kept >all.skipped
refused 2 'other prompts' --prompts long.jsonl --out all --plain --samples 3 --part-samples 7
[ "$(cat all.skipped)" = kept ] || fail "a refused start takes the list of what was skipped before"
"$tutti" data train-tokenizer --vocab-size 1000 --out other.json text.txt >log 2>&1 || fail "tokenizer: $(cat log)"
refused 2 'prompts.jsonl:[0-9]*: token [0-9]* of the prompt is not below the model.s vocabulary of [0-9]*: another tokenizer' --prompts prompts.jsonl --out bad --tokenizer other.json
refused 2 'is not empty' --prompts prompts.jsonl --out run
rm all/part-00002.jsonl
"$tutti" data synthesise run --prompts prompts.jsonl --out all --max-tokens 12 --dtype f32 --threads 1 --plain --samples 3 --part-samples 7 >log 2>&1 && fail "a part is gone, and nobody says so"
grep -q 'part-00002.jsonl: is gone' log || fail "a part is gone: $(cat log)"
passed
