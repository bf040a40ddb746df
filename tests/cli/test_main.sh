#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: measures
# suite: unwatched threads
# The program itself: its table of commands, versions, and that results and messages go their own ways.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# expect STATUS STDOUT STDERR COMMAND...: words, split at |, that each stream holds; - means the stream is empty
expect() {
    local status=$1 out=$2 err=$3 got text stream word
    shift 3
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ $got = "$status" ] || fail "status $got, wanted $status: $*"
    for stream in out err; do
        text=$(cat "$dir/$stream")
        if [ "${!stream}" = - ]; then
            [ -z "$text" ] || fail "std$stream is not empty: $*: $text"
            continue
        fi
        IFS='|' read -ra words <<<"${!stream}"
        for word in "${words[@]}"; do
            [[ "$text" == *"$word"* ]] || fail "std$stream does not say '$word': $*: $text"
        done
    done
}

expect 0 "usage|train|generate|data|plan|explain|checkpoint|schedule|bench|--version" - "$tutti" --help
expect 0 "usage" - "$tutti" help
expect 0 "tutti 0" - "$tutti" --version
expect 2 - "usage" "$tutti"
expect 2 - "no command 'trian'|did you mean 'train'" "$tutti" trian
for command in train generate data plan explain checkpoint schedule bench "bench gemm" "bench cast" "bench train" "bench generate"; do
    expect 0 "" - "$tutti" $command --help
    [ -s "$dir/out" ] || fail "no help of $command"
done
echo "model: {layers: 1}" >"$dir/c.yaml"
expect 0 '"schema":"tutti.plan.1","params":' - "$tutti" plan "$dir/c.yaml" --json
sed s/layers/layrs/ "$dir/c.yaml" >"$dir/d.yaml"
expect 2 - "d.yaml:1|model.layrs|model.layers" "$tutti" plan "$dir/d.yaml"

passed
