#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# Two hosts as network namespaces, two ranks on each, MPI between them over TCP: every
# operation by every algorithm, hosts found for what they are, and training to the bits of ranks as threads. Needs the
# right to make namespaces; skipped without it.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
# shellcheck source=tests/comm/namespaces.sh
. "$root/tests/comm/namespaces.sh"
at_end() { hosts_close; }
if ! hosts_open "$dir" 2; then
    echo "skipped: $hosts_why"
    exit 77
fi
across() { hosts_run "$library" "$mpirun" 2 60 "$@"; }

across "$programs/test_algorithms" 0 >"$dir/log" 2>&1 || fail "operations between hosts: $(tail -20 "$dir/log")"
grep -q "4 ranks .*, 2 a host: passed" "$dir/log" || fail "hosts are not found: $(tail -5 "$dir/log")"
across "$programs/test_crossing" 0 >"$dir/log" 2>&1 || fail "crossing between hosts: $(tail -20 "$dir/log")"

foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 1.0e-3, schedule: {name: constant, warmup_steps: 2}}
parallel: {dp_replicate: 2, dp_shard: 2, zero: 3}
run: {threads: 1, steps: 3, tensorboard: false, eval_every: 0}
YAML
"$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/threads" >"$dir/log" 2>&1 || fail "threads: $(tail -3 "$dir/log")"
across "$tutti" train "$dir/tiny.yaml" run.dir="$dir/hosts" >"$dir/log" 2>&1 || fail "training: $(tail -3 "$dir/log")"
"$tutti" checkpoint diff "$dir/threads/checkpoints/step-00000003" "$dir/hosts/checkpoints/step-00000003" >"$dir/diff" 2>&1 ||
    fail "other weights between hosts than between threads: $(head -3 "$dir/diff")"
passed
