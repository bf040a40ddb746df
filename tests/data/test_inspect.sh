#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Conversations through training: only answers count as trained, in every layout alike; and data inspect: text, tokens, page, JSON, with
# what a terminal or a browser would obey taken out.
. "$(dirname "$0")/../script.sh" || exit

printf '%s\n' '{"messages":[{"role":"user","content":"Say \u001b[31m<b>&\u009b it"},{"role":"assistant","content":"Yes & no."}]}' \
  '{"messages":[{"role":"user","content":"More"},{"role":"assistant","content":"One.\nTwo."},{"role":"user","content":"?"},{"role":"assistant","content":"Three"}]}' >"$dir/two.jsonl"
for i in $(seq 30); do cat "$dir/two.jsonl"; done >"$dir/talk.jsonl"
cat >"$dir/c.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32, seq_len: 32}
data: {tokenizer: byte, train: [{path: $dir/talk.jsonl, chat: plain}], pack: best_fit}
batch: {global: 4, micro: 2}
precision: {recipe: fp32}
run: {dir: $dir/run, steps: 3, log_every: 1, tensorboard: false}
checkpoint: {every: 0}
YAML

# answers and the ends of their turns, of both documents: "Yes & no." and end of text; "One.\nTwo.", "Three" and theirs
"$tutti" data tokenize --tokenizer byte --chat plain --out "$dir/t" "$dir/two.jsonl" >/dev/null || fail "tokenize"
json=$("$tutti" data inspect "$dir/t" --sample 0 --json) || fail "inspect --json"
[[ "$json" == *'"schema":"tutti.data-inspect-samples.1"'*'"trained":10,'* ]] || fail "not 10 trained tokens: $json"
[[ "$("$tutti" data inspect "$dir/t.tok" --sample 1 --json)" == *'"trained":16,'* ]] || fail "not 16 trained tokens"
text=$("$tutti" data inspect "$dir/t" --sample 0) || fail "inspect"
[[ "$text" == *'Assistant: ⟦Yes & no.<|endoftext|>⟧'* ]] || fail "the answer is not marked: $text"
[[ "$text" == *'\x1b[31m'*'\x9b'* && "$text" != *$'\e'* ]] || fail "a control character reaches the terminal: $text"
[ "$("$tutti" data inspect "$dir/t" --sample 0 --tokens | grep -c ' yes ')" = 10 ] || fail "--tokens: not 10 lines with a loss"
text=$("$tutti" data inspect "$dir/t" --show 40) || fail "inspect --show"
[[ "$text" == *'\x1b[31m'*'\x9b'* && "$text" != *$'\e'* ]] || fail "--show: a control character reaches the terminal: $text"
evil=$dir/$'a\e[31m.jsonl'
cp "$dir/two.jsonl" "$evil"
"$tutti" data tokenize --tokenizer byte --chat plain --out "$dir/e" "$evil" >/dev/null || fail "tokenize a file with a control character"
text=$("$tutti" data inspect "$dir/e" --sample 0) || fail "inspect a file with a control character"
[[ "$text" == *'a\x1b[31m.jsonl'* && "$text" != *$'\e'* ]] || fail "a file's name speaks to the terminal: $text"
"$tutti" data inspect "$dir/t" --sample 0 --html "$dir/p.html" >/dev/null || fail "--html"
grep -q '<b>&' "$dir/p.html" && fail "the page holds what a user wrote, unescaped"
grep -q '>&lt;<' "$dir/p.html" || fail "the page does not hold it escaped"
grep -qE '(src|href)=' "$dir/p.html" && fail "the page needs other files"

# a step of a config: the sum of its samples' trained tokens is what a run counts, and layouts agree
"$tutti" data inspect "$dir/c.yaml" --step 2 --json >"$dir/step.json" 2>/dev/null || fail "inspect a step"
want=0
for step in 1 2 3; do
    n=0
    for t in $("$tutti" data inspect "$dir/c.yaml" --step $step --json 2>/dev/null | grep -o '"trained":[0-9]*' | cut -d: -f2); do n=$((n + t)); done
    want=$((want + n))
