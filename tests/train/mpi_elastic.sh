#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.elastic with ranks that are processes, which end at an operation (test_elastic.c): any of them, the first one too, while they save,
# two at once, another one while the rest recover. With a spare the last checkpoint is that of an undisturbed run; without, fewer ranks go
# on. Not tried here: kill -9 from outside (bench/elastic.sh does that), a rank that hangs.
# Where the library ends all processes when one dies, the run is refused by name, and the rest of this test skipped.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
seq 1 900 | sed 's/$/ the quick brown fox jumps over the lazy dog/' >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {family: llama, layers: 1, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}
data: {train: $dir/text.txt, cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 0.01}
run: {steps: 12, threads: 1, elastic: true, spares: 1, tensorboard: false}
checkpoint: {every: 3, keep: 0}
comm: {timeout_s: 60}
END
plain() { ranks 4 "$tutti" train "$dir/tiny.yaml" run.dir="$dir/plain" >"$dir/log" 2>&1; }
if ! "$mpirun" --with-ft ulfm --version >/dev/null 2>&1; then
    plain && fail "run.elastic was not refused"
    grep -q "run.elastic: this tutti was built with .*, which ends all processes when one dies" "$dir/log" || fail "not refused by name: $(cat "$dir/log")"
    echo "skipped: $library here has no fault tolerance (Open MPI 5, --with-ft ulfm); run.elastic is refused by name"
    passed
    exit 0
fi
plain && fail "not asked for fault tolerance, and not refused"
grep -q "run.elastic: this .* was not asked to go on: mpirun --with-ft ulfm" "$dir/log" || fail "not refused by name: $(cat "$dir/log")"
options=(--with-ft ulfm)
plain || fail "undisturbed: $(tail -20 "$dir/log")"

# as_plain NAME: it ended well, in more than one epoch, with the same last checkpoint
as_plain() {
    local epochs
    epochs=$(grep -o '"epoch":[0-9]*' "$dir/$1/starts.jsonl" | tail -1)
    [ "$epochs" != '"epoch":1' ] || fail "$1: nobody died"
    for f in "$dir"/plain/checkpoints/step-00000012/boxes-*; do
        cmp "$f" "$dir/$1/checkpoints/step-00000012/$(basename "$f")" || fail "$1: not the state of an undisturbed run"
    done
}
# struck NAME PLAN RANKS KEYS...
struck() {
    local name=$1 plan=$2 n=$3
    shift 3
    ranks "$n" "$programs/test_elastic" "$plan" "$dir/tiny.yaml" run.dir="$dir/$name" "$@" >"$dir/log" 2>&1 || fail "$name: status $?: $(tail -30 "$dir/log")"
}
for n in 2 9 20 31 45 60; do # rank 0 to 2, from the set-up to the end
    struck "at$n" "$((n % 3)):$n:" 4
    as_plain "at$n"
done
struck saving "1:2:save" 4
struck hosts "2:40:" 4 comm.ranks_per_host=1
as_plain hosts
struck two "0:40:,2:40:" 5 run.spares=2
as_plain two
struck recovery "1:7:stop? data? waited?,0:1:which checkpoint" 5 run.spares=2
as_plain recovery
struck fewer "1:5:stop? data? waited?" 3 run.spares=0
grep -q '"ranks":2,.*"epoch":2' "$dir/fewer/starts.jsonl" || fail "fewer: $(tail -1 "$dir/fewer/starts.jsonl")"
passed
