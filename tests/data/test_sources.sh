#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Parquet tables, tar shards, Megatron's token files and bad records through the commands and in training.
source "$(dirname "${BASH_SOURCE[0]}")/../script.sh" || exit
fixtures=$root/tests/data/fixtures

expect() { # STATUS "word|word" COMMAND...
    local status=$1 words=$2 got=0
    shift 2
    "$@" >"$dir/out" 2>&1 || got=$?
    [ "$got" = "$status" ] || fail "$*: status $got, wanted $status: $(head -c 500 "$dir/out")"
    while read -r word; do grep -qF -- "$word" "$dir/out" || fail "$*: does not say \"$word\": $(head -c 500 "$dir/out")"; done < <(tr '|' '\n' <<<"$words")
}
tokenize() { "$tutti" data tokenize --tokenizer byte --out "$dir/t" "$@"; }

# A shard packed in either way, and two in braces, are their samples; the cut one is an error.
gzip -c "$fixtures/shards/gnu.tar" >"$dir/s-0.tar.gz"
cp "$fixtures/shards/pax.tar" "$dir/s-1.tar"
expect 0 "5 documents" tokenize "$dir/s-0.tar.gz"
expect 0 "from txt é<|endoftext|>two<|endoftext|>l1<|endoftext|>l2<|endoftext|>of a long name" "$tutti" data inspect "$dir/t" --show 100
mv "$dir/s-0.tar.gz" "$dir/s-0.tar"
expect 0 "10 documents" tokenize "$dir/s-{0..1}.tar"
expect 2 "s-2.tar: No such file" tokenize "$dir/s-{0..2}.tar"
head -c 3000 "$dir/s-1.tar" >"$dir/cut.tar"
expect 2 "cut.tar" tokenize "$dir/cut.tar"

# What is bad ends the command, with its line; skipped it is counted and listed, and makes another cached result.
printf '{"text": "one"}\n{"text": \n{"text": "three"}\n{"no": "text"}\n' >"$dir/b.jsonl"
expect 2 "b.jsonl:2" tokenize "$dir/b.jsonl"
expect 0 "2 documents|2 bad records were skipped|t.tok.skipped" tokenize --skip-bad "$dir/b.jsonl"
[ "$(wc -l <"$dir/t.tok.skipped")" = 2 ] && grep -q "b.jsonl:2" "$dir/t.tok.skipped" && grep -q "b.jsonl:4: wanted an object" "$dir/t.tok.skipped" ||
    fail "the list of what was skipped: $(cat "$dir/t.tok.skipped")"
expect 0 '"bad_records":2' tokenize --skip-bad "$dir/b.jsonl" --json
printf '{"text": "one"}\n' >"$dir/g.jsonl"
expect 0 "1 documents" tokenize --skip-bad "$dir/g.jsonl"
[ -e "$dir/t.tok.skipped" ] && fail "nothing was skipped, and an earlier list is still there"

# Training on each of them, and on all at once.
cat >"$dir/t.yaml" <<YAML
model: {layers: 1, hidden: 16, heads: 2, seq_len: 4}
data: {train: [], cache_dir: $dir/cache}
batch: {global: 2, micro: 2}
run: {steps: 1, dir: $dir/run, threads: 1}
checkpoint: {every: 0}
YAML
train() { rm -rf "$dir/run"; "$tutti" train "$dir/t.yaml" "$@"; }
table=$fixtures/parquet/zstd-2-DELTA_BYTE_ARRAY.parquet
expect 0 "step 1/1" train "data.train=[{path: $table, column: message.content}]"
expect 0 "step 1/1" train "data.train=$dir/s-{0..1}.tar"
expect 0 "79 tokens; 3 of the documents had an end of text|step 1/1" train "data.train=$fixtures/megatron/int64"
expect 0 "step 1/1" train "data.train=[$fixtures/megatron/int64, $table, $dir/s-1.tar]"
expect 2 "b.jsonl:2" train "data.train=$dir/b.jsonl"
expect 0 "skipped: |b.jsonl:2|2 bad records|step 1/1" train "data.train=$dir/b.jsonl" data.skip_bad=true
printf '{"messages": [{"role": "user", "content": "%0200d"}, {"role": "assistant", "content": "no", "weight": 0}]}\n{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]}\n' 0 >"$dir/late.jsonl"
expect 2 "in all 1 steps no token was trained" train "data.train=[{path: $dir/late.jsonl, chat: plain}]" data.order=sequential
echo '{"id": 7, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]}' >"$dir/id.jsonl"
expect 0 "1 records have members that nothing reads, neither their form nor the template: id" tokenize --chat plain "$dir/id.jsonl"
expect 2 "no such file or folder, and no token file $dir/none.tok or $dir/none.bin and .idx" train "data.train=$dir/none"
expect 2 'has no column "nothing"' train "data.train=[{path: $fixtures/megatron/int64, column: nothing}]"

# Megatron's files and back to the same bits.
expect 0 "4 documents, 17 tokens of uint16" "$tutti" data import-megatron "$fixtures/megatron/exported" --tokenizer byte --out "$dir/m"
expect 0 '"type":"uint16","documents":4,"tokens":17,"ended":4,"empty":0' "$tutti" data export-megatron "$dir/m" --out "$dir/e" --json
cmp -s "$dir/e.bin" "$fixtures/megatron/exported.bin" && cmp -s "$dir/e.idx" "$fixtures/megatron/exported.idx" || fail "Megatron's files came back with other bits"
expect 0 "13 tokens of int32" "$tutti" data export-megatron "$dir/m" --out "$dir/e" --type int32 --no-eod
expect 2 "there are no" "$tutti" data import-megatron "$dir/nothing" --tokenizer byte --out "$dir/m2"
expect 2 "wider" "$tutti" data export-megatron "$dir/m" --out "$dir/e" --type int8
head -c 100 "$fixtures/megatron/exported.idx" >"$dir/e.idx"
expect 2 "e.idx" "$tutti" data import-megatron "$dir/e" --tokenizer byte --out "$dir/m2"
[ -e "$dir/m2.tok" ] && fail "a failed import left a token file"
expect 2 "index of a Megatron token file|without .idx" tokenize "$fixtures/megatron/exported.idx"
passed
