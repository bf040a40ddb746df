#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every layout of up to eight ranks against one rank, through the program, with sizes that divide by nothing: 6 heads over tp 4, 257
# ids over 3, 5 layers over 3 stages, an odd batch, an odd sequence. The table is kept when something differs.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# matrix NAME RANKS LEAST WANTED... -- KEYS...: at least LEAST layouts, among them the wanted ones
matrix() {
    local name=$1 ranks=$2 least=$3 wanted=()
    shift 3
    while [ "$1" != -- ]; do
        wanted+=("$1")
        shift
    done
    shift
    local start=$SECONDS
    "$tutti" verify "$dir/$name.yaml" -n "$ranks" "$@" >"$dir/table" 2>&1 || fail "$name $*: $(grep -E 'DIFFERS|tutti:' "$dir/table" | head -5)"
    local n
    n=$(grep -cE '^dp[0-9]' "$dir/table")
    echo "$name: $n layouts in $((SECONDS - start)) s: $(tail -1 "$dir/table")"
    [ "$n" -ge "$least" ] || fail "$name: only $n layouts"
    for layout in "${wanted[@]}"; do
        grep -qE "^dp[0-9]+.*$layout +[0-9]+ " "$dir/table" || fail "$name: no layout like '$layout'"
    done
}

cat >"$dir/dense.yaml" <<END
model: {family: llama, layers: 5, hidden: 48, heads: 6, kv_heads: 2, ffn: 38, vocab: 257, seq_len: 11, dropout: 0.1}
batch: {global: 7, micro: 1}
precision: {recipe: fp32}
optimizer: {lr: 1.0e-2, clip: 0.5}
run: {threads: 1}
comm: {timeout_s: 60}
END
matrix dense 8 60 tp4 tp3 tp8 'tp2\+seq pp2:[a-z0-9]+' pp3:1f1b pp4:zbh1 pp2:zbv 'zero3 tp2' 'replicate2 zero3' servers2 cp8:two \
    cp7:a2a cp5:gather 'tp2\+seq cp4:[a-z0-9]+' 'cp2:[a-z0-9]+ pp4:[a-z0-9]+' 'replicate2 zero3 cp2:[a-z0-9]+' --
cat >"$dir/tied.yaml" <<END
model: {family: gpt2, layers: 5, hidden: 36, heads: 3, ffn: 50, vocab: 257, seq_len: 9, tie_embeddings: true}
batch: {global: 5, micro: 2}
precision: {recipe: bf16}
memory: {recompute: full}
run: {threads: 1}
comm: {timeout_s: 60}
END
matrix tied 5 60 tp3 pp5:1f1b 'zero3 pp2:[a-z0-9]+' --

cat >"$dir/mixtral.yaml" <<END
model: {family: mixtral, layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn: 40, seq_len: 9, moe: {experts: 5, top_k: 2, z: 0.001}}
batch: {global: 5, micro: 1}
precision: {recipe: fp32}
optimizer: {lr: 1.0e-2, clip: 0.5}
run: {threads: 1}
comm: {timeout_s: 60}
END
matrix mixtral 8 60 ep4 'zero3 ep2' 'tp2 ep2 etp1' 'zero3 ep2 cp2:ring pp2:[a-z0-9]+' 'tp2\+seq ep2 cp2:[a-z0-9]+ pp2:[a-z0-9]+' --
matrix mixtral 4 60 ep4 'zero3 ep2' -- model.family=deepseek model.kv_heads=4 model.moe.shared=1 model.moe.first_dense=1 \
    model.moe.score=sigmoid model.moe.bias=true model.mla.kv_rank=10 model.mla.q_rank=12 model.mla.nope_dim=8 model.mla.rope_dim=4 \
    model.mla.value_dim=8
matrix mixtral 5 60 'ep2 cp4:ring' 'tp2 ep2 etp1 cp2:[a-z0-9]+' 'tp2\+seq ep2 cp2:[a-z0-9]+' cp2:gather cp2:a2a cp4:two 'tp4\+seq ep2 etp1' \
    'tp4 etp2' 'tp4\+seq ep2 etp2' 'ep2 pp2:[a-z0-9]+' -- model.moe.capacity=0.7 batch.global=4 batch.micro=2 optimizer.eps=1e-5

passed
