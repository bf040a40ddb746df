#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Traces of ranks that are processes: arrows between them, one file, the rules that hold for threads; and a run that is killed.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 4, micro: 1}
run: {threads: 1, steps: 4, tensorboard: false, eval_every: 0, trace: $dir/trace.json}
YAML
train() { ranks "$1" "$tutti" train "$dir/tiny.yaml" run.dir="$dir/run" checkpoint.resume=never "${@:2}" >"$dir/log" 2>&1; }

# LAYOUT: ranks, arrows at least, keys
while read -r n arrows keys; do
    # shellcheck disable=SC2086
    train "$n" $keys || fail "$n processes, $keys: $(tail -3 "$dir/log")"
    "$programs/ranks_trace" "$dir/trace.json" "$n" "$arrows" >"$dir/out" 2>&1 || fail "$n processes, $keys: $(cat "$dir/out")"
    "$tutti" trace "$dir/trace.json" >"$dir/table" 2>&1 || fail "$keys: no table: $(cat "$dir/table")"
    [ "$(grep -c '^[0-9] ' "$dir/table")" = $((n + 1)) ] || fail "$keys: a table without a row for each rank: $(cat "$dir/table")"
done <<'LAYOUTS'
2 20 parallel.pp=2
2 40 parallel.zero=3
LAYOUTS

# Killed in the middle: what was collected before is there, line by line, and the table says that the end is missing.
printf 'echo $$ >"%s/pid.$$"\nexec "$@"\n' "$dir" >"$dir/noted.sh"
rm "$dir/trace.json"
ranks 2 bash "$dir/noted.sh" "$tutti" train "$dir/tiny.yaml" run.dir="$dir/run" checkpoint.resume=never parallel.pp=2 run.steps=1000000 \
    run.trace_steps=1000000 run.trace_collect=1 checkpoint.every=0 run.log_every=1000 >"$dir/log" 2>&1 &
job=$!
traced() { [ "$(grep -c '"cat":"step"' "$dir/trace.json" 2>/dev/null)" -ge 8 ]; }
until_so $job traced
kill -KILL "$(cat "$dir"/pid.* | head -1)"
wait "$job" 2>/dev/null
grep -q '"tutti.end"' "$dir/trace.json" && fail "a killed run wrote its end"
"$tutti" trace "$dir/trace.json" >"$dir/table" || fail "the trace of a killed run cannot be read"
grep -q 'ends early' "$dir/table" || fail "nothing says that it ends early: $(cat "$dir/table")"
grep -q '^all ' "$dir/table" || fail "no table: $(cat "$dir/table")"
passed
