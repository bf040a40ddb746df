#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws docs/exponents.svg: the numbers of step 200 of a small fp16 run on this checkout's own text, by exponent: two minutes on one core.
#
#   scripts/exponents.sh [FILE.svg] [key=value ...]     default file: exponents.svg
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tutti=${TUTTI:-$root/build/tutti}
file=exponents.svg
case ${1-} in "" | *=*) ;; *)
    file=$1
    shift
    ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$tutti" train "$root/examples/quickstart.yaml" model.layers=6 model.hidden=192 model.heads=6 model.kv_heads=6 model.ffn=512 model.seq_len=256 batch.global=8 \
    batch.micro=4 "data.train=$root/docs" data.valid=[] run.steps=200 run.exponents_every=200 checkpoint.every=0 run.log_every=50 "run.dir=$dir/run" \
    precision.recipe=fp16 "$@"
"$tutti" report "$dir/run" --exponents "$file"
