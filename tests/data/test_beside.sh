#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What tutti writes beside data is no data: every file that its commands leave in a folder is a part of the result, or is passed over
# when the folder is an input (source/beside_data.h). Files of the same names that are somebody's own are read.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# documents FOLDER: what is read of it, a line each, sorted.
documents() {
    rm -rf "$dir/read" && "$tutti" data clean "$dir/rules.yaml" "$1" --plain --out "$dir/read" >"$dir/log" 2>&1 || fail "$1: $(cat "$dir/log")"
    cat "$dir"/read/part-*.jsonl | sed 's/.*"text": *"\([^"]*\)".*/\1/' | sort
}
echo "rules: [unicode]" >"$dir/rules.yaml"
mkdir "$dir/in"
for i in 1 2 3; do printf '{"text": "one"}\n{"text": "two %s"}\nno record\n' $i >"$dir/in/$i.jsonl"; done
"$tutti" data dedup --list --skip-bad --steps exact --unit 10B --out "$dir/out" "$dir/in" >"$dir/log" 2>&1 || fail "dedup: $(cat "$dir/log")"
for name in dedup.json removed-00001.jsonl part-00001.jsonl.skipped; do [ -s "$dir/out/$name" ] || fail "no $name: $(ls "$dir/out")"; done
want=$(printf 'one\ntwo 1\ntwo 2\ntwo 3')
[ "$(documents "$dir/out")" = "$want" ] || fail "of a result of dedup: $(documents "$dir/out")"
grep -q "are no data and were passed over: .*dedup.json is the report of tutti data dedup" "$dir/log" || fail "nothing tells: $(cat "$dir/log")"

# Tokens, a tokenizer, and what a run that was killed leaves, into the same folder.
"$tutti" data tokenize --tokenizer byte --skip-bad --out "$dir/out/t" "$dir/in" >"$dir/log" 2>&1 || fail "tokenize: $(cat "$dir/log")"
"$tutti" data train-tokenizer --vocab-size 260 --out "$dir/out/tokenizer.json" "$dir/in" --skip-bad >"$dir/log" 2>&1 || fail "tokenizer: $(cat "$dir/log")"
mkdir "$dir/out/dedup.work" "$dir/out/lost+found" "$dir/out/t.json.counting"
for name in dedup.work/unit-00000.json lost+found/x t.json.counting/x t.tok.work t.tok.lock t.tok.tmp.mask removed-00009.jsonl.part part-00009.jsonl.part x.jsonl.tmp-17-1; do
    echo '{"text": "no document"}' >"$dir/out/$name"
done
[ "$(documents "$dir/out")" = "$want" ] || fail "with all that: $(documents "$dir/out")"

# A run whose folder lies in what it reads: the same text at every start.
mkdir "$dir/text"
echo "somebody's text, long enough for a sample" >"$dir/text/a.txt"
printf 'model: {layers: 1, hidden: 8, heads: 1, seq_len: 4}\nrun: {threads: 1}\nbatch: {global: 1}\n' >"$dir/t.yaml"
for steps in 1 2; do
    "$tutti" train "$dir/t.yaml" "data.train=$dir/text" "run.dir=$dir/text/run" run.steps=$steps checkpoint.every=1 >"$dir/log" 2>&1 || fail "a run in its text: $(tail -5 "$dir/log")"
done
grep -q "goes on" "$dir/log" || grep -q "step 2/2" "$dir/log" || fail "the second start: $(cat "$dir/log")"
[ "$(documents "$dir/text")" = "somebody's text, long enough for a sample\n" ] || fail "with a run in it: $(documents "$dir/text")"

# Somebody's own.
mkdir "$dir/own"
echo '{"text": "mine"}' >"$dir/own/removed-00000.jsonl"
echo '{"text": "mine, too"}' >"$dir/own/dedup.json"
[ "$(documents "$dir/own")" = "$(printf 'mine\nmine, too')" ] || fail "somebody's own: $(documents "$dir/own")"

# A folder of datasets' save_to_disk is refused by name, not read as its JSON.
mkdir "$dir/saved"
printf 'ARROW1\0\0' >"$dir/saved/data-00000-of-00001.arrow"
echo '{"citation": "", "text": "x"}' >"$dir/saved/dataset_info.json"
echo '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}' >"$dir/saved/state.json"
"$tutti" data tokenize --tokenizer byte --out "$dir/s" "$dir/saved" >"$dir/log" 2>&1 && fail "Arrow tables are passed over"
grep -q "data-00000-of-00001.arrow: is an Arrow table, as save_to_disk of datasets writes them.*to_parquet" "$dir/log" || fail "$(cat "$dir/log")"
