#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long addresses
# What --json prints: one object, the schema first, and no field that docs/json.md does not name in the section of that schema.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
export LC_ALL=C
tiny=(model.layers=2 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=64 model.seq_len=32 batch.global=4 batch.micro=2)
config=$root/examples/quickstart.yaml

# section NAME: how its heading begins, the schema or the file.
section() { case $1 in metrics) echo 'metrics\.jsonl' ;; *) echo "tutti\.$1\.[0-9]" ;; esac; }
# documented NAME: the words in backquotes of that section.
documented() {
    [ -e "$dir/documented.$1" ] || sed -n "/^## $(section "$1")/,/^## /p" "$root/docs/json.md" | grep -oE '`[^`]+`' | tr -d '`' | sort -u >"$dir/documented.$1"
    cat "$dir/documented.$1"
}
names=()
# check NAME COMMAND...: the command's output, 0 or 1 its status.
check() {
    local name=$1 status
    shift
    names+=("$name")
    "$tutti" "$@" >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status -le 1 ] || { fail "$*: status $status: $(tail -2 "$dir/err")"; return; }
    tr -d '\n' <"$dir/out" | grep -qE "^\{ *\"schema\": ?\"tutti\.$name\.[0-9]+\",.*\} *$" || fail "$*: no object that begins with the schema of $name: $(head -c 200 "$dir/out")"
    [ "$(documented "$name" | wc -l)" -gt 3 ] || fail "docs/json.md has no section of $name"
    named "$name" "$dir/out"
}
# named NAME FILE: all of its keys are in the section.
named() {
    documented "$1" >/dev/null
    { grep -oE '"[A-Za-z_0-9.]+": ?' "$2" || true; } | tr -d '": ' | sort -u | grep -v '^schema$' | comm -23 - "$dir/documented.$1" >"$dir/missing"
    [ ! -s "$dir/missing" ] || fail "$1: docs/json.md does not name $(tr '\n' ' ' <"$dir/missing")"
    cat "$2" >>"$dir/all.$1"
}
# unprinted NAME: the fields (first column of the section's table) that none of the checked commands printed.
unprinted() {
    sed -n "/^## $(section "$1")/,/^## /p" "$root/docs/json.md" | sed -n 's/^| \(`[^|]*\) |.*/\1/p' | grep -oE '`[^`]+`' | tr -d '`' |
        sort -u | comm -23 - <(grep -oE '"[^"]+":' "$dir/all.$1" | tr -d '":' | sort -u)
}

check plan plan "$root/examples/five_d.yaml" -n 16 --json
check plan plan "$config" -n 3 --json "${tiny[@]}" parallel.servers=1
check plan plan "$config" --json "${tiny[@]}" memory.recompute=auto memory.limit=1GiB
check plan plan "$config" -n 2 --json "${tiny[@]}" memory.recompute=auto memory.limit=1GiB
grep -q '"sent_step_bytes":' "$dir/out" || fail "a zero level that is left open is not among what was chosen"
check plan plan "$config" -n 2 --json "${tiny[@]}" parallel.pp=2 memory.recompute=auto memory.limit=1GiB
grep -q '"step_ratio":' "$dir/out" || fail "how long a pipeline's step is is not among what was chosen from"
check plan plan "$config" --json "${tiny[@]}" optimizer.name=muon
for view in layout tape schedule memory comm; do
    check "explain-$view" explain "$root/examples/five_d.yaml" "$view" -n 16 --json
    check "explain-$view" explain "$config" "$view" -n 3 --json "${tiny[@]}" parallel.servers=1
    check "explain-$view" explain "$config" "$view" --json "${tiny[@]}" memory.recompute=full model.dropout=0.1
