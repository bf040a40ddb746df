# SPDX-License-Identifier: Apache-2.0
# Zero bubble at 1f1b's bytes: what a Llama of 32 layers of 4096 keeps on its worst rank under each schedule, as docs/pipeline.md
# states it: zbh1 and zbv within 10 % of 1f1b, DualPipe of (p+1)/p of it; alone, and beside ranks that share out gradients,
# however those are handed on. $1: the program.
set -eu
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cat > "$dir/llama.yaml" <<'CONFIG'
model: {family: llama, layers: 32, hidden: 4096, heads: 32, ffn: 11008, vocab: 32000, seq_len: 4096}
batch: {global: 32, micro: 1}
parallel: {pp: 4}
CONFIG

# kept KIND RECOMPUTE [KEYS...]: activations, what W waits for, and scratch of the worst rank, bytes
kept() {
    local kind=$1 recompute=$2
    shift 2
    "$tutti" plan "$dir/llama.yaml" -n $(($# ? 8 : 4)) "parallel.schedule=$kind" "memory.recompute=$recompute" "$@" \
        > "$dir/plan" || fail "plan $kind $recompute $*"
    awk '$1 == "activation" || $1 == "wgrad" || $1 == "scratch" { sum += $2 } END { printf "%.0f\n", sum }' "$dir/plan"
}
# Units on their way, of the plan that was made last.
sends() { awk '$1 == "comm" { print $2 }' "$dir/plan"; }
# ratios RECOMPUTE [KEYS...]
ratios() {
    base=$(kept 1f1b "$@")
    units=$(sends)
    [ "$base" -gt 1000000000 ] || fail "1f1b keeps $base bytes"
    for row in zbh1:110 zbv:110 dualpipe:138 dualpipev:138; do
        kind=${row%:*} percent=${row#*:}
        here=$(kept "$kind" "$@")
        echo "$kind, $*: $((here * 1000 / base)) thousandths of 1f1b"
        [ $((here * 100)) -le $((base * percent)) ] || fail "$kind, recompute $*: $here bytes, 1f1b $base"
        [ $# -eq 1 ] || [ $(($(sends) * 10)) -le $((units * 11)) ] || fail "$kind, recompute $*: units take $(sends) bytes, 1f1b's $units"
    done
}
for recompute in none full attention; do ratios "$recompute"; done
shared="parallel.dp_shard=2 batch.global=64 parallel.zero="
# shellcheck disable=SC2086
for row in "none ${shared}1" "none ${shared}2" "full ${shared}3" "attention ${shared}3" \
    "none ${shared}1 parallel.reduce=step" "none ${shared}2 precision.grad=bf16" "attention ${shared}2 comm.grad=fp8"; do
    ratios $row
done
# Of one microbatch W follows B at once: a unit's gradients do not wait in between for all others.
for kind in 1f1b zbh1; do
    kept "$kind" none parallel.dp_shard=2 batch.global=2 parallel.zero=2 > "$dir/one"
    sends >> "$dir/units"
done
[ "$(sort -u "$dir/units" | wc -l)" -eq 1 ] || fail "units of one microbatch: $(tr '\n' ' ' < "$dir/units")"
full=$(kept zbv full)
[ $((full * 6)) -lt "$(kept zbv none)" ] || fail "recomputation saves little under zbv: $full bytes"
echo done
