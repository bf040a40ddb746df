#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti watch on a run that is over, that goes on, that failed, and on what is no run; the status page of a run that goes
# on: its page, JSON and metrics while steps are made, refusals of addresses and tokens that would let anybody look.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
job=
at_end() { if [ -n "$job" ]; then kill -KILL "$job" 2>/dev/null; fi; }
cat >"$dir/c.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 16}
data: {train: [$root/README.md]}
batch: {global: 4, micro: 1}
parallel: {dp_shard: 2}
checkpoint: {every: 0}
run: {threads: 1, steps: 700, log_every: 100, tensorboard: false, dir: $dir/run}
YAML
"$tutti" train "$dir/c.yaml" -n 2 >"$dir/log" 2>&1 || fail "training: $(tail -3 "$dir/log")"
"$tutti" watch "$dir/run" >"$dir/out" 2>&1 || fail "watch: $(cat "$dir/out")"
grep -q '^step 700/700  loss .*  saved 700  finished$' "$dir/out" || fail "a run that is over: $(cat "$dir/out")"
[ "$(wc -l <"$dir/out")" = 1 ] || fail "a line of what does not change: $(cat "$dir/out")"
"$tutti" watch "$dir/run" --once >"$dir/out" 2>&1 && grep -q 'checkpoint  of step 700' "$dir/out" || fail "--once: $(cat "$dir/out")"
"$tutti" watch "$dir/run" --json >"$dir/out" && grep -q '"state": "finished"' "$dir/out" || fail "--json: $(head -5 "$dir/out")"
n=$(sed -n '/"losses"/,/\]/p' "$dir/out" | grep -c '[0-9]')
[ "$n" -ge 300 ] && [ "$n" -le 601 ] || fail "a curve of 700 steps has $n points"
"$tutti" watch "$dir" >"$dir/out" 2>&1
[ $? = 2 ] && grep -q 'run.dir' "$dir/out" || fail "no run: $(cat "$dir/out")"

# Damaged files, and words that would speak to the terminal.
cp -r "$dir/run" "$dir/hurt"
printf '{"step": 3, "lo\0\n\n[1]\n{"step": "x", "loss": {}}\n{"step":701,"loss":"a","ranks":7}\n{"step":' >>"$dir/hurt/metrics.jsonl"
printf 'rank 1 is late \033]0;x\007: \303\050\nmore\n' >"$dir/hurt/flight-rank0.txt"
rm "$dir/hurt/ends.jsonl"
"$tutti" watch "$dir/hurt" --once >"$dir/out" 2>&1 || fail "damaged files: $(cat "$dir/out")"
grep -qF 'failure     rank 1 is late \x1b]0;x\x07: \xc3(' "$dir/out" || fail "a failure is not told: $(cat "$dir/out")"
! grep -q $'\033' "$dir/out" || fail "a file speaks to the terminal"
grep -q 'step        701 of' "$dir/out" || fail "damaged files: $(cat "$dir/out")"

# Where the stacks of a run that hung lie, and why; a file system that is away for a while ends nothing.
printf 'rank 0 has waited 2 s for \033]0;x\007 all_reduce\nprocess 4711 on node7, 2026-01-01 03:00:00 UTC\n' >"$dir/hurt/stacks.txt"
"$tutti" watch "$dir/hurt" --once >"$dir/out" 2>&1 && grep -q "^stacks      $dir/hurt/stacks.txt: rank 0 has waited 2 s for .*2026-01-01 03:00:00" "$dir/out" || fail "no stacks: $(cat "$dir/out")"
! grep -q $'\033' "$dir/out" || fail "a file of stacks speaks to the terminal"
"$tutti" watch "$dir/hurt" --json | grep -q '"stacks": "[^"]*/stacks.txt"' || fail "no stacks in --json"
"$tutti" watch "$dir/hurt" --every 0.05 >"$dir/out" 2>&1 &
job=$!
seen() { until_so $job grep -q "$1" "$dir/out" || fail "watch does not say '$1': $(cat "$dir/out")"; }
seen '^step 701/'
mv "$dir/hurt/metrics.jsonl" "$dir/kept" && mkdir "$dir/hurt/metrics.jsonl"
seen 'it is looked for again'
rmdir "$dir/hurt/metrics.jsonl" && mv "$dir/kept" "$dir/hurt/metrics.jsonl"
printf '\n{"step":702,"loss":1}\n' >>"$dir/hurt/metrics.jsonl"
seen '^step 702/'
grep -c '^stacks ' "$dir/out" | grep -qx 1 || fail "stacks are told more than once: $(cat "$dir/out")"
kill -KILL $job
wait $job 2>/dev/null
job=

# A run that goes on.
refused() {
    "$tutti" train "$dir/c.yaml" -n 2 run.dir="$dir/no" "${@:2}" >"$dir/out" 2>&1
    [ $? = 2 ] && grep -q "$1" "$dir/out" || fail "${*:2}: $(tail -2 "$dir/out")"
}
refused 'run.status_token' run.status_port=8080 run.status_address=0.0.0.0
echo short >"$dir/token"
chmod 600 "$dir/token"
refused '16 characters' run.status_port=8080 run.status_token="$dir/token"
echo a-secret-that-is-long-enough >"$dir/token"
chmod 644 "$dir/token"
refused 'chmod 600' run.status_port=8080 run.status_token="$dir/token"
command -v curl >/dev/null || { passed; exit; }
for try in 1 2 3 4 5; do
    port=$((20000 + (RANDOM * 7 + try) % 30000))
    rm "$dir/log" # or a step of the run before may be found, when this one comes late to its file
    "$tutti" train "$dir/c.yaml" -n 2 run.dir="$dir/on" run.steps=100000000 run.status_port=$port >"$dir/log" 2>&1 &
    job=$!
    until_so $job grep -qs '^step ' "$dir/log"
    kill -0 $job 2>/dev/null && break
    grep -q 'cannot be opened' "$dir/log" || break
done
get() { curl -s "$@"; }
get "http://127.0.0.1:$port/json" >"$dir/out"
grep -q '"state":"goes on"' "$dir/out" || fail "/json: $(head -c 300 "$dir/out"; tail -2 "$dir/log")"
get "http://127.0.0.1:$port/metrics" | grep -qE '^tutti_step [1-9]' || fail "/metrics"
get "http://127.0.0.1:$port/" | grep -q '<title>' || fail "the page"
[ "$(get -o /dev/null -w '%{http_code}' -H 'Host: elsewhere' "http://127.0.0.1:$port/json")" = 403 ] || fail "asked by another name"
"$tutti" watch "$dir/on" --json | grep -q '"state": "goes on"' || fail "watching a run that goes on"
if bash "$root/scripts/browser.sh" >/dev/null 2>&1; then
    bash "$root/scripts/browser.sh" "http://127.0.0.1:$port/" "$dir/page.png" >"$dir/out" 2>&1 || fail "in a browser: $(tail -3 "$dir/out")"
fi
kill -TERM $job
wait $job
[ $? = 0 ] || fail "the run did not stop well: $(tail -2 "$dir/log")"
job=
"$tutti" watch "$dir/on" >"$dir/out" && grep -q 'stopped by SIGTERM' "$dir/out" || fail "a run that was stopped: $(cat "$dir/out")"
passed