done
check explain-binding explain "$config" binding -n 4 --json "${tiny[@]}" run.bind=core --topology "synthetic:package:2 core:4 pu:2"
check explain-memory explain "$config" memory --json "${tiny[@]}" optimizer.moments=8bit
grep -q '"row_block": *256' "$dir/out" || fail "moments in 8 bits have no row_block"
check verify verify "$config" -n 2 --json "${tiny[@]}"
check schedule schedule interleaved --stages 2 --microbatches 4 --json
check bench-gemm bench gemm --model tiny --tokens 32 --threads 1 --json
check bench-train bench train --model tiny --seq 32 --micro 1 --ranks 2 --threads 1 --steps 1 --json comm.link_GBps=1
check bench-train bench train --model tiny --seq 32 --micro 1 --threads 1 --steps 1 --json optimizer.name=muon
check bench-generate bench generate --model tiny --prompt 8 --tokens 2 --sequences 2 --threads 1 --json
check bench-generate bench generate --model tiny --prompt 8 --tokens 2 --sequences 1 --threads 1 --weights int8 --json
mkdir "$dir/disk"
check bench-train bench train --model tiny --seq 32 --micro 1 --threads 1 --steps 1 --json "memory.offload=[optimizer]" "memory.offload_to=$dir/disk"
check bench-experts bench experts --rows 64 --hidden 32 --ffn 32 --threads 1 --json
check bench-cast bench cast --elements 1000 --threads 1 --json
check bench-checkpoint bench checkpoint --model tiny --dir "$dir" --runs 1 --seq 16 --micro 1 --threads 1 --json
check bench-data bench data "$config" --need 1000 --seconds 0.01 --rules "$root/examples/rules/clean.yaml" --dedup exact --json "${tiny[@]}" "data.train=$root/README.md" "run.dir=$dir/measured"
check bench-comm bench comm --bytes 4K --seconds 0.01 --json
"$tutti" train "$config" "${tiny[@]}" "data.train=$root/README.md" data.valid=[] run.steps=2 run.threads=1 checkpoint.every=1 "run.dir=$dir/run" \
    2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
"$tutti" train "$config" -n 2 "${tiny[@]}" "data.train=$root/README.md" data.valid=[] run.steps=3 run.threads=1 parallel.pp=2 checkpoint.every=0 "run.dir=$dir/traced" \
    "run.trace=$dir/trace.json" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
check trace trace "$dir/trace.json" --json
check replay replay "$dir/run" --step 2 --json
check watch watch "$dir/run" --json
check checkpoint-list checkpoint list "$dir/run" --json
check checkpoint-inspect checkpoint inspect "$dir/run" --histogram --json
# the name of the run that saved it
"$tutti" checkpoint inspect "$dir/run" | grep -qx "run $(cat "$dir/run/name")" || fail "inspect: $("$tutti" checkpoint inspect "$dir/run" | head -3)"
"$tutti" checkpoint inspect "$dir/run" --json | grep -qE "\"run\": ?\"$(cat "$dir/run/name")\"" || fail "inspect --json lacks the run's name"
check checkpoint-diff checkpoint diff "$dir/run/checkpoints/step-00000001" "$dir/run/checkpoints/step-00000002" --json
check checkpoint-verify checkpoint verify "$dir/run" --json
grep -q '"problems":\[\],"ok":true' "$dir/out" || fail "checkpoint verify: $(cat "$dir/out")"
cp -r "$dir/run/checkpoints" "$dir/hurt"
boxes=$(find "$dir/hurt/step-00000002" -name 'boxes-*.safetensors' | head -1)
printf '\x55\xaa' | dd of="$boxes" bs=1 seek=$(($(stat -c %s "$boxes") - 7)) conv=notrunc status=none
"$tutti" checkpoint verify "$dir/hurt/step-00000002" --json >"$dir/out" 2>"$dir/err"
[ $? = 2 ] && grep -q '"ok":false,"whole":"[^"]*/step-00000001"' "$dir/out" || fail "verify of a damaged one: $(cat "$dir/out" "$dir/err")"
"$tutti" checkpoint verify "$dir/hurt/step-00000002" >"$dir/out"
grep -q 'before it that is whole is .*/step-00000001$' "$dir/out" || fail "verify of a damaged one: $(cat "$dir/out")"
printf '%s\n' '{"text":"some words of a text"}' '{"prompt":"a","choices":["b","cc"],"answer":1}' '{"prompt":"a","target":"b","max_tokens":2}' >"$dir/tasks.jsonl"
check eval eval "$dir/run" --tasks "$dir/tasks.jsonl" --json
check generate generate "$dir/run" --prompt 'a "b' --max-tokens 4 --json
grep -q '"prompt":"a \\"b","text":".*","stopped":"length","prompt_tokens":4,"new_tokens":4,' "$dir/out" || fail "generate: $(cat "$dir/out")"
check data-tokenize data tokenize --tokenizer byte --out "$dir/t" "$root/README.md" --json
check data-export-megatron data export-megatron "$dir/t" --out "$dir/m" --json
check data-import-megatron data import-megatron "$dir/m" --tokenizer byte --out "$dir/t2" --json
check data-inspect data inspect "$dir/t" --tokenizer byte --show 10 --verify --json
check data-inspect-samples data inspect "$dir/t" --tokenizer byte --sample 0 --json
check data-inspect-media data inspect "$root/tests/fuzz/corpus/image/exif.jpg" --json
check data-dedup data dedup --out "$dir/once" "$root/README.md" "$root/CHANGELOG.md" "$root/README.md" --steps exact,near -n 1 --json
grep -q '"documents_in": *3, *"documents_out": *2' "$dir/out" || fail "data dedup: $(cat "$dir/out")"
printf 'rules:\n  - length: {min_words: 100}\n' >"$dir/rules.yaml"
check data-clean data clean "$dir/rules.yaml" "$root/README.md" "$root/tests/script.sh" --out "$dir/clean" --json
echo '{"prompt": "a b"}' >"$dir/prompts.jsonl"
check data-synthesise data synthesise "$dir/run" --prompts "$dir/prompts.jsonl" --rules "$dir/rules.yaml" --out "$dir/made" --max-tokens 4 --json
grep -q '"samples_made":1,.*"new_tokens":4,.*"kept":0,' "$dir/out" || fail "data synthesise: $(cat "$dir/out")"
check data-train-language data train-language --label "en=$root/README.md" --label "c=$root/src/base" --out "$dir/l.model" --json
for i in $(seq 200); do echo "{\"text\": \"good $i news of the day\"}"; done >"$dir/good.jsonl"
for i in $(seq 200); do echo "{\"text\": \"buy $i cheap pills now\"}"; done >"$dir/bad.jsonl"
check data-train-classifier data train-classifier --positive "$dir/good.jsonl" --negative "$dir/bad.jsonl" --out "$dir/q.model" --bits 12 --json
for n in 3 40 7 90 12; do printf '{"text": "%s"}\n' "$(head -c $n "$root/README.md" | tr -c a-z x)"; done >"$dir/some.jsonl"
check data-ledger data ledger "$config" "${tiny[@]}" -n 2 parallel.cp=2 "data.train=[$dir/some.jsonl]" data.valid=[] data.tokenizer=byte data.pack=best_fit data.parts=2 "run.dir=$dir/ledger" run.skip=[2] --step 2 --json
check data-train-tokenizer data train-tokenizer --vocab-size 300 --out "$dir/tok.json" "$root/README.md" --json

