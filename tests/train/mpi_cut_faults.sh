#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# Two hosts as network namespaces, two ranks on each, and the link between them goes down: for a moment, and the run goes on; for longer
# than comm.timeout_s, and both sides name ranks of the other host that do not answer, write stacks and end. Needs the right to make
# namespaces; skipped without it.
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
link() { ip -n "tutti-$hosts_id-2" link set "v$hosts_id-2" "$1"; }
sent() { ip -n "tutti-$hosts_id-2" -s link show dev "v$hosts_id-2" | awk '/TX:/ { getline; print $1 }'; } # bytes
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
comm: {timeout_s: 15, timeout_start_s: 600}
checkpoint: {every: 7}
run: {threads: 1, steps: 10000000, tensorboard: false, eval_every: 0, log_every: 10000000}
YAML
steps() { if [ -s "$dir/run/metrics.jsonl" ]; then grep -c '"loss"' "$dir/run/metrics.jsonl"; else echo 0; fi; }
is_beyond() { [ "$(steps)" -gt "$1" ]; }
wait_beyond() { # STEP
    until_so $job is_beyond "$1" || fail "no step after step $1: $(tail -5 "$dir/log")"
}
hosts_run "$library" "$mpirun" 2 400 "$tutti" train "$dir/tiny.yaml" run.dir="$dir/run" >"$dir/log" 2>&1 &
job=$!
wait_beyond 5
from=$(steps) bytes=$(sent)
wait_beyond $((from + 10))
at=$(steps) bytes=$(($(sent) - bytes))
if [ $((bytes / (at - from))) -lt 4096 ]; then # MPICH here goes through memory that both hosts see, being one machine
    kill $job
    wait $job
    passed || exit 1
    echo "skipped: what $library sends does not take the link: $bytes bytes in $((at - from)) steps"
    exit 77
fi
link down
sleep 1.5
at=$(steps)
link up
wait_beyond $((at + 3))
link down
both_say() { [ "$(ls "$dir/run" | grep -c '^flight-rank')" -ge 2 ]; }
until_so $job both_say # what they know; a launcher may wait for its other half for as long as the link is down
link up
wait $job
status=$?
[ $status != 0 ] && [ $status != 124 ] || fail "cut for long: status $status: $(tail -5 "$dir/log")"
named=$(cat "$dir/run"/flight-rank*.txt)
grep -qE "^ranks? [0-3](, [0-3])* (is|are) late: .* has waited (1[5-9]|[2-9][0-9]|[0-9]{3,})\.|^rank.* on another host and does not answer" <<<"$named" ||
    fail "nobody is named: $(head -3 "$dir"/run/flight-rank*.txt; tail -5 "$dir/log")"
grep -qE "^rank(s)? [0-3].*: |^  rank [0-3]: step" "$dir/run/stacks.txt" || fail "no stacks: $(ls "$dir/run")"
"$tutti" checkpoint verify "$dir/run" >"$dir/out" 2>&1 || fail "a broken checkpoint: $(cat "$dir/out")"
passed
