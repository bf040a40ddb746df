#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long addresses
# suite: unwatched threads
# Every recipe, looked at on every step, has the same numbers on a device whose bytes the host cannot touch, on one that is late on
# purpose and reports operations without an order between them, and on one that runs by itself: on one rank, and on two with the weights of
# each layer gathered.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
foxes 200 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 3, hidden: 64, heads: 2, ffn: 96, seq_len: 32}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 2, micro: 1}
precision: {telemetry: 1}
checkpoint: {every: 0}
run: {threads: 1, tensorboard: false, steps: 3}
YAML
# told DEVICE RANKS KEY=VALUE...: losses, norms, and what rounding did, of three steps
told() {
    local device=$1 ranks=$2
    shift 2
    rm -rf "$dir/run"
    TUTTI_DEVICE=$device "$tutti" train "$dir/tiny.yaml" -n "$ranks" run.dir="$dir/run" "$@" >"$dir/log" 2>&1 || fail "$device, $ranks ranks, $*: $(tail -3 "$dir/log")"
    grep -o '"loss":[^,]*,"grad_norm":[^,]*\|"rounded":.*' "$dir/run/metrics.jsonl"
}
for recipe in fp8-delayed fp8-current fp8-block mxfp8 nvfp4; do
    for ranks in 1 2; do
        keys=("precision.recipe=$recipe" "parallel.zero=$((ranks == 1 ? 0 : 3))")
        wanted=$(told cpu $ranks "${keys[@]}")
        [ "$(grep -c rounded <<<"$wanted")" = 3 ] || fail "$recipe, $ranks ranks: no three looks: $wanted"
        for device in untouchable late running; do
            got=$(told $device $ranks "${keys[@]}")
            [ "$got" = "$wanted" ] || fail "$recipe, $ranks ranks, $device: $got, wanted $wanted"
        done
    done
done
passed
