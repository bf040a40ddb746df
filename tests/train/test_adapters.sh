#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Fine-tuning with frozen weights and with adapters, as a user does it: what is frozen keeps its bits, a run that was interrupted goes on
# in another layout and says the same, the exported model says what the run says, peft's folder goes out and comes in again, and an
# adapter of another base, or with keys that tutti does not compute, is refused by name.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
foxes 200 >t.txt
cat >tune.yaml <<END
data: {train: t.txt, tokenizer: byte, cache_dir: cache}
batch: {global: 4, micro: 2}
optimizer: {lr: 0.01, schedule: {name: constant, warmup_steps: 0}}
checkpoint: {every: 4, keep: 0}
run: {threads: 1, tensorboard: false, steps: 8, log_every: 1}
END
model="model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=48 model.seq_len=32"
lora="adapter.kind=lora adapter.rank=4 adapter.alpha=8 adapter.targets=[q,v,o,gate,down]"
train() { # RUN KEYS...
    local run=$1
    shift
    # shellcheck disable=SC2086
    "$tutti" train tune.yaml run.dir="$run" "$@" >log 2>&1 || fail "$run: $(tail -3 log)"
}
refused() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1
    [ $? = 2 ] && grep -qF -- "$words" out || fail "does not say '$words': $*: $(tail -3 out)"
}
says() { "$tutti" generate "$@" --prompt 'The quick' --max-tokens 30 --temperature 0 --dtype f32 --threads 1 2>err || fail "generate $*: $(cat err)"; }

# shellcheck disable=SC2086
train base $model precision.recipe=fp32
"$tutti" checkpoint export base base-hf >log 2>&1 || fail "export: $(cat log)"

# frozen
train frozen precision.recipe=bf16 model.from=base-hf 'train.only=[layers.1.mlp.*,head.weight]' model.seq_len=32
"$tutti" checkpoint export base base-16 --dtype bf16 >log 2>&1 && "$tutti" checkpoint export frozen frozen-16 --dtype bf16 >log 2>&1 || fail "export: $(cat log)"
"$tutti" checkpoint diff base-16 frozen-16 >diff 2>&1
moved=$(grep -o '^param/[^:]*' diff | sort | tr '\n' ' ')
[ "$moved" = "param/head.weight param/layers.1.mlp.down.weight param/layers.1.mlp.gate.weight param/layers.1.mlp.up.weight " ] || fail "moved: $moved"
refused "another model" "$tutti" train tune.yaml run.dir=frozen model.from=base-hf precision.recipe=bf16 model.seq_len=32 run.steps=9

# adapters, interrupted, and in another layout
# shellcheck disable=SC2086
train whole model.from=base-hf model.seq_len=32 precision.recipe=fp32 $lora checkpoint.every=2
# The frozen base is written twice, the second time in a file of its own, which the later checkpoints have as a link; what is trained is in
# another one.
still=whole/checkpoints/step-00000004/still-00000-1.safetensors
[ "$(stat -c %h $still)" = 3 ] || fail "the frozen base is in $(stat -c %h $still) of 3 checkpoints: $(ls -l whole/checkpoints/*)"
grep -aq '"master/layers.0.attn.q.weight"' $still && ! grep -aq 'lora' $still || fail "what stands still: $(head -c 400 $still | tr -d '\0')"
grep -aq 'lora' whole/checkpoints/step-00000008/boxes-00000.safetensors || fail "what is trained is not written"
grep -aq '"master/layers.0.attn.q.weight"' whole/checkpoints/step-00000008/boxes-00000.safetensors && fail "the frozen base is written again"
# shellcheck disable=SC2086
train half model.from=base-hf model.seq_len=32 precision.recipe=fp32 $lora run.steps=4
# shellcheck disable=SC2086
train half model.from=base-hf model.seq_len=32 precision.recipe=fp32 $lora -n 2 parallel.zero=3
[ "$(says whole)" = "$(says half)" ] || fail "zero 3 after an interruption: $(says half), not $(says whole)"
[ "$(says whole)" != "$(says base)" ] || fail "the adapter changed nothing"
[ "$(says whole --adapter none)" = "$(says base)" ] || fail "the base of the adapters is another: $(says whole --adapter none)"

