#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long addresses
# What people do in their first hour: each mistake is refused in words that name what was written and what to write, or, where it
# can be done and is hardly meant, said before the first step. Nothing waits, and nothing is begun that cannot end well.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1

# expect STATUS WORDS COMMAND...: exit status, and each word (split at |) in what is said
expect() {
    local status=$1 words=$2 got word
    shift 2
    (ulimit -t 60; exec "$@") >out 2>&1 </dev/null # seconds of a processor
    got=$?
    [ "$got" = "$status" ] || fail "status $got, wanted $status: $*: $(tail -3 out)"
    IFS='|' read -ra list <<<"$words"
    for word in "${list[@]}"; do
        grep -qaF -- "$word" out || fail "does not say '$word': $*: $(tail -3 out)"
    done
}

foxes 300 >t.txt
cat >c.yaml <<END
model: {layers: 1, hidden: 16, heads: 2, ffn: 32, seq_len: 16}
data: {train: t.txt, cache_dir: cache}
batch: {global: 4, micro: 2}
run: {steps: 2, threads: 1, tensorboard: false}
END
train() { # STATUS WORDS KEYS...
    local status=$1 words=$2
    shift 2
    rm -rf x
    expect "$status" "$words" "$tutti" train c.yaml run.dir=x "$@"
}

# Data that is none.
mkdir pictures folder emptyfolder
for i in 1 2; do printf '\x89PNG\r\n\x1a\n\0\0' >pictures/$i.png; done
printf '\x89PNG\r\n\x1a\n\0\0' >folder/p.png && cp t.txt folder
: >empty.txt && printf abc >three.txt && gzip -c t.txt >t.gz && printf '\xFD7zXZ\0\0\x04' >t.xz && printf 'a,b\n1,2\n%.0s' {1..100} >t.csv
mkfifo fifo && ln -s nothing dangling && ln -s loop loop
train 2 "data.train: empty.txt: is empty" data.train=empty.txt
train 2 "three.txt: has 4 tokens, a sequence of 16 needs 17" data.train=three.txt
train 0 "data: t.gz: " data.train=t.gz
train 2 "t.xz: is compressed by xz, which is not read|xzcat" data.train=t.xz
train 2 "pictures: holds no text (2 files, 2 of them|pictures/1.png is a PNG picture" data.train=pictures
train 0 "folder: 1 of 2 files are no text and were passed over: folder/p.png is a PNG picture" data.train=folder
train 2 "fifo: is neither a file nor a folder" data.train=fifo
train 2 "dangling: is a link to nothing, which is not there" data.train=dangling
train 2 "loop: cannot be read: Too many levels of symbolic links" data.train=loop
train 2 "emptyfolder: holds no file to read" data.train=emptyfolder
train 2 "nowhere: no such file or folder, and no token file nowhere.tok" data.train=nowhere
train 2 "is an address of a kind that is not read; http://, https:// and s3:// are" data.train=ftp://x.org/t.txt
train 2 "patterns are not expanded; name the folder" 'data.train=*.txt'
train 2 '~ stays ~; write $HOME/t.txt' 'data.train=~/t.txt'
train 2 "several are a list in brackets" data.train=t.txt,t.csv
train 2 't.csv: its first row has no column "text", but a, b|column: NAME' data.train=t.csv
train 0 "t.csv: 199 B of text, 398 tokens, 199 documents" "data.train=[{path: t.csv, column: b}]" model.seq_len=16
train 0 "c.yaml is read as plain text" data.train=c.yaml
train 2 "command line: data.train: is required" data.train=
sed 's/train: t.txt, //' c.yaml >nodata.yaml
expect 2 "nodata.yaml: data.train: is required" "$tutti" train nodata.yaml run.dir=x
train 0 "go through this text|by heart" run.steps=700 run.log_every=700 data.train=three.txt model.seq_len=3
train 2 "emptyfolder/tokenizer.json: no such file" data.tokenizer=emptyfolder
train 2 "t.gz: is compressed by gzip; a tokenizer.json was wanted" data.tokenizer=t.gz
train 2 "t.txt:1: not valid JSON" data.tokenizer=t.txt

