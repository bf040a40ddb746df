#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti checkpoint from the outside: import, list, inspect, verify, diff, export, and what each says when it must not.
# usage: test_checkpoint.sh TUTTI SOURCE_DIR
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
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
echo PASSED