# out and in
"$tutti" checkpoint export whole merged --dtype f32 >log 2>&1 || fail "merged: $(cat log)"
[ "$(says merged)" = "$(says whole)" ] || fail "merged: $(says merged), not $(says whole)"
"$tutti" checkpoint export whole peft --adapter >log 2>&1 || fail "peft: $(cat log)"
[ "$(says base-hf --adapter peft)" = "$(says whole)" ] || fail "base and peft: $(says base-hf --adapter peft), not $(says whole)"
# shellcheck disable=SC2086
train again model.from=base-hf model.seq_len=32 precision.recipe=fp32 $lora adapter.from=peft run.steps=1 optimizer.lr=0
[ "$(says again)" = "$(says whole)" ] || fail "adapter.from: $(says again), not $(says whole)"
grep -q '"r": 4' peft/adapter_config.json && grep -q '"q_proj"' peft/adapter_config.json || fail "$(cat peft/adapter_config.json)"

# lengths of rows, too: the same ways; a folder of the other kind, or without the weights beside it, is refused
dora="${lora/kind=lora/kind=dora}"
# shellcheck disable=SC2086
train long model.from=base-hf model.seq_len=32 precision.recipe=fp32 $dora
# shellcheck disable=SC2086
train short model.from=base-hf model.seq_len=32 precision.recipe=fp32 $dora run.steps=4
# shellcheck disable=SC2086
train short model.from=base-hf model.seq_len=32 precision.recipe=fp32 $dora -n 2 parallel.tp=2
[ "$(says long)" = "$(says short)" ] || fail "dora, tp 2 after an interruption: $(says short), not $(says long)"
[ "$(says long --adapter none)" = "$(says base)" ] || fail "the base of dora is another: $(says long --adapter none)"
"$tutti" checkpoint export long long-merged --dtype f32 >log 2>&1 || fail "dora, merged: $(cat log)"
"$tutti" checkpoint export long long-peft --adapter >log 2>&1 || fail "dora, peft: $(cat log)"
grep -q '"use_dora": true' long-peft/adapter_config.json && grep -aq 'q_proj.lora_magnitude_vector' long-peft/adapter_model.safetensors || fail "$(cat long-peft/adapter_config.json)"
# shellcheck disable=SC2086
train long-again model.from=base-hf model.seq_len=32 precision.recipe=fp32 $dora adapter.from=long-peft run.steps=1 optimizer.lr=0
# shellcheck disable=SC2086
train long-two model.from=base-hf model.seq_len=32 precision.recipe=fp32 $dora adapter.from=long-peft run.steps=1 optimizer.lr=0 -n 2 parallel.zero=3
for way in long-merged long-again long-two "base-hf --adapter long-peft" "long -n 2 --tp 2" "base-hf --adapter long-peft -n 2 --tp 2"; do
    # shellcheck disable=SC2086
    [ "$(says $way)" = "$(says long)" ] || fail "dora, $way: $(says $way), not $(says long)"
done
"$tutti" checkpoint export long-again again-peft --adapter >log 2>&1
"$tutti" checkpoint export long-again again-merged --dtype f32 >log 2>&1
"$tutti" checkpoint diff again-merged long-merged --tolerance 1e-6 >diff 2>&1 || fail "dora, out and in: $(head -5 diff)"
"$tutti" checkpoint diff base-hf long-merged >diff 2>&1
grep -q 'attn.q.weight' diff && ! grep -q 'attn.k.weight' diff || fail "dora changes: $(cat diff)"
# shellcheck disable=SC2086
refused "choose adapter.kind: lora" "$tutti" train tune.yaml run.dir=no model.from=base-hf model.seq_len=32 $dora adapter.from=peft
# shellcheck disable=SC2086
refused "choose adapter.kind: dora" "$tutti" train tune.yaml run.dir=no model.from=base-hf model.seq_len=32 $lora adapter.from=long-peft
# shellcheck disable=SC2086
refused "model.from" "$tutti" train tune.yaml run.dir=no $model $dora adapter.from=long-peft
# shellcheck disable=SC2086
refused "another model" "$tutti" train tune.yaml run.dir=long model.from=base-hf model.seq_len=32 precision.recipe=fp32 $lora run.steps=9

# at first it is the base, biases and all, also where one rank of two adds them
train biased model.family=gpt2 model.layers=2 model.hidden=32 model.heads=4 model.seq_len=32 precision.recipe=fp32
"$tutti" checkpoint export biased biased-hf >log 2>&1 || fail "export: $(cat log)"
for n in 1 2; do
    train turned-$n model.from=biased-hf model.seq_len=32 precision.recipe=fp32 adapter.kind=dora 'adapter.targets=[q,o,up,down]' run.steps=1 optimizer.lr=0 -n $n parallel.tp=$n
    [ "$(grep -o '"loss": *[0-9.]*' turned-$n/metrics.jsonl | head -1)" = "$(
        train same-$n model.from=biased-hf model.seq_len=32 precision.recipe=fp32 run.steps=1 optimizer.lr=0 -n $n parallel.tp=$n
        grep -o '"loss": *[0-9.]*' same-$n/metrics.jsonl | head -1
    )" ] || fail "dora begins with another model, tp $n: $(tail -1 turned-$n/metrics.jsonl), $(tail -1 same-$n/metrics.jsonl)"
