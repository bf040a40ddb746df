#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `tutti data`: the round trip through its three commands, and what it says to wrong requests.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
[ -x "$tutti" ] || { echo "no program $tutti"; exit 1; }


# expect STATUS WORDS COMMAND...: exit status, and each word (split at |) in the output
expect() {
    local status=$1 words=$2 out got word
    shift 2
    out=$("$@" 2>&1)
    got=$?
    [ "$got" = "$status" ] || fail "status $got, wanted $status: $*: $out"
    IFS='|' read -ra list <<<"$words"
    for word in "${list[@]}"; do
        [[ "$out" == *"$word"* ]] || fail "does not say '$word': $*: $out"
    done
}

mkdir -p "$dir/text/sub" "$dir/text/.git"
for i in $(seq 200); do echo "the quick brown fox $i jumps over the lazy dog, and the other dogs"; done >"$dir/text/a.txt"
printf '{"text": "one document"}\n{"text": "and another"}\n' >"$dir/text/sub/b.jsonl"
head -c 1000 /dev/zero >"$dir/text/zeros"
echo secret >"$dir/text/.git/config"

expect 0 "usage|tokenize|train-tokenizer|inspect" "$tutti" data --help
expect 0 "usage" "$tutti" data tokenize --help
expect 2 "usage" "$tutti" data

expect 0 "t.json|300 tokens" "$tutti" data train-tokenizer --vocab-size 300 --out "$dir/t.json" "$dir/text"
"$tutti" data train-tokenizer --vocab-size=300 --out "$dir/again.json" "$dir/text" >/dev/null || fail "training twice"
cmp -s "$dir/t.json" "$dir/again.json" || fail "two trainings differ"
expect 0 '{|"vocab":280' "$tutti" data train-tokenizer --vocab-size 280 --style llama3 --out "$dir/l.json" "$dir/text" --json

expect 0 "x.tok|3 documents|were passed over" "$tutti" data tokenize --tokenizer byte --out "$dir/x" "$dir/text"
expect 0 '"schema":"tutti.data-tokenize.1"|"path"|"documents":3|"skipped":1|"bytes_per_s"' "$tutti" data tokenize --tokenizer "$dir/t.json" --out "$dir/y" "$dir/text" --json
expect 0 "documents   3|end of text 256|all right|the quick" "$tutti" data inspect "$dir/x" --verify --show 20
expect 0 '"vocab":300|"verified":true|"text":"the quick' "$tutti" data inspect "$dir/y.tok" --json --verify --tokenizer "$dir/t.json" --show 9
[ -z "$(find "$dir" -name '*.tmp' -o -name '*.lock')" ] || fail "temporary files are left"

expect 2 "no command 'tokenise'|did you mean 'tokenize'" "$tutti" data tokenise --out x
expect 2 "--tokenizr|did you mean '--tokenizer'" "$tutti" data tokenize --tokenizr byte
expect 2 "--out PREFIX is needed" "$tutti" data tokenize --tokenizer byte "$dir/text"
expect 2 "which INPUT" "$tutti" data tokenize --tokenizer byte --out "$dir/z"
expect 2 "--out wants a value" "$tutti" data tokenize --tokenizer byte --out
expect 2 "--vocab-size|257" "$tutti" data train-tokenizer --vocab-size 10 --out "$dir/z.json" "$dir/text"
expect 2 "--vocab-size|many" "$tutti" data train-tokenizer --vocab-size many --out "$dir/z.json" "$dir/text"
expect 2 "style|gpt2, llama3, qwen2 or deepseek" "$tutti" data train-tokenizer --vocab-size 300 --style x --out "$dir/z.json" "$dir/text"
expect 2 "$dir/none|No such file" "$tutti" data tokenize --tokenizer byte --out "$dir/z" "$dir/none"
expect 2 "zeros|NUL" "$tutti" data tokenize --tokenizer byte --out "$dir/z" "$dir/text/zeros"
expect 2 "no such file" "$tutti" data tokenize --tokenizer "$dir/none.json" --out "$dir/z" "$dir/text"
expect 2 "no such file" "$tutti" data inspect "$dir/none"
expect 2 "not a token file" "$tutti" data inspect "$dir/text/a.txt"
expect 2 "was not made with the tokenizer" "$tutti" data inspect "$dir/y" --show 5
expect 1 "" "$tutti" data tokenize --tokenizer byte --out "$dir/no/such/place" "$dir/text"
head -c 5000 "$dir/x.tok" >"$dir/cut.tok"
expect 2 "cut.tok|cut short|tokenize the text again" "$tutti" data inspect "$dir/cut"
cp "$dir/x.tok" "$dir/bad.tok"
printf '\xff' | dd of="$dir/bad.tok" bs=1 seek=5000 conv=notrunc status=none
expect 0 "documents" "$tutti" data inspect "$dir/bad"
expect 2 "bad.tok|checksum" "$tutti" data inspect "$dir/bad" --verify
[ -e "$dir/z.tok" ] && fail "a failed command left a token file"

