# SPDX-License-Identifier: Apache-2.0
# Zero bubble at 1f1b's bytes: what a Llama of 32 layers of 4096 keeps on its worst rank under each schedule, as docs/pipeline.md
# states it: zbh1 and zbv within 10 % of 1f1b, DualPipe of (p+1)/p of it. $1: the program.
set -eu
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cat > "$dir/llama.yaml" <<'CONFIG'
model: {family: llama, layers: 32, hidden: 4096, heads: 32, ffn: 11008, vocab: 32000, seq_len: 4096}
batch: {global: 32, micro: 1}
parallel: {pp: 4}
CONFIG

# kept KIND RECOMPUTE: activations, what W waits for, and scratch of the worst rank, bytes
kept() {
    "$tutti" plan "$dir/llama.yaml" -n 4 "parallel.schedule=$1" "memory.recompute=$2" > "$dir/plan" || fail "plan $1 $2"
    awk '$1 == "activation" || $1 == "wgrad" || $1 == "scratch" { sum += $2 } END { printf "%.0f\n", sum }' "$dir/plan"
}
for recompute in none full attention; do
    base=$(kept 1f1b "$recompute")
    [ "$base" -gt 1000000000 ] || fail "1f1b keeps $base bytes"
    for row in zbh1:110 zbv:110 dualpipe:138 dualpipev:138; do
        kind=${row%:*} percent=${row#*:}
        here=$(kept "$kind" "$recompute")
        echo "$recompute $kind: $((here * 1000 / base)) thousandths of 1f1b"
        [ $((here * 100)) -le $((base * percent)) ] || fail "$kind, recompute $recompute: $here bytes, 1f1b $base"
    done
done
full=$(kept zbv full)
[ $((full * 6)) -lt "$(kept zbv none)" ] || fail "recomputation saves little under zbv: $full bytes"
echo done