done

# a base in few bits: quantised at the start, interrupted and gone on with in another layout, merged
# shellcheck disable=SC2086
train wide $model model.hidden=128 model.ffn=192 precision.recipe=fp32 run.steps=2
"$tutti" checkpoint export wide wide-hf >log 2>&1 || fail "export: $(cat log)"
for base in nf4 mxfp4; do
    q="model.from=wide-hf model.seq_len=32 precision.recipe=fp32 $lora adapter.base=$base"
    # shellcheck disable=SC2086
    train q-$base $q
    # shellcheck disable=SC2086
    train r-$base $q run.steps=4
    # shellcheck disable=SC2086
    train r-$base $q -n 2 parallel.zero=3
    "$tutti" checkpoint diff q-$base r-$base >diff 2>&1 || fail "$base: zero 3 after an interruption: $(cat diff)"
    "$tutti" checkpoint export q-$base m-$base --dtype f32 >log 2>&1 || fail "merged: $(cat log)"
    [ "$(says m-$base)" = "$(says q-$base)" ] || fail "$base, merged: $(says m-$base), not $(says q-$base)"
    "$tutti" checkpoint diff wide-hf m-$base >diff 2>&1
    grep -q '^param/layers.1.mlp.up.weight' diff || fail "$base: up is as it was before it was rounded: $(cat diff)"
    # what no adapter is beside of came back as near as codes of 4 bits are
    "$tutti" checkpoint diff wide-hf m-$base --tolerance 0.35 >diff.near 2>&1
    grep -E '(mlp.up|attn.k).weight' diff.near && fail "$base: other numbers came back: $(cat diff.near)"
    grep -q '^param/embed.token' diff && fail "$base: embeddings were rounded: $(cat diff)"
done
# numbers of codes, read by ranks that take some rows and columns each: as one rank reads them; merging adds to those of targets only
train read-1 model.from=q-nf4 model.seq_len=32 precision.recipe=fp32 run.steps=1 optimizer.lr=0
train read-2 model.from=q-nf4 model.seq_len=32 precision.recipe=fp32 run.steps=1 optimizer.lr=0 -n 4 parallel.tp=2 parallel.zero=3
"$tutti" checkpoint diff read-1 read-2 --tolerance 1e-3 >diff 2>&1
grep -q '^master/' diff && fail "boxes of a matrix in few bits are read as others: $(cat diff)"
"$tutti" checkpoint export read-1 plain --dtype f32 >log 2>&1 && "$tutti" checkpoint diff plain m-nf4 >diff 2>&1
grep -q '^param/layers.1.attn.q.weight' diff || fail "merging adds nothing to a base in few bits: $(cat diff)"
grep -E 'mlp.up|attn.k' diff && fail "merging changes what has no adapter: $(cat diff)"
# shellcheck disable=SC2086
refused "another model" "$tutti" train tune.yaml run.dir=q-nf4 $q run.steps=9
# shellcheck disable=SC2086
refused "columns 0 to 96 of the 192" "$tutti" train tune.yaml run.dir=no $q adapter.base=nf4 -n 2 parallel.tp=2

# refused
# shellcheck disable=SC2086
refused "adapter.rank" "$tutti" train tune.yaml run.dir=no model.from=base-hf model.seq_len=32 $lora adapter.rank=8 adapter.from=peft
# shellcheck disable=SC2086
refused "choose the same" "$tutti" train tune.yaml run.dir=no model.from=base-hf model.seq_len=32 $lora 'adapter.targets=[q]' adapter.from=peft
# shellcheck disable=SC2086
train other $model model.hidden=16 precision.recipe=fp32 run.steps=1
refused "another base" "$tutti" generate other --prompt x --adapter peft
refused "holds no adapter" "$tutti" checkpoint export base no --adapter
refused "adapter_config.json" "$tutti" generate base --prompt x --adapter base-hf
cp -r peft dora
sed -i 's/"bias": "none"/"bias": "none", "use_dora": true/' dora/adapter_config.json
refused "lora_magnitude_vector" "$tutti" generate base --prompt x --adapter dora
head -c 60 peft/adapter_model.safetensors >dora/adapter_model.safetensors
sed -i 's/, "use_dora": true//' dora/adapter_config.json
"$tutti" generate base --prompt x --adapter dora >out 2>&1 && fail "a cut file is an adapter"
passed