done
[ "$want" -gt 0 ] && [ "$want" -lt 384 ] || fail "$want trained tokens of 384 in 3 steps"
for ranks in 1 2; do
    "$tutti" train "$dir/c.yaml" run.dir="$dir/run$ranks" -n $ranks >/dev/null 2>"$dir/err" || fail "train -n $ranks: $(cat "$dir/err")"
    got=$(grep '"step":3' "$dir/run$ranks/metrics.jsonl" | grep -o '"tokens":[0-9]*' | head -1 | cut -d: -f2)
    [ "$got" = "$want" ] || fail "-n $ranks: trained on $got tokens, the samples have $want"
done
loss() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | cut -c1-13; }
[ "$(loss "$dir/run1")" = "$(loss "$dir/run2")" ] || fail "one and two ranks have other losses"

# over cp: the busiest rank's share of attention in the metrics is what the ledger says of the step, also by position and over two copies
figure() { grep -o "\"$1\":[0-9.]*" | head -1 | cut -d: -f2; }
for how in 2:area 4:area 2:position; do
    "$tutti" train "$dir/c.yaml" run.dir="$dir/cp$how" -n ${how%:*} parallel.cp=2 parallel.cp_balance=${how#*:} model.seq_len=96 >/dev/null 2>"$dir/err" || fail "cp $how: $(cat "$dir/err")"
    for step in 1 2 3; do
        line=$(grep "\"step\":$step," "$dir/cp$how/metrics.jsonl")
        told=$("$tutti" data ledger "$dir/c.yaml" --step $step -n 2 parallel.cp=2 model.seq_len=96 --json 2>/dev/null)
        plain=$(figure busiest_by_position <<<"$told") balanced=$(figure "busiest_by_${how#*:}" <<<"$told")
        [ -n "$plain" ] && [ "$(figure cp_busiest_by_position <<<"$line")" = "$plain" ] && [ "$(figure cp_busiest <<<"$line")" = "$balanced" ] ||
            fail "cp $how, step $step: the ledger says $plain and $balanced: $line"
        awk "BEGIN { exit !($plain >= 1.02 && $balanced <= $plain) }" || fail "cp $how, step $step: $plain by position, $balanced: no gain to see"
    done
done
grep -q cp_busiest "$dir/run2/metrics.jsonl" && fail "a run without cp speaks of its balance"

# what a packed document ends with is predicted and stands in no place; parts say where they are from
[ "$("$tutti" data inspect "$dir/c.yaml" --step 1 --tokens 2>/dev/null | grep -c '^  target .* yes .*<|endoftext|>$')" -gt 0 ] || fail "no end of text is shown as a target"
echo '{"text":"plain words, all of them trained"}' >"$dir/plain.jsonl"
mixed=(data.parts=2 "data.train=[{path: $dir/talk.jsonl, chat: plain}, {path: $dir/plain.jsonl}]")
text=$("$tutti" data inspect "$dir/c.yaml" --sample 1 "${mixed[@]}" 2>/dev/null) || fail "inspect parts"
[[ "$text" == *"sample 1 of "*"plain.jsonl"* && "$text" == *"talk.jsonl"* ]] || fail "parts are not named: $text"
text=$("$tutti" data ledger "$dir/c.yaml" "${mixed[@]}" 2>/dev/null) || fail "ledger of parts"
[[ "$text" == *"sample 3, part 2 of 2: "* && "$text" == *"plain.jsonl: 0 parts"* ]] || fail "the ledger does not tell parts: $text"

expect() { # words, then the command
    local words=$1 out
    shift
    out=$("$@" 2>&1) && fail "accepted: $*"
    [[ "$out" == *"$words"* ]] || fail "does not say '$words': $out"
}
expect "--sample 4" "$tutti" data inspect "$dir/c.yaml" --sample 4
expect "documents 0 to 1" "$tutti" data inspect "$dir/t" --sample 2
expect "--step" "$tutti" data inspect "$dir/t" --step 2
expect "--sample K" "$tutti" data inspect "$dir/t" --html "$dir/x.html"
expect "made already" "$tutti" data inspect "$dir/c.yaml" "data.train=[{path: $dir/t, chat: plain}]"
expect "did you mean plain" "$tutti" data inspect "$dir/c.yaml" "data.train=[{path: $dir/talk.jsonl, chat: plian}]"
expect "choose 4" "$tutti" data inspect "$dir/c.yaml" data.parts=5
expect "choose 1, or data.group: 0" "$tutti" data inspect "$dir/c.yaml" data.parts=2 data.group=2
expect "no special tokens" "$tutti" data inspect "$dir/c.yaml" data.fim.rate=0.5
passed
