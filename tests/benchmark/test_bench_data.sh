#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tutti bench data: rates of texts and batches, what is needed from each of its three places, the best setting, refusals.
# And data_wait_s of a run, whose batches are the same for any number of workers.
. "$(dirname "$0")/../script.sh" || exit
for i in $(seq 3000); do echo "Line $i of a text that is measured."; done >"$dir/t.txt"
cat >"$dir/c.yaml" <<EOF
model: {layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn: 32, seq_len: 32}
data: {train: $dir/t.txt, seed: 3}
batch: {global: 4, micro: 2}
run: {dir: $dir/run, steps: 12, threads: 1, tensorboard: false}
checkpoint: {every: 0}
EOF
bench() { "$tutti" bench data "$dir/c.yaml" --seconds 0.05 "$@" 2>"$dir/err"; }

# What is needed: measured, told, of a run.
bench --json >"$dir/measured" || fail "no measurement: $(cat "$dir/err")"
for word in '"schema":"tutti.bench-data.1"' '"need_from":"measured"' '"read":{"bytes_per_s":' '"tokenize":{"bytes_per_s":' '"makes":"tokens"' \
    '"settings":[{"workers":1,"prefetch":2,"tokens_per_s":'; do
    tr -d ' \n' <"$dir/measured" | grep -qF "$word" || fail "no $word in $(cat "$dir/measured")"
done
bench --need 1000 >"$dir/told" || fail "no measurement with --need"
grep -q 'tokens/s (given)' "$dir/told" || fail "--need is not what is needed: $(cat "$dir/told")"
grep -q 'data.workers=1 data.prefetch=2: training waits less than 1 %' "$dir/told" || fail "1000 tokens a second are too many? $(cat "$dir/told")"
bench --need 1e14 >"$dir/much" || fail "no measurement with a large --need"
grep -q 'no number of workers is fast enough' "$dir/much" || fail "1e14 tokens a second are fine? $(cat "$dir/much")"
grep -q '<- best' "$dir/much" && fail "a best setting that is too slow"
printf 'rules:\n  - unicode\n  - gopher_quality: {min_words: 1}\n' >"$dir/rules.yaml"
mkdir "$dir/tmp"
TMPDIR=$dir/tmp bench --need 1000 --rules "$dir/rules.yaml" --dedup exact,near >"$dir/ruled" || fail "no measurement with --rules: $(cat "$dir/err")"
for word in '^clean' '^  unicode' '^  gopher_quality' '^dedup exact' '^dedup near'; do
    grep -q "$word .*kept_documents/s" "$dir/ruled" || fail "no rate of $word: $(cat "$dir/ruled")"
done
rmdir "$dir/tmp" || fail "a folder for temporary files is left: $(ls -R "$dir/tmp")"

# Runs with different workers: the same losses, and the time that steps waited.
for workers in 1 3; do
    "$tutti" train "$dir/c.yaml" run.dir="$dir/run$workers" data.workers=$workers data.prefetch=4 >/dev/null 2>"$dir/err" || fail "training: $(cat "$dir/err")"
    grep -c '"data_wait_s":' "$dir/run$workers/metrics.jsonl" | grep -qx 12 || fail "not every step has data_wait_s"
    grep -q 'data: steps waited .* s for batches' "$dir/err" || fail "the run does not say how long it waited"
    grep -o '"loss":[^,]*' "$dir/run$workers/metrics.jsonl" >"$dir/losses$workers"
done
cmp "$dir/losses1" "$dir/losses3" || fail "three workers train on other batches"
bench --metrics "$dir/run1/metrics.jsonl" >"$dir/of_run" || fail "no measurement with --metrics"
grep -q "tokens/s (the run's last steps)" "$dir/of_run" || fail "--metrics is not what is needed"

refused() { # WORDS, arguments
    local words=$1
    shift
    "$tutti" "$@" >/dev/null 2>"$dir/err" && fail "$*: is not refused"
    grep -qF "$words" "$dir/err" || fail "$*: does not say \"$words\": $(cat "$dir/err")"
}
: >"$dir/none.jsonl"
refused 'has no step with tokens_per_s' bench data "$dir/c.yaml" --metrics "$dir/none.jsonl" --seconds 0.05
refused "dedup: there is no 'none'" bench data "$dir/c.yaml" --dedup exact,none --seconds 0.01
refused 'names nothing to measure' bench data "$dir/c.yaml" 'data.train=[]'
refused 'choose data.prefetch: 3' bench data "$dir/c.yaml" data.workers=3
refused 'data.remote.cache_limit' bench data "$dir/c.yaml" data.remote.cache_limit=1MiB
refused 'data.remote.cache_limit' bench data "$dir/c.yaml" data.remote.cache_limit=many
refused 'no such file' bench data "$dir/c.yaml" data.train="$dir/nothing"
passed
