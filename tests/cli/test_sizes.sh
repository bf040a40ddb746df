#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# Every row of docs/model-sizes.md: a model of its keys has the parameters that the published one has.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
printf 'model: {seq_len: 64}\nbatch: {global: 1, micro: 1}\nrun: {threads: 1}\n' >"$dir/plan.yaml"
n=0
while IFS='|' read -r _ name keys count _; do
    keys=${keys//\`/} count=${count//[, ]/}
    # shellcheck disable=SC2086 # keys are words
    "$tutti" plan "$dir/plan.yaml" --json $(printf 'model.%s ' $keys) >"$dir/out" 2>&1 || fail "$name: $(tail -1 "$dir/out")"
    grep -q "\"params\":$count," "$dir/out" || fail "$name: $(grep -o '"params":[0-9]*' "$dir/out"), not $count"
    n=$((n + 1))
done < <(grep '^| .*`family=' "$2/docs/model-sizes.md")
[ "$n" -ge 40 ] || fail "only $n models"
passed