# Configs that are none.
printf 'model:\n\tlayers: 1\n' >tab.yaml && sed 's/$/\r/' c.yaml >crlf.yaml && printf '\xef\xbb\xbf' | cat - c.yaml >bom.yaml
printf 'run: {steps: 2}\nrun: {steps: 3}\n' >twice.yaml && : >empty.yaml && printf 'model: tiny\n' >scalar.yaml && printf -- '- a\n' >list.yaml
expect 2 "tab.yaml:2: not valid YAML|indent with spaces, not tabs" "$tutti" train tab.yaml
expect 2 "twice.yaml:2: run: given twice, first on line 1" "$tutti" train twice.yaml
expect 2 "empty.yaml: data.train: is required" "$tutti" train empty.yaml run.dir=x
expect 2 "scalar.yaml:1: model: is a section" "$tutti" train scalar.yaml
expect 2 "list.yaml:1: wanted keys with values" "$tutti" train list.yaml
expect 2 "pictures: is a directory; a file was wanted" "$tutti" train pictures
expect 2 "nowhere.yaml: no such file" "$tutti" train nowhere.yaml
expect 2 "fifo: is not a regular file" "$tutti" train fifo
expect 0 "done after step 2" "$tutti" train crlf.yaml run.dir=x1
expect 0 "done after step 2" "$tutti" train bom.yaml run.dir=x2

# Words of the command line.
train 2 "run.steps : unknown key; did you mean run.steps" "run.steps = 3"
train 2 "one argument too many: 3 (a key and its value are one word: run.steps=3)" run.steps= 3
train 2 "run.steps: a key and its value are one word: run.steps=3" run.steps 3
train 2 "a key has no dashes, and is one word with its value: run.steps=3" --run.steps=3
train 2 "several are a list: 'data.train=[A, B]'" data.train=t.txt t.csv
train 2 "write -n 4" -n4
train 2 "ranks are -n RANKS" -np 4
train 2 "-n: wanted a whole number from 1 to" -n 0
train 2 "steps: unknown key; did you mean run.steps" steps=3
train 2 "run.steps: wanted an integer from 1" run.steps=0
train 2 "optimizer.lr: wanted a number" optimizer.lr=nan
expect 2 "there is no command 'trian'; did you mean 'train'" "$tutti" trian c.yaml
expect 2 "which CONFIG" "$tutti" train
expect 2 "layout, tape, schedule, memory, comm or binding, not layuot" "$tutti" explain c.yaml layuot
"$tutti" help plan >a 2>&1 && "$tutti" plan --help >b 2>&1 && cmp -s a b || fail "tutti help plan is not tutti plan --help"

# Places that cannot be written.
echo >afile
train 1 "run.dir: afile: is there and is no directory" run.dir=afile
train 1 "run.dir: afile: is there and is no directory" run.dir=afile/x
train 1 "afile: is there and is no directory" data.cache_dir=afile
train 2 "run.trace: nowhere/t.json: there is no folder nowhere" run.trace=nowhere/t.json
train 2 "run.trace: xy/t.json: there is no folder xy" run.trace=xy/t.json # another folder than the run's, x, which will be made
[ -e x ] && fail "a run was begun that cannot write its trace"
expect 1 "nowhere/x.tok.lock: the lock file cannot be opened: there is no such folder" "$tutti" data tokenize --tokenizer byte --out nowhere/x t.txt
expect 2 "--out: pictures is a directory" "$tutti" data train-tokenizer --vocab-size 300 --out pictures t.txt
expect 2 "there is no folder nowhere" "$tutti" data train-tokenizer --vocab-size 300 --out nowhere/t.json t.txt
expect 2 "pictures: holds no text" "$tutti" data train-tokenizer --vocab-size 300 --out t.json pictures

