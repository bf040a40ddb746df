#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A stored checkpoint of each version of the format (scripts/stored_checkpoint.sh makes them): verified, read, and trained
# on from by two layouts; a damaged byte of each is found; both hold the same state.
source "$(dirname "$0")/../script.sh" || exit

n=0
for ((i = 0; i < 40; i++)); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs; they sleep."; done >"$dir/text.txt"
for stored in "$root"/tests/checkpoint/stored-v*; do
    n=$((n + 1))
    version=${stored##*-v}
    grep -q "\"version\":$version," "$stored/manifest.json" || fail "$stored is not of version $version"
    grep -q '"chunks":"' "$stored/manifest.json" || fail "$stored has no chunks"
    "$tutti" checkpoint verify "$stored" >"$dir/out" 2>&1 || fail "v$version: $(cat "$dir/out")"
    mkdir -p "$dir/v$version/checkpoints"
    cp -r "$stored" "$dir/v$version/checkpoints/step-00000003"
    for ranks in 1 3; do
        "$tutti" train "$stored/config.yaml" -n $ranks "data.train=$dir/text.txt" "run.dir=$dir/on-$version-$ranks" run.steps=4 \
            "data.cache_dir=$dir/cache" "checkpoint.resume=$dir/v$version/checkpoints/step-00000003" "checkpoint.allow_changes=[data]" \
            parallel.dp_shard=-1 parallel.zero=2 2>"$dir/err" || fail "v$version, $ranks ranks: $(tail -3 "$dir/err")"
        grep -q "3 steps done" "$dir/err" || fail "v$version: $(cat "$dir/err")"
    done
    file=$dir/v$version/checkpoints/step-00000003/boxes-00001.safetensors
    byte=$(od -An -tu1 -j9000 -N1 "$file")
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((byte ^ 4)))" | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null
    "$tutti" checkpoint verify "$dir/v$version" >"$dir/out" 2>&1 && fail "v$version: damage was not found"
    grep -q "boxes-00001.safetensors" "$dir/out" || fail "v$version: $(cat "$dir/out")"
done
[ $n -ge 2 ] || fail "$n stored checkpoints"
"$tutti" checkpoint diff "$root/tests/checkpoint/stored-v1" "$root/tests/checkpoint/stored-v2" >"$dir/out" 2>&1 || fail "v1, v2: $(cat "$dir/out")"
passed
