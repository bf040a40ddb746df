#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program itself: its table of commands, versions, and that results and messages go their own ways.
set -u
tutti=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

# expect STATUS STDOUT STDERR COMMAND...: words, split at |, that each stream holds; - means the stream is empty
expect() {
    local status=$1 out=$2 err=$3 got text stream word
    shift 3
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ $got = "$status" ] || { echo "FAILED: status $got, wanted $status: $*"; failures=$((failures + 1)); }
    for stream in out err; do
        text=$(cat "$dir/$stream")
        if [ "${!stream}" = - ]; then
            [ -z "$text" ] || { echo "FAILED: std$stream is not empty: $*: $text"; failures=$((failures + 1)); }
            continue
        fi
        IFS='|' read -ra words <<<"${!stream}"
        for word in "${words[@]}"; do
            [[ "$text" == *"$word"* ]] || { echo "FAILED: std$stream does not say '$word': $*: $text"; failures=$((failures + 1)); }
        done
    done
}

expect 0 "usage|train|generate|data|plan|explain|checkpoint|schedule|bench|--version" - "$tutti" --help
expect 0 "usage" - "$tutti" help
expect 0 "tutti 0" - "$tutti" --version
expect 2 - "usage" "$tutti"
expect 2 - "no command 'trian'|did you mean 'train'" "$tutti" trian
for command in train generate data plan explain checkpoint schedule bench "bench gemm" "bench cast" "bench train"; do
    expect 0 "" - "$tutti" $command --help
    [ -s "$dir/out" ] || { echo "FAILED: no help of $command"; failures=$((failures + 1)); }
done
echo "model: {layers: 1}" >"$dir/c.yaml"
expect 0 '"schema":"tutti.plan.1","params":' - "$tutti" plan "$dir/c.yaml" --json
sed s/layers/layrs/ "$dir/c.yaml" >"$dir/d.yaml"
expect 2 - "d.yaml:1|model.layrs|model.layers" "$tutti" plan "$dir/d.yaml"

[ $failures = 0 ] || exit 1
echo "all right"
