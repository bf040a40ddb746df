#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/stored_checkpoint.sh REVISION DIR: makes tests/checkpoint/stored-vN: a small checkpoint as the tutti of REVISION
# writes it, of two ranks, with chunks of 1 KiB (else no box of a few KiB would have any). Builds that revision in a
# folder of its own and removes it. stored-v1 is of 6d2a3e1, stored-v2 of the revision that began version 2.
set -euo pipefail
[ $# = 2 ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
revision=$1 out=$(realpath -m "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$work/source" 2>/dev/null || true; rm -rf "$work"' EXIT
git -C "$root" worktree add --detach -q "$work/source" "$revision"
sed -i 's/^#define MANIFEST_CHUNK .*/#define MANIFEST_CHUNK ((int64_t)1 << 10)/' "$work/source/src/checkpoint/manifest.h"
cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C "$work/build" tutti >/dev/null
for i in $(seq 40); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs; they sleep."; done >"$work/text.txt"
cd "$work"
LOG=error "$work/build/tutti" train "$work/source/examples/quickstart.yaml" -n 2 data.tokenizer=byte data.train=text.txt "data.valid=[]" \
    data.cache_dir=null model.layers=1 model.hidden=8 model.heads=2 model.kv_heads=1 model.ffn=12 model.seq_len=16 \
    model.tie_embeddings=true batch.global=4 batch.micro=1 parallel.zero=1 run.steps=3 run.threads=1 run.eval_every=0 \
    run.sample_every=0 run.tensorboard=false run.dir=run >&2
rm -rf "$out"
cp -r run/checkpoints/step-00000003 "$out"
chmod -R u=rwX,go=rX "$out"
du -sb "$out" >&2