# What can be done and is hardly meant.
train 0 "command line: run.eval_every: nothing is validated: data.valid names no text" run.eval_every=1
train 0 "command line: data.valid: is not read: run.eval_every is 0" data.valid=three.txt
train 0 "data.valid: ./t.txt is trained on, too" data.valid=./t.txt run.eval_every=2
train 0 "warmup_steps: 100 are more than run.steps = 2" optimizer.schedule.warmup_steps=100
train 0 "optimizer.lr is 0: nothing is learnt" optimizer.lr=0
train 0 "decay_steps: 9 are more than run.steps = 2: the decay has begun before the first step|never reaches optimizer.lr" \
    optimizer.schedule.name=wsd optimizer.schedule.decay_steps=9
train 0 "decay_steps: 5 and a warm-up of 4 are more than run.steps = 8: the decay begins inside the warm-up" run.steps=8 \
    optimizer.schedule.name=wsd optimizer.schedule.decay_steps=5 optimizer.schedule.warmup_steps=4
train 0 "warmup_steps: 2 are all of run.steps" optimizer.schedule.warmup_steps=2
train 0 "min_lr: is optimizer.lr: after the warm-up the learning rate stays what it is" optimizer.lr=1e-3 optimizer.schedule.min_lr=1e-3
train 0 "wsd without its decay" optimizer.schedule.name=wsd
train 0 "2 sequences for 4 data-parallel ranks: 2 of these have nothing to do" -n 4 batch.global=2 batch.micro=1
train 0 "parallel.chunks: 2 has no effect: parallel.pp is 1" parallel.chunks=2
train 0 "memory.recompute_layers: 1 has no effect: memory.recompute is none|memory.offload_least: 1 has no effect: memory.offload is empty" \
    memory.recompute_layers=1 memory.offload_least=1
train 0 "memory.recompute: experts has no effect: model.moe.experts is 0|memory.recompute: latent has no effect|memory.recompute: gathers has no effect" \
    'memory.recompute=[norms, experts, latent, gathers]'
train 0 "optimizer.momentum: 0.5 has no effect: it is of sgd, and optimizer.name is adamw|model.moe.top_k: 1 has no effect: model.moe.experts is 0" \
    optimizer.momentum=0.5 model.moe.top_k=1
train 0 "optimizer.betas: 2 numbers has no effect" optimizer.name=sgd 'optimizer.betas=[0.8, 0.9]'
train 2 "command line: adapter.rank: has no effect: adapter.kind is none, so all weights are trained; choose adapter.kind: lora" adapter.rank=4
train 0 "adapter.rank: 8 has no effect|adapter.from: nowhere has no effect|data.image.flip: 0.5 has no effect|train_on has no effect: the source has no chat" \
    adapter.kind=none adapter.rank=8 adapter.from=nowhere data.image.flip=0.5 'data.train=[{path: t.txt, train_on: all}]'
cp -r x/config.yaml again.yaml
train 0 "done after step 2"
grep -q "warning" out && fail "a run as it should be is warned of something: $(grep warning out)"
expect 0 "done after step 2" "$tutti" train x/config.yaml run.dir=x3
grep -q "no effect" out && fail "its own config.yaml is warned of: $(grep effect out)"

# A model is asked.
expect 2 "the prompt is 62 tokens long, and the model has 16 positions" "$tutti" generate x --prompt "$(head -1 t.txt)"
expect 2 "--prompt and --prompt-file are both given" "$tutti" generate x --prompt x --prompt-file t.txt
expect 2 "--prompt TEXT is needed" "$tutti" generate x
expect 2 "--max-tokens: wanted a whole number from 1" "$tutti" generate x --prompt x --max-tokens 0
expect 2 "--temperature: wanted a number from 0" "$tutti" generate x --prompt x --temperature -1
expect 2 "t.gz: is compressed by gzip; a text was wanted" "$tutti" generate x --prompt-file t.gz
expect 2 "is a file; a folder was wanted, that of a run of tutti" "$tutti" generate x/config.yaml --prompt x
expect 2 "afile: is a file; export into a new directory" "$tutti" checkpoint export x afile
expect 0 "stopped after 16 of 128 new tokens" "$tutti" generate x --prompt ''
expect 0 "threads on the" "$tutti" generate x --prompt x --threads 1000 --max-tokens 1
[ "$(echo The | "$tutti" generate x --prompt-file - --max-tokens 1 2>&1 | head -c 3)" = The ] || fail "standard input is not read from a pipe"

passed