# What a run writes of its steps, of each kind.
"$tutti" train "$config" -n 2 "${tiny[@]}" model.family=mixtral model.moe.experts=4 model.mtp.depth=2 parallel.ep=2 moe.buffer=0.1 moe.buffer_least=1 \
    precision.recipe=fp16 "data.train=$root/README.md" "data.valid=$root/CHANGELOG.md" run.eval_every=1 checkpoint.best=eval_loss run.steps=1 run.threads=1 \
    checkpoint.every=0 "run.dir=$dir/experts" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
grep -qE '"expert_rounds": ?[1-9][0-9.]*, ?"expert_rounds_most": ?([2-9]|[1-9][0-9])' "$dir/experts/metrics.jsonl" ||
    fail "no rounds of experts: $(cat "$dir/experts/metrics.jsonl")"
grep -qE '"mtp_loss":\[[0-9.]+,[0-9.]+\]' "$dir/experts/metrics.jsonl" || fail "no loss of modules: $(cat "$dir/experts/metrics.jsonl")"
named metrics "$dir/experts/metrics.jsonl"
# Saved, gone on from in another layout: one number of the state, that of the checkpoint.
states=("$tutti" train "$config" "${tiny[@]}" "data.train=$root/README.md" data.valid=[] model.document_mask=true run.threads=1 run.tensorboard=false "run.dir=$dir/states")
mkdir -m 700 "$dir/memory"
"${states[@]}" -n 2 parallel.cp=2 run.steps=2 checkpoint.memory_every=1 "checkpoint.memory_dir=$dir/memory" >"$dir/out" 2>&1 && "${states[@]}" run.steps=3 >"$dir/out" 2>&1 || fail "states: $(tail -2 "$dir/out")"
named metrics "$dir/states/metrics.jsonl"
of() { grep -o "^{\"step\":2,\"$1\":{\"step\":2,\"state\":\"[0-9a-f]\{16\}\"}}" "$dir/states/metrics.jsonl" | grep -o '[0-9a-f]\{16\}'; }
state=$(grep -o '"state": *"[0-9a-f]\{16\}"' "$dir/states/checkpoints/step-00000002/manifest.json" | grep -o '[0-9a-f]\{16\}' | grep -x "$(of saved)" | head -1)
[ -n "$state" ] && [ "$(of loaded)" = "$state" ] || fail "states of step 2: '$state', saved $(of saved), loaded $(of loaded): $(cat "$dir/states/metrics.jsonl")"

