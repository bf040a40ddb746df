#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every precision recipe on one text, seed and model (11 M parameters on this checkout's own sources): validation curves and a
# table of how far each ends above bf16. Two million tokens a recipe: seven minutes on two cores with AMX, nine to eighteen for others.
#
#   scripts/recipes.sh [FOLDER] [key=value ...]     default folder: runs/recipes; such as run.steps=200
#
# docs/precision.md has the losses.
#
# RECIPES="bf16 mxfp8" takes some of them only, JOBS=4 so many at a time. A run that was done is not done again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tutti=${TUTTI:-$root/build/tutti}
case ${1-} in "" | *=*) out=$root/runs/recipes ;; *)
    out=$1
    shift
    ;;
esac
recipes=${RECIPES:-bf16 fp32 fp16 fp8-delayed fp8-current fp8-block mxfp8 nvfp4}
mkdir -p "$out"
[ -f "$out/pieces.json" ] || "$tutti" data train-tokenizer --vocab-size 2048 --out "$out/pieces.json" "$root/src" >&2
cat >"$out/model.yaml" <<END
model: {family: llama, layers: 6, hidden: 384, heads: 6, kv_heads: 6, ffn: 1024, seq_len: 256, tie_embeddings: true}
data: {tokenizer: $out/pieces.json, train: [$root/src], valid: [$root/tests/verify], cache_dir: $out/data}
batch: {global: 8, micro: 4}
optimizer: {lr: 3.0e-4, schedule: {name: cosine, warmup_steps: 100, min_lr: 1.0e-5}}
checkpoint: {every: 0}
run: {steps: 1000, log_every: 100, eval_every: 100, eval_batches: 32, tensorboard: false}
END
train() { # RECIPE KEYS...
    local r=$1
    shift
    echo "recipes: $r" >&2
    "$tutti" train "$out/model.yaml" precision.recipe="$r" run.dir="$out/$r" "$@" 2>"$out/$r.log" || echo "recipes: $r failed: $(tail -n 1 "$out/$r.log")" >&2
}
set -- "$@"
first=1
for r in $recipes; do
    if [ "$first" = 1 ]; then
        train "$r" "$@" # alone: it makes the tokenised text that all read
        first=0
        continue
    fi
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n || true; done
    train "$r" "$@" &
done
wait
set -- $recipes
run=$out/$1
shift
beside=$(printf "$out/%s," "$@")
"$tutti" report "$run" --beside "${beside%,}" --svg "$out/recipes.svg"
echo "recipes: $out/recipes.svg" >&2
