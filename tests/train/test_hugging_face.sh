#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# Folders of models as they are published (tiny weights, all the keys that real files have, shards with an index, numbers that only
# Python reads): every command takes them as they are, fine-tuning keeps what goes with the weights, keys given beside
# model.from are followed, refused or said, and what is no such folder is told what it is and what to do.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
export HF_HUB_CACHE=$dir/hub

# expect STATUS WORDS COMMAND...: exit status, and each word (split at |) in what is said
expect() {
    local status=$1 words=$2 got word
    shift 2
    "$@" >out 2>&1
    got=$?
    [ "$got" = "$status" ] || fail "status $got, wanted $status: $*: $(tail -3 out)"
    IFS='|' read -ra list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" out || fail "does not say '$word': $*: $(tail -3 out)"
    done
}

foxes 300 >t.txt
"$tutti" data train-tokenizer --vocab-size 300 --style llama3 --out t.json t.txt >/dev/null 2>&1 || fail "no tokenizer"
cat >make.yaml <<END
model: {layers: 2, hidden: 16, heads: 2, ffn: 32, seq_len: 32}
data: {train: t.txt, tokenizer: t.json, cache_dir: cache}
batch: {global: 2, micro: 2}
run: {threads: 1, tensorboard: false, steps: 1}
END
sed 's/^model:.*//; s/, tokenizer: t.json//' make.yaml >tune.yaml

# make FAMILY KEYS...: FAMILY/, in shards
make() {
    local family=$1
    shift
    "$tutti" train make.yaml model.family="$family" run.dir="run-$family" "$@" >log 2>&1 || fail "$family: $(tail -2 log)"
    "$tutti" checkpoint export "run-$family" "$family" --shard-bytes 20000 >log 2>&1 || fail "$family: $(tail -2 log)"
}

# publish FAMILY MEMBERS: what published files have besides, in front of config.json's own members, and the files around it
publish() {
    local family=$1
    sed -i "1s/.*/{ \"_name_or_path\": \"org\/x\", \"transformers_version\": \"4.45.0.dev0\", \"pad_token_id\": null, \"model_max_length\": 1000000000000000019884624838656, $2/" "$family/config.json"
    printf '\xEF\xBB\xBF{"add_bos_token": true, "model_max_length": 1000000000000000019884624838656, "eos_token": "<|end_of_text|>", "sp_model_kwargs": {},
"bos_token": {"__type": "AddedToken", "content": "<|begin_of_text|>", "lstrip": false}, "chat_template": "{{ messages }}", "sp_model_kwargs": {}}\n' >"$family/tokenizer_config.json"
    echo '{"do_sample": true, "temperature": 0.6, "top_p": NaN, "eos_token_id": [1, 2], "big": 18446744073709551616}' >"$family/generation_config.json"
    echo '{"bos_token": "<|begin_of_text|>", "pad_token": {"content": "<|end_of_text|>"}}' >"$family/special_tokens_map.json"
    echo '{{ bos_token }}' >"$family/chat_template.jinja"
    sed -i 's/"total_size": *\([0-9]*\)/"total_size": 1000000000000000019884624838656, "total_size": \1.0/' "$family/model.safetensors.index.json"
}

make llama model.kv_heads=1
make gpt2
make mixtral model.moe.experts=4
make deepseek model.moe.experts=4 model.moe.ffn=16 model.moe.shared=1 model.moe.first_dense=1 model.mla.kv_rank=8 model.mla.nope_dim=4 \
    model.mla.rope_dim=4 model.mla.value_dim=4 model.mla.q_rank=8 model.moe.score=sigmoid model.moe.bias=true model.moe.groups=2 model.moe.group_pairs=true
publish llama '"pretraining_tp": 1, "mlp_bias": false, "auto_map": {"AutoModel": "x.Y"}, "dtype": "bfloat16", "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16, "rope_type": "llama3"},'
sed -i 's/"rope_scaling": null,//; s/"eos_token_id": [0-9]*/"eos_token_id": [1, 2]/' llama/config.json
publish gpt2 '"task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "summary_type": "cls_index", "summary_use_proj": true, "use_cache": true,'
publish mixtral '"router_aux_loss_coef": 0.02, "output_router_logits": false, "sliding_window": null,'
publish deepseek '"aux_loss_alpha": 0.001, "seq_aux": true, "ep_size": 1, "num_nextn_predict_layers": 1, "pretraining_tp": 1, "auto_map": {"AutoConfig": "c.D"},'
ls llama/model-00002-of-*.safetensors >/dev/null 2>&1 || fail "one shard only"