"$tutti" train "$config" "${tiny[@]}" precision.recipe=mxfp8 precision.telemetry=2 "data.train=$root/README.md" data.valid=[] data.pack=best_fit run.steps=3 run.threads=1 \
    checkpoint.every=0 "run.dir=$dir/rounded" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
[ "$(grep -c '"rounded":\[{"product":"attn.q.weight","operand":"x","layer":\[0,1\],"amax":\[' "$dir/rounded/metrics.jsonl")" = 1 ] || fail "one look in three steps: $(cat "$dir/rounded/metrics.jsonl")"
"$tutti" train "$config" "${tiny[@]}" precision.recipe=mxfp8 precision.telemetry=1 precision.fallback.after=1 precision.fallback.error=0 "data.train=$root/README.md" \
    data.valid=[] run.steps=2 run.threads=1 checkpoint.every=0 "run.dir=$dir/fallen" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
grep -q 'layer 1 falls back to bf16' "$dir/err" || fail "no word of a layer that falls back: $(cat "$dir/err")"
"$tutti" train "$config" "${tiny[@]}" precision.recipe=mxfp8 precision.telemetry=1 precision.fallback.after=1 precision.fallback.error=0 "data.train=$root/README.md" \
    data.valid=[] run.steps=3 run.threads=1 checkpoint.every=0 "run.dir=$dir/fallen" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
grep -q 'precision: .*fell back to bf16 before: layer 0, 1' "$dir/err" || fail "the first lines do not say which layers fell back: $(cat "$dir/err")"
named metrics "$dir/rounded/metrics.jsonl"
named metrics "$dir/fallen/metrics.jsonl"

# Answers and their rewards.
echo '{"prompt": "say it"}' >"$dir/prompts.jsonl"
echo "{model: {layers: 1, hidden: 32, heads: 2, ffn: 32, seq_len: 16}, train: {objective: grpo, grpo: {group: 2, updates: 2, beta: 0.1, tokens: 4, reward: 'awk \"{ print NR }\"'}}," \
    "data: {train: [$dir/prompts.jsonl]}, batch: {global: 2, micro: 2}, run: {dir: $dir/rewarded, steps: 2, threads: 1}}" >"$dir/grpo.yaml"
"$tutti" train "$dir/grpo.yaml" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
named metrics "$dir/rewarded/metrics.jsonl"

# A model that sees: pictures, and how many of them are right.
make=$(dirname "$tutti")/tests/make_shards
if [ -x "$make" ]; then
    (cd "$dir" && "$make" s 1 8 40 4 png && "$make" v 1 4 40 4 png) || fail "no shards"
    echo "{model: {family: vit, layers: 1, hidden: 32, heads: 2, image_size: 16, patch_size: 4, classes: 4}," \
        "data: {train: [$dir/s-0.tar], valid: [$dir/v-0.tar], cache_dir: $dir/seen.cache}, batch: {global: 4, micro: 2}," \
        "run: {dir: $dir/seen, steps: 1, eval_every: 1, threads: 1}, checkpoint: {every: 0}}" >"$dir/vit.yaml"
    "$tutti" train "$dir/vit.yaml" 2>"$dir/err" || fail "train: $(tail -2 "$dir/err")"
    named metrics "$dir/seen/metrics.jsonl"
    check verify verify "$dir/vit.yaml" -n 1 --json # whose trainer is not run: its pictures are no tokens
fi

# What the page promises in the first column of a table is there (some only under conditions that are not made here).
for name in $(printf '%s\n' "${names[@]}" metrics | sort -u); do
    for key in $(unprinted "$name"); do
        case $name.$key in verify.routing_replayed | verify.eps | verify.rounded_only | bench-comm.library) ;;
            watch.straggler_cause | metrics.skip_cause | metrics.staleness_* | metrics.replicas_differ | metrics.rewards_* | metrics.straggler | metrics.replay_differs) ;; *) fail "$name: $key is documented and nobody prints it" ;; esac
    done
done

# A section for each schema, and a schema for each section.
[ "$(printf '%s\n' "${names[@]}" | sort -u)" = "$(grep -oE '^## tutti\.[a-z-]+' "$root/docs/json.md" | sed 's/## tutti.//' | sort -u)" ] ||
    fail "the sections of docs/json.md are not the commands' schemas"
[ "$(grep -rhoE 'json_begin_document\([^,]*, "[a-z-]+"' "$root/src" | sed 's/.*"\(.*\)"/\1/' | sort -u)" = "$(printf '%s\n' "${names[@]}" | sort -u)" ] ||
    fail "a schema of the program is not tried here"
passed