# Packed, as the text itself; cut short, not at all.
gzip -c "$dir/text/a.txt" >"$dir/a.txt.gz"
for f in "$dir/text/a.txt" "$dir/a.txt.gz"; do expect 0 "tokens" "$tutti" data tokenize --tokenizer byte --out "$dir/${f##*.}" "$f"; done
cmp -s <("$tutti" data inspect "$dir/gz" --show 20000 | tail -n 3) <("$tutti" data inspect "$dir/txt" --show 20000 | tail -n 3) || fail "a packed text has other tokens"
head -c 300 "$dir/a.txt.gz" >"$dir/cut.gz"
expect 2 "cut.gz|ends at byte 300 in the middle of its gzip data" "$tutti" data tokenize --tokenizer byte --out "$dir/z" "$dir/cut.gz"
[ -e "$dir/z.tok" ] && fail "a text cut short left a token file"

# A column of a table, in a token file and in training.
printf 'id,body\n1,"one, two"\n2,three\n' >"$dir/t.csv"
expect 0 "2 documents" "$tutti" data tokenize --tokenizer byte --out "$dir/table" --column body "$dir/t.csv"
expect 0 "one, two<|endoftext|>three" "$tutti" data inspect "$dir/table" --show 30
expect 2 'no column "text", but id, body' "$tutti" data tokenize --tokenizer byte --out "$dir/z" "$dir/t.csv"
cat >"$dir/t.yaml" <<YAML
model: {layers: 1, hidden: 16, heads: 2, seq_len: 4}
data: {train: [{path: $dir/t.csv, column: body}], cache_dir: $dir/cache}
batch: {global: 1, micro: 1}
run: {steps: 1, dir: $dir/run, threads: 1}
YAML
expect 0 "15 tokens, 2 documents|step 1/1" "$tutti" train "$dir/t.yaml"
grep -q "column: body" "$dir/run/config.yaml" || fail "config.yaml does not name the column"
expect 2 'token file, which has no column "body"' "$tutti" train "$dir/t.yaml" "run.dir=$dir/run2" "data.train=[{path: $dir/table, column: body}]"

# Killed in the middle: nothing under the final name, and the next attempt succeeds.
for i in $(seq 16); do cat "$dir/text/a.txt"; done >"$dir/big.txt"
for i in $(seq 7); do cat "$dir/big.txt" "$dir/big.txt" >"$dir/big2.txt"; mv "$dir/big2.txt" "$dir/big.txt"; done
"$tutti" data tokenize --tokenizer "$dir/t.json" --out "$dir/killed" "$dir/big.txt" >/dev/null 2>&1 &
pid=$!
while [ ! -e "$dir/killed.tok.tmp" ] && kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid
wait $pid 2>/dev/null
[ -e "$dir/killed.tok" ] && fail "a killed command left a token file"
expect 0 "killed.tok" "$tutti" data tokenize --tokenizer "$dir/t.json" --out "$dir/killed" "$dir/text"
expect 0 "all right" "$tutti" data inspect "$dir/killed" --verify

passed