for family in llama gpt2 mixtral deepseek; do
    expect 0 "weights from $family|done after step 1" "$tutti" train tune.yaml model.from=$family run.dir=tuned-$family
    grep -q "tokenizer: $family" tuned-$family/config.yaml || fail "$family: the tokenizer is not the model's own"
    expect 0 "done after step 1" "$tutti" train tuned-$family/config.yaml run.dir=again-$family # its own config is readable, and says the same
    expect 0 "no difference" "$tutti" checkpoint diff tuned-$family again-$family
    expect 0 "parameters" "$tutti" plan tune.yaml model.from=$family
    expect 0 "" "$tutti" explain tune.yaml layout model.from=$family
    expect 0 "" "$tutti" generate $family --prompt "The quick" --max-tokens 3
    cp out said
    expect 0 "tensors imported" "$tutti" checkpoint import $family imported-$family
    expect 0 "" "$tutti" generate imported-$family --prompt "The quick" --max-tokens 3
    cmp -s said out || fail "$family: the imported model writes something else"
    for from in tuned imported; do
        rm -rf new
        expect 0 "exported" "$tutti" checkpoint export $from-$family new
        for file in tokenizer.json tokenizer_config.json special_tokens_map.json chat_template.jinja generation_config.json; do
            cmp -s $family/$file new/$file || fail "$from-$family: $file was not kept"
        done
    done
    expect 0 "" "$tutti" generate new --prompt "The quick" --max-tokens 3
    cmp -s said out || fail "$family: the model exported again writes something else"
done
rm -rf new
"$tutti" checkpoint export tuned-llama new >/dev/null 2>&1
tr -d ' \n' <new/config.json | grep -q '"eos_token_id":\[1,2\]' || fail "one of two ends is lost: $(grep -A3 eos_token new/config.json)"

# The example, as its first lines say, on such a folder.
expect 0 "weights from llama|done after step 2" "$tutti" train "$root/examples/finetune.yaml" model.from=llama data.train=t.txt model.seq_len=32 \
    run.dir=example run.steps=2 run.threads=1 batch.global=4
expect 0 "exported" "$tutti" checkpoint export example example-out

# Keys beside model.from: followed and said, refused where the weights say otherwise, and left to the config where they are its own.
expect 0 "model.rope_theta is 500000 here, 10000 in llama|model.norm_eps is 1e-06 here|model.max_positions is 64 here, 32 in llama|samples of 64|model.rope_scaling.factor is 8 here, 32 in llama" \
    "$tutti" train tune.yaml model.from=llama run.dir=keys model.rope_theta=500000 model.norm_eps=1e-6 model.seq_len=64 model.max_positions=64 model.rope_scaling.factor=8
grep -q "rope_theta: 5.0e+05" keys/config.yaml || fail "the key did not reach the run: $(grep rope_theta keys/config.yaml)"
expect 0 "has dropout 0; training goes by model.dropout, which is 0.1" "$tutti" train tune.yaml model.from=llama run.dir=keys2 model.dropout=0.1
expect 0 "model.moe.top_k is 1 here, 2 in mixtral" "$tutti" train tune.yaml model.from=mixtral run.dir=keys3 model.moe.top_k=1
[ "$(grep -c " here, " out)" = 1 ] || fail "something else is said to differ: $(grep " here, " out)"
# refused FAMILY KEY=VALUE SAYS
refused() { expect 2 "$3" "$tutti" train tune.yaml model.from=$1 run.dir=refused "$2"; [ -e refused ] && fail "$2: a run was begun"; }
refused llama model.layers=3 "command line: model.layers: 3, but model.from has 2"
refused llama model.tie_embeddings=true "model.tie_embeddings: true, but model.from has false"
refused llama model.family=gpt2 "model.family: gpt2, but model.from has llama"
refused llama model.moe.experts=2 "model.moe.experts: 2, but model.from has 0"
refused mixtral model.moe.experts=8 "model.moe.experts: 8, but model.from has 4"
refused deepseek model.mla.kv_rank=16 "model.mla.kv_rank: 16, but model.from has 8"
refused llama model.seq_len=64 "choose at most 32, or|model.max_positions: 64"
refused gpt2 model.seq_len=64 "choose at most 32"
refused gpt2 model.max_positions=64 "model.max_positions: 64, but model.from has 32"
refused llama model.yarn.factor=2 "positions are scaled in one way"
sed "1s/.*/model: {from: llama, heads: 4}/" tune.yaml >heads.yaml
expect 2 "heads.yaml:1: model.heads: 4, but model.from has 2" "$tutti" train heads.yaml run.dir=refused
expect 0 "is not the tokenizer that llama has" "$tutti" train tune.yaml model.from=llama run.dir=keys4 data.tokenizer=byte

