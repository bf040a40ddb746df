#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# `tutti bench gemm`: the promised fields for every layer, pass and type; only JSON on stdout; wrong requests end in 2.
set -euo pipefail
tutti=$1
out=$("$tutti" bench gemm --model tiny --tokens 16 --json 2>/dev/null)
fail() { echo "FAIL: $1"; echo "$out"; exit 1; }
[[ $out == "{"* && $out == *"}" ]] || fail "not one JSON object"
count() { grep -c "\"$1\": $2" <<<"$out" || true; }
for key in tile_rate_flops fma_rate_flops; do
    [[ $(count "$key" '[1-9][0-9.e+]*') == 1 ]] || fail "$key"
done
# 4 layers, 3 passes, 2 types
for key in '"m": [1-9]' '"n": [1-9]' '"k": [1-9]' '"path": "[a-z]' '"layer": "'; do
    [[ $(grep -c "$key" <<<"$out") == 24 ]] || fail "$key is not there 24 times"
done
for pass in forward input_grad weight_grad; do
    [[ $(count pass "\"$pass\"") == 8 ]] || fail "$pass"
done
for dtype in bf16 f32; do
    [[ $(count dtype "\"$dtype\"") == 12 ]] || fail "$dtype"
done
for wrong in "--tokens 0" "--model gpt9" "--dtype f13" "--unknown"; do
    # shellcheck disable=SC2086
    if "$tutti" bench gemm $wrong >/dev/null 2>&1; then fail "$wrong was accepted"; else [[ $? == 2 ]] || fail "$wrong"; fi
done
echo "ok"
