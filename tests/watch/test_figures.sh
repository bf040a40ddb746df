#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: measures
# suite: long addresses
# suite: unwatched threads
# Figures on the progress line are means of its interval, and no share is above 100 %: also with more threads and ranks than cores.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 2, hidden: 64, heads: 4, ffn: 128, seq_len: 32}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
checkpoint: {every: 0}
run: {steps: 43, threads: 1, log_every: 10, tensorboard: false}
END
for keys in "-n 1" "-n 1 run.threads=8" "-n 8"; do
    # shellcheck disable=SC2086
    "$tutti" train "$dir/tiny.yaml" $keys run.dir="$dir/${keys// /}" >"$dir/log" 2>&1 || fail "$keys: $(tail -3 "$dir/log")"
    metrics=$dir/${keys// /}/metrics.jsonl
    sed -nE 's/.*"step_s":([0-9.e-]+).*"mfu":([0-9.e-]+),.*/\1 \2/p' "$metrics" >"$dir/steps" # lines of saves have neither
    [ "$(wc -l <"$dir/steps")" = 43 ] || fail "$keys: not 43 steps"
    awk '!($2 > 0 && $2 <= 1) {exit 1}' "$dir/steps" || fail "$keys: a share of more than 1: $(cut -d' ' -f2 "$dir/steps" | sort -g | tail -1)"
    # "step 20/43 ... 12.3k tok/s ...": 256 tokens of each step since the line before, over their time
    lines=0 before=0
    while read -r step rate unit; do
        want=$(awk -v from="$before" -v to="$step" 'NR > from && NR <= to {s += $1; n++} END {print n * 256 / s}' "$dir/steps")
        awk "BEGIN {r = $rate * (\"$unit\" == \"k\" ? 1e3 : \"$unit\" == \"M\" ? 1e6 : 1); d = r / $want - 1; exit !(d < 0.06 && d > -0.06)}" ||
            fail "$keys: step $step: $rate$unit tok/s, the interval's mean is $want"
        before=$step lines=$((lines + 1))
    done < <(sed -nE 's#^step ([0-9]+)/43 .* ([0-9.]+)([kM]?) tok/s.*#\1 \2 \3#p' "$dir/log")
    [ $lines = 6 ] || fail "$keys: $lines lines of progress, not 6"
    grep -o "MFU [0-9]*" "$dir/log" | awk '$2 > 100 {exit 1}' || fail "$keys: $(grep -o "MFU.*%" "$dir/log" | sort -u)"
done
passed