# A number that is used has to fit; quantised weights are refused by name.
cp -r llama odd
sed -i 's/"num_key_value_heads": *[0-9]*/"num_key_value_heads": 18446744073709551615/' odd/config.json
expect 2 "odd/config.json: num_key_value_heads: wanted an integer from 1 to 65536, got 1.84467441e+19" "$tutti" train tune.yaml model.from=odd run.dir=refused
cp llama/config.json odd && sed -i '1s/{/{"quantization_config": {"quant_method": "fp8"},/' odd/config.json
expect 2 "quantization_config is an object of 1" "$tutti" train tune.yaml model.from=odd run.dir=refused
cp llama/config.json odd && rm odd/tokenizer.json && touch odd/tokenizer.model
expect 2 "data.tokenizer: model.from, odd, holds no tokenizer.json; it has tokenizer.model" "$tutti" train tune.yaml model.from=odd run.dir=refused
expect 0 "parameters" "$tutti" plan tune.yaml model.from=odd
echo '{' >odd/config.json
expect 2 "odd/config.json:2: not valid JSON" "$tutti" train tune.yaml model.from=odd run.dir=refused

# No folder of a model: what it is, and what to do.
pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >"$1"; }
no_model() { expect 2 "$2" "$tutti" train tune.yaml model.from="$1" run.dir=refused; expect 2 "$2" "$tutti" generate "$1" --prompt x; }
mkdir -p empty pickles gguf meta weights hub/models--org--name/snapshots/abc cloned several/one
touch pickles/pytorch_model.bin gguf/x.gguf meta/params.json meta/consolidated.00.pth weights/model.safetensors
cp llama/*.json hub/models--org--name/snapshots/abc
cp llama/config.json several/one
no_model meta-llama/Llama-3.2-1B "hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B|git clone https://huggingface.co/meta-llama/Llama-3.2-1B|name Llama-3.2-1B"
no_model https://huggingface.co/openai/gpt "hf download openai/gpt --local-dir gpt"
no_model gpt2-xl "hf download gpt2-xl"
no_model org/name "the cache of huggingface_hub has this model: name $dir/hub/models--org--name/snapshots/abc"
no_model hub/models--org--name "the model itself is hub/models--org--name/snapshots/abc"
no_model ./none "./none: no such checkpoint"
no_model llama/config.json "is one file of a model; name its folder: llama"
no_model t.txt "is a file; a folder was wanted"
no_model empty "empty: is empty"
no_model gguf "holds GGUF (x.gguf)"
no_model meta "Meta's own form"
no_model weights "holds weights (*.safetensors) and no config.json"
no_model pickles "holds pickles (pytorch_model.bin)|save_pretrained"
no_model several "name several/one"
cp llama/config.json pickles
no_model pickles "its weights are pickles (pytorch_model.bin)|safetensors"
cp llama/config.json cloned
no_model cloned "no weights: neither model.safetensors nor"
cp llama/*.json cloned && for f in llama/*.safetensors; do pointer "cloned/${f##*/}"; done
no_model cloned "is a git-lfs pointer|git lfs pull"
cp llama/*.safetensors cloned && pointer cloned/tokenizer.json
no_model cloned "tokenizer.json: is a git-lfs pointer"
expect 2 "is a checkpoint of tutti already" "$tutti" checkpoint import run-llama refused
[ -e refused ] && fail "something was written"

passed
