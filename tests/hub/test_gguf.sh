#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A trained model as GGUF: head, names, sizes, and the bytes of its tensors against those of safetensors; what the format cannot
# say is refused, and a file that was there stays.
#   test_gguf.sh TUTTI ROOT
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
export LOG=warn

for i in $(seq 200); do echo "once upon a time there was a number $i and it was so"; done >text.txt
"$tutti" data train-tokenizer --vocab-size 320 --out tokenizer.json text.txt 2>/dev/null || fail "no tokenizer"
train() { # DIR key=value ...
    local to=$1
    shift
    "$tutti" train "$root/examples/quickstart.yaml" model.layers=2 model.hidden=64 model.heads=4 model.kv_heads=2 model.ffn=96 \
        model.seq_len=32 batch.global=2 batch.micro=2 data.train=text.txt 'data.valid=[]' run.steps=1 run.threads=1 run.tensorboard=false \
        run.dir="$to" "$@" >out 2>&1 || fail "train $*: $(tail -3 out)"
}
train run data.tokenizer=tokenizer.json model.tie_embeddings=false
for t in f32 bf16 q8_0; do "$tutti" checkpoint export run "$t.gguf" --format gguf --dtype $t || fail "export $t"; done
"$tutti" checkpoint export run hf --dtype f32 || fail "export"
# What a file's name says is what is written, or refused.
"$tutti" checkpoint export run named.gguf --dtype f32 || fail "export to named.gguf"
[ -f named.gguf ] && [ "$(head -c 4 named.gguf)" = GGUF ] && [ "$(stat -c %s named.gguf)" -ge "$(($(stat -c %s f32.gguf)))" ] || fail "named.gguf is no GGUF: $(ls -ld named.gguf)"
for words in "x.gguf --format hf" "x.gguf --adapter" "x.safetensors"; do
    # shellcheck disable=SC2086
    "$tutti" checkpoint export run $words 2>out && fail "export $words is taken"
    grep -q "name a folder" out && [ ! -e x.gguf ] && [ ! -e x.safetensors ] || fail "export $words: $(cat out)"
done

[ "$(head -c 4 f32.gguf)" = GGUF ] || fail "no GGUF"
[ "$(od -An -tu4 -j4 -N4 f32.gguf | tr -d ' ')" = 3 ] || fail "another version"
[ "$(od -An -tu8 -j8 -N8 f32.gguf | tr -d ' ')" = 21 ] || fail "another number of tensors"
for name in token_embd.weight blk.1.attn_q.weight blk.0.ffn_down.weight output_norm.weight output.weight tokenizer.ggml.merges; do
    grep -qa "$name" f32.gguf || fail "no $name"
done
# place NAME: where the tensor begins in the safetensors file
place() {
    local head
    head=$(od -An -tu8 -N8 hf/model.safetensors | tr -d ' ')
    echo $((8 + head + $(head -c $((8 + head)) hf/model.safetensors | tail -c "$head" | grep -oE "\"$1\":\{[^}]*" | grep -oE '\[[0-9]+,[0-9]+\]$' | tr -d '[' | cut -d, -f1)))
}
total=$(stat -c %s f32.gguf)
vocab=$(grep -oE '"vocab_size": ?[0-9]+' hf/config.json | grep -oE '[0-9]+$')
head_bytes=$((vocab * 64 * 4)) # the last tensor
cmp -s -n $head_bytes <(tail -c $head_bytes f32.gguf) <(tail -c +$(($(place lm_head.weight) + 1)) hf/model.safetensors) || fail "output.weight has other bytes"
data=$((total - (2 * vocab * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)) * 4))
cmp -s -n $head_bytes <(tail -c +$((data + 1)) f32.gguf) <(tail -c +$(($(place model.embed_tokens.weight) + 1)) hf/model.safetensors) || fail "token_embd.weight has other bytes"
# Row 1 of a head of wq is the second half's first row.
q=$((data + (vocab * 64 + 64) * 4))
cmp -s -n 256 <(tail -c +$((q + 256 + 1)) f32.gguf) <(tail -c +$(($(place model.layers.0.self_attn.q_proj.weight) + 8 * 256 + 1)) hf/model.safetensors) || fail "rows of wq are in another order"
[ "$(stat -c %s bf16.gguf)" -lt $((total * 6 / 10)) ] && [ "$(stat -c %s q8_0.gguf)" -lt $((total * 4 / 10)) ] || fail "sizes: $(stat -c '%n %s' ./*.gguf)"
# q8_0's first block: its scale times 127 is the largest of the first 32 numbers, to the scale's rounding (11 bits).
q8data=$(($(stat -c %s q8_0.gguf) - 2 * ((vocab * 68 + 31) / 32 * 32) - 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64) / 32 * 34 - 5 * 64 * 4)) # tensors begin at multiples of 32
largest=$(od -An -tf4 -v -j"$data" -N128 f32.gguf | tr -s ' ' '\n' | awk 'NF { x = $1 < 0 ? -$1 : $1; if (x > m) m = x } END { print m }')
half=$(od -An -tu2 -j"$q8data" -N2 q8_0.gguf | tr -d ' ')
awk -v h="$half" -v m="$largest" 'BEGIN { e = int(h / 1024); f = h % 1024; s = e ? (1 + f / 1024) * 2 ^ (e - 15) : f / 1024 * 2 ^ -14
    d = s * 127 / m - 1; exit !(d < 0.03 && d > -0.03) }' || fail "q8_0: a scale of $half, the largest number is $largest"

echo mine >there.gguf
for args in "run there.gguf --format gguf --dtype f16" "run there.gguf --format hf --dtype q8_0" \
    "run there.gguf --format gguf --shard-bytes 5"; do
    # shellcheck disable=SC2086
    "$tutti" checkpoint export $args >out 2>&1
    [ $? = 2 ] || fail "export $args: $(cat out)"
done
[ "$(cat there.gguf)" = mine ] && [ ! -e there.gguf.part ] || fail "a refused export left something behind"
passed
