#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a stranger hands over: a run's folder with pipes and devices under the names of its files hangs nothing, and names that
# would speak to the terminal (keys of JSON lines, members of archives, tensors, runs, hosts) are spelt by every command.
#   test_strangers.sh TUTTI ROOT
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
esc=$'\033]0;mine\007\033[31m\302\233'
cat >c.yaml <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 16}
data: {train: [$root/LICENSE]}
batch: {global: 2, micro: 2}
run: {threads: 1, steps: 3, tensorboard: false, dir: run}
YAML
"$tutti" train c.yaml >log 2>&1 || fail "training: $(tail -3 log)"

# -- pipes and devices
tried=0
ask() { # WHAT COMMAND...: ends by itself, with an error or without the file
    local what=$1 status
    shift
    (ulimit -t 60; exec "$tutti" "$@") >out 2>&1 </dev/null # seconds of a processor
    status=$?
    tried=$((tried + 1))
    [ $status = 0 ] || [ $status = 1 ] || [ $status = 2 ] || fail "$what: $*: status $status: $(tail -2 out)"
}
for file in metrics.jsonl starts.jsonl ends.jsonl config.yaml samples.jsonl flight-rank0.txt stacks.txt skips.jsonl; do
    for kind in fifo /dev/zero /dev/tty endless; do
        rm -rf bad && cp -r run bad && rm -rf "bad/$file"
        case $kind in
        fifo) mkfifo "bad/$file" ;;
        endless) truncate -s 1T "bad/$file" 2>/dev/null || continue ;;
        *) ln -s $kind "bad/$file" ;;
        esac
        ask "$file is $kind" watch bad --once
        [ $file != metrics.jsonl ] || grep -q "metrics.jsonl: " out || fail "watch: $file is $kind: $(cat out)"
        ask "$file is $kind" report bad --html page.html
        case "$file $kind" in
        metrics.jsonl\ * | starts.jsonl\ fifo | config.yaml\ fifo | skips.jsonl\ /dev/zero) ask "$file is $kind" replay bad --step 2 ;;
        esac
    done
done
[ $tried -gt 60 ] || fail "only $tried commands were tried"

# -- names
quiet() { # WHAT: nothing that the last command wrote speaks to a terminal
    if grep -q $'\033' out || grep -q $'\007' out || LC_ALL=C grep -q $'\302\233' out; then fail "$1: $(cat -v out)"; fi
    tail -c +1 out | grep -q 'mine' || fail "$1: the name is not shown at all: $(cat -v out)"
}
speak() { # WHAT COMMAND...
    local what=$1
    shift
    (ulimit -t 60; exec "$tutti" "$@") >out 2>&1 </dev/null # seconds of a processor
    quiet "$what"
}
printf '{"text": "a b c"}\n{"%s": 1}\n' '\u001b]0;mine\u0007\u009b' >keys.jsonl
speak "a key of a JSON line" data tokenize --tokenizer byte --out keys keys.jsonl
mkdir -p members && echo text >"members/$esc.txt" && echo text >"members/$esc.other"
tar cf members.tar -C members . && speak "members of an archive" data tokenize --tokenizer byte --out members.bin members.tar "$esc"
cp -r run "run$esc" && speak "the name of a run" watch "run$esc" --once
speak "the name of a run" report "run$esc"
speak "the name of a run" checkpoint list "run$esc"
speak "an argument" checkpoint inspect "nowhere$esc"
speak "a command" "nothing$esc"
speak "an option" train "--$esc"
speak "a key of a config" train c.yaml "model.$esc=1"
mkdir -p hf
printf '{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":8,"hidden_size":8,"max_position_embeddings":8,"rms_norm_eps":1e-5,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,"\\u001b]0;mine":1}' >hf/config.json
speak "a key of a published config" checkpoint inspect hf
speak "a folder" checkpoint verify "hf$esc"
cp -r run host && printf '{"time":"2026-01-01T00:00:00Z","host":"%s","ranks":1}\n' '\u001b]0;mine\u0007\u009b' >host/starts.jsonl
speak "the name of a host" watch host --once
printf 'model: {family: "%s"}\n' '\e]0;mine\x07' >family.yaml
speak "a word of a config" plan family.yaml
printf '{"prompt": "a", "choices": ["b", "c"], "answer": 0, "task": "%s"}\n' '\u001b]0;mine\u0007\u009b' >tasks.jsonl
speak "the name of a task" eval run --tasks tasks.jsonl

# What is data goes into a file as it is.
"$tutti" generate run --prompt $'\033[1ma' --max-tokens 1 --temperature 0 >out 2>err || fail "generate: $(cat err)"
grep -qF $'\033[1ma' out || fail "a text into a file is another one: $(cat -v out)"
passed
