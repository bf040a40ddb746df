#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched threads
# What validation measures: of a validation set with two very different halves a few batches tell what all of it tells, a run with
# run.eval_batches=0 weighs every token once, and neither depends on the ranks.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

foxes 300 >"$dir/known.txt"
for i in $(seq 600); do echo $((i * i * 7919 % 100003 * 31)) | tr 0-9 'QZ#@~XJ^WV'; done >"$dir/strange.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 2, hidden: 24, heads: 4, kv_heads: 2, ffn: 32, seq_len: 20}
data: {train: [$dir/known.txt], valid: [$dir/known.txt, $dir/strange.txt], cache_dir: $dir/cache}
batch: {global: 6, micro: 1}
precision: {recipe: fp32}
optimizer: {lr: 0.01, schedule: {name: constant, warmup_steps: 0}}
run: {threads: 1, tensorboard: false, steps: 40, eval_every: 40}
checkpoint: {every: 0}
END

# valid NAME RANKS KEYS...: "loss tokens" of the last validation
valid() {
    local name=$1 ranks=$2
    shift 2
    "$tutti" train "$dir/tiny.yaml" -n "$ranks" run.dir="$dir/$name" "$@" >"$dir/log" 2>&1 || fail "$name: $(tail -3 "$dir/log")"
    sed -nE 's/.*"valid_loss":([0-9.]+),"valid_tokens":([0-9]+).*/\1 \2/p' "$dir/$name/metrics.jsonl" | tail -1
}
# near WHAT GOT WANT TOLERANCE: relative
near() { awk "BEGIN {d = $2 - $3; exit !((d < 0 ? -d : d) <= $4 * $3)}" || fail "$1: $2, wanted $3"; }

read -r known n_known <<<"$(valid known 1 run.eval_batches=0 "data.valid=$dir/known.txt")"
read -r strange n_strange <<<"$(valid strange 1 run.eval_batches=0 "data.valid=$dir/strange.txt")"
read -r all n_all <<<"$(valid all 1 run.eval_batches=0)"
awk "BEGIN {exit !($strange > 2 * $known)}" || fail "the halves are alike: $known and $strange"
[ "$n_known" = "$(wc -c <"$dir/known.txt")" ] || fail "known: $n_known tokens of $(wc -c <"$dir/known.txt")"
[ "$n_strange" = "$(wc -c <"$dir/strange.txt")" ] || fail "strange: $n_strange tokens of $(wc -c <"$dir/strange.txt")"
[ "$n_all" = $((n_known + n_strange)) ] || fail "all: $n_all tokens of $((n_known + n_strange))"
near "all" "$all" "$(awk "BEGIN {printf \"%.9f\", ($known * $n_known + $strange * $n_strange) / $n_all}")" 1e-7
grep -q "over $n_all of $n_all tokens" "$dir/log" || fail "does not say how much was read: $(grep validation "$dir/log")"

read -r few n_few <<<"$(valid few 1 run.eval_batches=8)"
[ "$n_few" = 960 ] || fail "8 batches: $n_few tokens, wanted 960"
near "8 batches" "$few" "$all" 0.1
# Other ranks train to other bits, so weights come from one checkpoint and the learning rate is 0.
for keys in "2 parallel.dp_shard=2" "3 parallel.dp_replicate=3" "2 parallel.tp=2" "2 parallel.pp=2" "2 parallel.cp=2" "2 parallel.servers=1"; do
    for batches in 0 8; do
        # shellcheck disable=SC2086
        read -r loss n <<<"$(valid "ranks$batches-${keys// /-}" $keys run.eval_batches=$batches run.steps=41 run.eval_every=41 \
            optimizer.lr=0 optimizer.weight_decay=0 checkpoint.resume="$dir/all/checkpoints/latest")"
        [ $batches = 0 ] && want=$all || want=$few
        [ $batches = 0 ] && n_want=$n_all || n_want=$n_few
        [ "$n" = "$n_want" ] || fail "$keys: $n tokens, wanted $n_want"
        near "$keys" "$loss" "$want" 2e-6
    done
done

# A share of the text itself: the same documents, batches and losses in every layout, with the text and with tokens of it, and none that
# is trained on; of records with masks (chat) and of pairs, too.
awk '{print "{\"prompt\": \"" NR "\", \"completion\": \"" $0 "\", \"chosen\": \"" $0 "\", \"rejected\": \"no " NR "\"}"}' "$dir/known.txt" >"$dir/r.jsonl"
awk '{print "{\"text\": \"" $0 "\"}"}' "$dir/known.txt" >"$dir/t.jsonl"
"$tutti" data tokenize --tokenizer byte --out "$dir/made" "$dir/t.jsonl" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
share() { # NAME RANKS KEYS...: all losses
    valid "$@" run.steps=4 run.eval_every=2 run.eval_batches=0 data.valid=20% >/dev/null
    sed -E 's/.*"loss":([0-9.]+).*/\1/; s/.*"valid_loss":([0-9.]+),"valid_tokens":([0-9]+).*/\1 \2/' "$dir/$1/metrics.jsonl" | grep -E '^[0-9. ]+$'
}
share held 1 "data.train=$dir/t.jsonl" >"$dir/want"
[ "$(wc -l <"$dir/want")" -ge 4 ] || fail "no losses: $(cat "$dir/want")"
grep -qE "t.jsonl: [1-9][0-9]* of 300 documents, .* are held out" "$dir/log" || fail "does not say what is held out"
share held-tokens 1 "data.train=$dir/made" | cmp -s - "$dir/want" || fail "tokens are held out otherwise than their text"
share held-ranks 2 "data.train=$dir/t.jsonl" parallel.dp_shard=2 numerics.exact_order=true >"$dir/exact2"
share held-one 1 "data.train=$dir/t.jsonl" numerics.exact_order=true | cmp -s - "$dir/exact2" || fail "two ranks have other losses than one"
share held-chat 1 "data.train=[{path: $dir/r.jsonl, chat: plain}]" data.pack=padded >"$dir/chat"
grep -q " " "$dir/chat" || fail "records of a chat are not validated on: $(cat "$dir/log")"
share held-pairs 1 "data.train=[{path: $dir/r.jsonl, chat: plain}]" train.objective=dpo model.seq_len=160 >"$dir/pairs"
grep -qE "accuracy [0-9.]+ % of [1-9][0-9]* pairs" "$dir/log" || fail "pairs are not validated on: $(cat "$dir/log")"
"$tutti" train "$dir/tiny.yaml" run.dir="$dir/held" "data.train=$dir/t.jsonl" run.steps=6 data.valid=10% >"$dir/log" 2>&1 && fail "another share goes on"
grep -q "not the tokens that the checkpoint was trained on" "$dir/log" || fail "another share: $(cat "$dir/log")"

passed
