#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# numerics.accumulate from the config to the kernels: other sums than fp32's, near them, the same on every run; explain tape names who
# makes them, the first lines say so, and what makes no sense is refused.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
# A text of its own: of the sources, which change every day, some have the same sums in 24 bits and in 25.
foxes 300 >"$dir/text.txt"
tiny=(model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=64 model.seq_len=16 batch.global=2 batch.micro=2
    data.train="$dir/text.txt" "data.valid=[]" run.steps=4 run.log_every=1 checkpoint.every=0 data.cache_dir="$dir/cache")
config=$root/examples/quickstart.yaml

# told WAY RUN: losses and norms of four steps. Losses are rounded to bf16 on their way, norms of fp32 sums are not.
told() {
    "$tutti" train "$config" "${tiny[@]}" run.dir="$dir/$2" numerics.accumulate="$1" >"$dir/$2.log" 2>&1 || fail "$1: $(tail -3 "$dir/$2.log")"
    grep -oE '"(loss|grad_norm)": *[0-9.]*' "$dir/$2/metrics.jsonl" | grep -o '[0-9.]*$'
}
fp32=$(told fp32 a) hopper=$(told hopper-bf16 b) again=$(told hopper-bf16 c) ampere=$(told ampere-bf16 d)
[ -n "$fp32" ] || fail "no losses: $(tail -3 "$dir/a.log")"
[ "$hopper" = "$again" ] || fail "two runs with hopper-bf16 differ: $hopper, $again"
[ "$hopper" != "$fp32" ] || fail "hopper-bf16 has the bits of fp32: $hopper"
[ "$hopper" != "$ampere" ] || fail "ampere-bf16 has the bits of hopper-bf16: $ampere"
paste <(echo "$fp32") <(echo "$hopper") | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 0.003 * $1) exit 1}' || fail "far from fp32: $fp32, $hopper"
grep -q "added up as hopper-bf16" "$dir/b.log" || fail "the first lines do not say it"
grep -q "added up" "$dir/a.log" && fail "the first lines of fp32 say it"
"$tutti" explain "$config" tape "${tiny[@]}" numerics.accumulate=hopper-fp8 2>/dev/null | grep -q "hopper-fp8" || fail "explain tape names no family hopper-fp8"

# refused WORD KEY=VALUE...
refused() {
    local word=$1
    shift
    "$tutti" train "$config" "${tiny[@]}" run.dir="$dir/no" "$@" >"$dir/out" 2>&1
    [ $? = 2 ] || fail "$* was not refused"
    grep -q -- "$word" "$dir/out" || fail "$*: $(cat "$dir/out")"
}
refused "precision.recipe: bf16" numerics.accumulate=hopper-fp8 precision.recipe=fp32
refused "hopper-fp8-promoted" numerics.accumulate=volta
passed
