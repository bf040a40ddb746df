#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same layout trains to the same bits whether its ranks are threads or processes of a launcher; a wrong request is
# refused once, with status 2, before anything starts.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 4, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 1.0e-3, schedule: {name: constant, warmup_steps: 2}}
run: {threads: 1, steps: 4, tensorboard: false, eval_every: 0}
YAML

losses() { sed -E 's/"ranks":\{[^}]*\},?//; s/"(step_s|tokens_per_s|mfu|data_wait_s)":[^,]*,?//g' "$dir/$1/metrics.jsonl"; }

number=0
while read -r n keys; do
    number=$((number + 1))
    threads=threads$number processes=processes$number
    # shellcheck disable=SC2086
    "$tutti" train "$dir/tiny.yaml" -n "$n" run.dir="$dir/$threads" $keys >"$dir/log" 2>&1 ||
        fail "$n threads, $keys: $(tail -3 "$dir/log")"
    # shellcheck disable=SC2086
    ranks "$n" "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$processes" $keys >"$dir/log" 2>&1 ||
        fail "$n processes, $keys: $(tail -3 "$dir/log")"
    grep -q "^transport: mpi, " "$dir/log" || fail "$keys: does not say that it runs over mpi: $(head -5 "$dir/log")"
    [ "$(losses $threads)" = "$(losses $processes)" ] || fail "$n ranks, $keys: other losses over mpi"
    "$tutti" checkpoint diff "$dir/$threads/checkpoints/step-00000004" "$dir/$processes/checkpoints/step-00000004" \
        >"$dir/diff" 2>&1 || fail "$n ranks, $keys: other weights over mpi: $(head -3 "$dir/diff")"
done <<'LAYOUTS'
2
2 precision.recipe=fp32 parallel.zero=3 comm.progress=thread
2 parallel.tp=2 parallel.sequence_parallel=true
2 parallel.pp=2
4 parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2
4 parallel.dp_shard=2 parallel.zero=1 parallel.pp=2
4 parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=1 comm.grad=int8 comm.param=fp8
2 parallel.zero=3 comm.grad=fp8-e5m2 comm.param=int8 precision.grad=bf16 comm.progress=thread
LAYOUTS

ranks 2 "$tutti" train "$dir/tiny.yaml" run.dir="$dir/refused" parallel.tp=3 >"$dir/log" 2>&1
status=$?
[ $status = 2 ] || fail "tp 3 over 2 ranks: status $status: $(cat "$dir/log")"
[ "$(grep -c "^tutti: .*parallel.tp: 3 ranks" "$dir/log")" = 1 ] || fail "tp 3 over 2 ranks is not refused once: $(cat "$dir/log")"

echo '{"text":"The quick brown fox"}' >"$dir/tasks.jsonl"
model=$dir/threads1
# Some launchers give rank 0 a terminal, where what a model writes is shown cleaned: it is compared as JSON, without the seconds.
write=(generate "$model" --prompt "The quick" --max-tokens 12 --seed 5 --dtype f32 --threads 1 --json)
told() { sed -E 's/,"[a-z_]*_s":[^,}]*//g' "$1"; }
"$tutti" "${write[@]}" >"$dir/one" 2>"$dir/log" || fail "generate: $(cat "$dir/one" "$dir/log")"
for way in '--tp 2' '--pp 2'; do # shellcheck disable=SC2086
    ranks 2 "$tutti" "${write[@]}" $way >"$dir/two" 2>"$dir/log" && [ "$(told "$dir/one")" = "$(told "$dir/two")" ] ||
        fail "generate $way over 2 processes: $(cat "$dir/one" "$dir/two" "$dir/log")"
done
"$tutti" eval "$model" --tasks "$dir/tasks.jsonl" --threads 1 >"$dir/one" 2>&1 || fail "eval: $(cat "$dir/one")"
ranks 2 "$tutti" eval "$model" --tasks "$dir/tasks.jsonl" --threads 1 >"$dir/two" 2>"$dir/log" && cmp -s "$dir/one" "$dir/two" ||
    fail "eval over 2 processes: $(cat "$dir/two" "$dir/log")"
ranks 2 "$tutti" generate "$dir/nothing" --prompt a >"$dir/log" 2>&1
status=$?
[ $status = 2 ] && [ "$(grep -c "^tutti: .*no such checkpoint" "$dir/log")" = 1 ] || fail "no model over 2 processes: status $status: $(cat "$dir/log")"
passed
