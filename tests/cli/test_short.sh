#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the machine cannot hold is refused by key, in seconds of a processor and before the run's folder is made; limits that turn up later are named
# with what was wanted; memory.check: false tries all the same. plan predicts what no machine here could hold.
set -euo pipefail
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
head -c 20000 "$root/src/config/config_keys.c" >"$dir/text.txt"
cat >"$dir/c.yaml" <<END
model: {layers: 2, hidden: 32, heads: 2, seq_len: 16}
data: {train: $dir/text.txt}
batch: {global: 4, micro: 2}
run: {dir: $dir/run, steps: 1, threads: 1, eval_every: 0, tensorboard: false}
END

refused() { # STATUS WORDS KEY...
    local want=$1 words=$2 status=0 said
    shift 2
    said=$(ulimit -t 20 && exec "$tutti" train "$dir/c.yaml" "$@" 2>&1) || status=$?
    [ "$status" = "$want" ] && [[ $said == *$words* ]] || fail "$*: status $status: $said"
}
refused 2 'command line: model.hidden: makes a model of at least' model.hidden=1048576
refused 2 'more than 2^53, the most that can be counted' model.hidden=1048576 model.ffn=16777216 model.layers=10000
refused 2 'command line: model.seq_len: makes the rows between two layers' model.hidden=4096 model.seq_len=16777216 batch.micro=64 batch.global=64
refused 2 'command line: batch.global: makes batches of tokens' batch.global=16777216 model.seq_len=65536 batch.micro=4096
refused 2 'command line: run.threads: ' run.threads=100000
refused 2 'insist with --crowd' -n 100000
refused 2 'command line: run.threads: ' -n 100000 --crowd run.threads=100000 # for another reason
for line in 'verify c.yaml' 'generate c.yaml --prompt a' 'serve c.yaml' 'eval c.yaml --tasks a'; do # shellcheck disable=SC2086
    "$tutti" $line -n 4096 >"$dir/out" 2>&1 || true
    if [ "$(nproc)" -lt 256 ] && ! grep -q -e 'insist with --crowd' -e 'from 1 to' "$dir/out"; then fail "$line -n 4096: $(cat "$dir/out")"; fi
done
"$tutti" plan "$dir/c.yaml" -n 1024 batch.global=2048 >/dev/null || fail "plan, which starts no ranks, refuses many"
[ ! -e "$dir/run" ] || fail "a run that was refused left its folder behind"
"$tutti" plan "$dir/c.yaml" model.hidden=65536 model.ffn=65536 model.heads=512 >/dev/null || fail "plan refuses what it only counts"

# A sanitizer reserves more addresses than any limit leaves.
if ! grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$(dirname "$tutti")/CMakeCache.txt"; then
    (
        ulimit -v 600000
        refused 2 "ulimit -v" model.hidden=1024 model.layers=12 run.dir="$dir/as"
        refused 1 'of memory, ' model.hidden=1024 model.layers=12 run.dir="$dir/as2" memory.check=false
        refused 1 'could not be started: Resource temporarily unavailable' run.threads=1000 run.dir="$dir/as3"
    )
fi
passed
