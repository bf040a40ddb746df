#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long sanitizers
# suite: unwatched threads
# --weights, as a user says it: generate, eval and bench generate take it and say what it comes to; a small model that has learned its
# text loses little of it, least with 8 bits; what is no packing is refused.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
foxes 200 >t.txt
cat >train.yaml <<END
data: {train: t.txt, tokenizer: byte, cache_dir: cache}
model: {layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, seq_len: 64}
batch: {global: 8, micro: 8}
precision: {recipe: fp32}
optimizer: {lr: 0.01, schedule: {name: constant, warmup_steps: 0}}
run: {dir: run, threads: 1, tensorboard: false, steps: 60}
END
"$tutti" train train.yaml >log 2>&1 || fail "train: $(tail -3 log)"
for i in 3 55 144; do echo "{\"text\":\"$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep.\"}"; done >tasks.jsonl

nats() { # WEIGHTS...
    "$tutti" eval run --tasks tasks.jsonl --json --threads 1 "$@" >score 2>err || fail "eval $*: $(cat err)"
    sed 's/.*"nats_per_token":\([0-9.e-]*\).*/\1/' score
}
whole=$(nats)
for w in int8 nf4 mxfp4; do
    got=$(nats --weights $w)
    grep -q "weights: .* of matrices in $w and .* in f32" err || fail "$w does not say what it takes: $(cat err)"
    # what is lost of a model that has learned: of 8 bits hardly anything, of 4 bits a little, and never nothing
    awk -v a="$whole" -v b="$got" -v w=$w 'BEGIN { d = b - a; if (d < 0) d = -d; exit !(a < 1.5 && d > 0 && d < (w == "int8" ? 0.02 : 0.4)) }' ||
        fail "$w: $got nats a token, $whole with whole weights"
done
says() { "$tutti" generate run --prompt '7. The quick' --max-tokens 20 --temperature 0 --dtype f32 --threads 1 "$@" 2>err || fail "generate $*: $(cat err)"; }
says --weights int8 | grep -q "^7. The quick brown fox" || fail "int8 writes: $(says --weights int8)"
[ "$(says --weights nf4 -n 2 --pp 2)" = "$(says --weights nf4)" ] || fail "pp: $(says --weights nf4 -n 2 --pp 2)"
"$tutti" bench generate --weights mxfp4 --json --threads 1 --tokens 1 --prompt 12 --sequences 2 model.layers=1 >score 2>err || fail "bench: $(cat err)"
grep -q '"weights":"mxfp4".*"whole_tokens_per_s"' score || fail "bench: $(cat score)"
"$tutti" generate run --prompt x --weights int4 >out 2>&1
[ $? = 2 ] && grep -q "int8" out || fail "int4: $(cat out)"
