#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti checkpoint from the outside: import, list, inspect, verify, diff, export, and what each says when it must not.
# usage: test_checkpoint.sh TUTTI SOURCE_DIR
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
fixtures=$2/tests/checkpoint/fixtures
cd "$dir" || exit 1
export LOG=warn


# wants STATUS PATTERN COMMAND...: the exit status, and PATTERN somewhere in what it prints
wants() {
    local status=$1 pattern=$2 out got
    shift 2
    out=$("$@" 2>&1)
    got=$?
    [ $got -eq "$status" ] || fail "$* : exit status $got, wanted $status: $out"
    grep -qe "$pattern" <<<"$out" || fail "$* : '$pattern' is not in: $out"
}

c="$tutti checkpoint"
wants 0 'import' $c --help
wants 2 'usage: tutti checkpoint' $c
wants 2 "did you mean 'inspect'" $c inspct x
wants 2 'no option' $c list --jsn .
wants 2 'which B' $c diff a
wants 2 'no such' $c list nowhere
wants 2 'no such checkpoint' $c inspect nowhere
wants 2 'not a Hugging Face model' $c import . out

for model in gpt2 llama llama-tied; do
    wants 0 '' $c import "$fixtures/$model" "$model"
    wants 0 'ok' $c verify "$model"
    wants 0 'no difference' $c diff "$fixtures/$model" "$model"
    wants 0 'no difference' $c diff "$model" "$model/step-00000000"
    wants 0 '' $c export "$model" "$model-out"
    wants 0 'no difference' $c diff "$model" "$model-out"
    wants 2 'not empty' $c export "$model" "$model-out"
    wants 0 'agree with config.json' $c verify "$model-out"
done
cmp llama-tied-out/model.safetensors <($c export llama-tied x --dtype f16 && cat x/model.safetensors) || fail 'export twice'
wants 0 '' $c export llama sharded --shard-bytes 1000
[ -e sharded/model.safetensors.index.json ] || fail 'no index'
wants 0 'no difference' $c diff llama sharded

wants 0 '' $c export gpt2 gpt2-bf16 --dtype bf16
wants 0 'no difference' $c diff gpt2 gpt2-bf16 # the fixtures' values are exact in bf16
wants 1 'tensors differ' $c diff llama llama-tied
wants 1 '"equal":false' $c diff llama llama-tied --json

wants 0 'step-00000000' $c list gpt2
wants 0 '"complete":true' $c list gpt2 --json
wants 0 'layers.1.attn.k.weight' $c inspect gpt2
wants 0 '"norm":' $c inspect gpt2 --json
wants 0 '"step":0' $c inspect gpt2 --json
wants 0 '"shape":\[8,8\]' $c inspect gpt2 --json

# one changed byte in the data, in the header, in the manifest
file=gpt2/step-00000000/boxes-00000.safetensors
size=$(stat -c %s "$file")
cp "$file" good
printf '\x7f' | dd of="$file" bs=1 seek=$((size - 2)) conv=notrunc status=none
wants 2 'checksum' $c verify gpt2
wants 2 'checksum' $c inspect gpt2
cp good "$file"
printf ' ' | dd of="$file" bs=1 seek=9 conv=notrunc status=none
wants 2 "$file" $c verify gpt2
head -c $((size - 1)) good >"$file"
wants 0 'broken' $c list gpt2
wants 2 'bytes' $c verify gpt2/step-00000000
wants 2 'there is no other' $c verify gpt2
cp good "$file"
wants 0 'ok' $c verify gpt2

# The same state in other files, and back; the mean of a state and itself is that state.
wants 0 'ok' $c verify gpt2
wants 2 'is not empty' $c reshard gpt2 llama --files 3
wants 2 'files' $c reshard gpt2 x-0 --files 0
wants 2 'checkpoint import reads it' $c reshard "$fixtures/gpt2" x-0
wants 0 'in 5 files' env LOG=info $c reshard gpt2 five --files 5
[ "$(find five -name 'boxes-*.safetensors' | wc -l)" = 5 ] || fail "reshard --files 5: $(ls five/*)"
wants 0 'no difference' $c diff gpt2 five
wants 0 'ok' $c verify five
wants 0 '' $c reshard five one
cmp one/step-00000000/boxes-00000.safetensors "$file" || fail 'five files and one again are not what was'
wants 0 '' $c average gpt2 five one --weights 1,2,0.5 --out mean
wants 0 'no difference' $c diff gpt2 mean
wants 2 'one checkpoint has no mean' $c average gpt2 --out m
wants 2 'of one model' $c average gpt2 llama --out m
wants 2 'wanted 2 numbers' $c average gpt2 one --out m --weights 1
wants 2 'wanted 2 numbers' $c average gpt2 one --out m --weights 1,-1
wants 2 'add up to 0' $c average gpt2 one --out m --weights 0,0
wants 2 'holds 1 complete' $c average gpt2 --last 2 --out m
wants 2 'takes one run' $c average gpt2 one --last 2 --out m
wants 2 'must be a checkpoint of tutti' $c average gpt2 "$fixtures/gpt2" --out m
wants 2 'no averaged weights' $c average gpt2 one --ema --out m
wants 2 '--out DIR is needed' $c average gpt2 one
[ ! -e m ] || fail 'a refused average wrote something'

# Numbers of a tensor.
wants 0 'zeros 0 .*not finite 0' $c inspect gpt2 --histogram --tensor attn.q.weight
wants 0 '^2 tensors' $c inspect gpt2 --tensor attn.q.weight
wants 0 '"first_exponent":-*[0-9]*,"exponents":\[[0-9]' $c inspect gpt2 --histogram --json

# A run goes on from what was made into other files as from what it saved itself, in another layout too.
train() { # DIR STEPS KEYS...
    local run=$1 steps=$2
    shift 2
    "$tutti" train "$root/examples/quickstart.yaml" model.layers=2 model.hidden=32 model.heads=2 model.kv_heads=2 model.ffn=64 model.seq_len=32 \
        batch.global=4 batch.micro=2 "data.train=$root/README.md" data.valid=[] run.threads=1 precision.recipe=fp32 run.dir="$run" run.steps="$steps" \
        "$@" >"$dir/log" 2>&1 || fail "train $run: $(tail -3 "$dir/log")"
}
train a 4 checkpoint.every=2 checkpoint.keep=0 -n 2 parallel.zero=1
wants 0 '' $c reshard a/checkpoints/step-00000002 a2 --files 3
wants 0 '' $c verify a2
train b 4 checkpoint.every=2 checkpoint.resume=a2 -n 2 parallel.zero=1
wants 0 'no difference' $c diff a b
train c 4 checkpoint.every=2 checkpoint.resume=a2/step-00000002 -n 2 parallel.tp=2
wants 0 'no difference' $c diff a c --tolerance 1e-4
wants 0 'the mean of 2' env LOG=info $c average a --last 2 --out ab
wants 1 'only in the first' $c diff a ab
"$tutti" generate ab --prompt 'a' --max-tokens 3 >"$dir/log" 2>&1 || fail "generate from a mean: $(tail -3 "$dir/log")"
"$tutti" train "$root/examples/quickstart.yaml" "data.train=$root/README.md" data.valid=[] model.layers=2 model.hidden=32 model.heads=2 model.kv_heads=2 \
    model.ffn=64 model.seq_len=32 batch.global=4 batch.micro=2 run.dir=d run.steps=6 checkpoint.resume=ab >"$dir/log" 2>&1 && fail 'a run went on from a mean'
grep -q 'm/embed.token is not in it' "$dir/log" || fail "going on from a mean: $(tail -3 "$dir/log")"
echo PASSED
