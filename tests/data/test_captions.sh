#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Captions of pictures from a config: a run that learns them, the same on two ranks and after an interruption; a projector that learns alone; a
# text behind a picture; what is refused.
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
make=$(dirname "$tutti")/tests/make_shards
[ -x "$make" ] || { echo "skipped: $make was not built"; exit 77; }
cd "$dir" || exit 1
"$make" s 1 24 40 4 png && mkdir x && tar xf s-0.tar -C x || fail "no shards"
find x -name '*.cls' | while read -r f; do sed 's/^/it is /' "$f" >"${f%.cls}.txt" && rm "$f"; done
tar cf t.tar --format=ustar --sort=name -C x . || fail "no tar"
cat >llava.yaml <<'END'
model: {family: llava, layers: 1, hidden: 32, heads: 2, seq_len: 40, vision: {layers: 1, hidden: 24, heads: 2, image_size: 16, patch_size: 4}}
data: {train: [t.tar], cache_dir: cache}
batch: {global: 8, micro: 2}
optimizer: {lr: 1.0e-2, schedule: {name: constant, warmup_steps: 2}}
precision: {recipe: fp32}
run: {dir: run, steps: 24, threads: 1, tensorboard: false}
checkpoint: {every: 12}
END
losses() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
same() { paste one "$1" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1 } END { exit bad || NR != 24 }' || fail "another run: $(paste one "$1")"; }
"$tutti" train llava.yaml 2>log || fail "it does not train: $(tail -3 log)"
losses run >one
awk 'NR <= 3 { a += $2 } NR > 21 { b += $2 } END { exit !(b < 0.7 * a) }' one || fail "it does not learn: $(cat one)"
"$tutti" train llava.yaml run.dir=again run.steps=12 -n 2 parallel.dp_shard=2 parallel.zero=3 2>log || fail "two ranks: $(tail -3 log)"
"$tutti" train llava.yaml run.dir=again -n 2 parallel.pp=2 2>log || fail "it does not go on: $(tail -3 log)"
losses again >two
same two
# The projector alone.
"$tutti" train llava.yaml run.dir=part run.steps=4 checkpoint.every=2 checkpoint.keep=5 'train.only=[projector.*]' 2>log || fail "a part: $(tail -3 log)"
"$tutti" checkpoint diff part/checkpoints/step-00000002 part/checkpoints/step-00000004 >parts 2>&1
grep -q "^master/projector.down.weight" parts || fail "the projector stays: $(cat parts)"
! grep "^[a-z]*/" parts | grep -v "^[a-z]*/projector\." || fail "more than the projector moves: $(cat parts)"
png=$(find x -name '*.png' | sort | head -1)
"$tutti" generate run --prompt '<image>' --image "$png" --temperature 0 --max-tokens 6 >out 2>log || fail "no text: $(cat log)"
grep -q "<image>it is" out || fail "it says $(cat out)"

expect() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1
    grep -qF -- "$words" out || fail "$*: no '$words': $(head -5 out)"
}
expect "names 0 pictures" "$tutti" generate run --prompt it --image "$png"
expect "begins like no image" "$tutti" generate run --prompt '<image>' --image llava.yaml
expect "by one rank" "$tutti" generate run --prompt '<image>' --image "$png" -n 2 --tp 2
expect "--image goes with" "$tutti" generate run --prompts x --image "$png"
expect "joined texts are cut anywhere" "$tutti" train llava.yaml data.pack=joined run.dir=n
expect "choose that, or data.pack: padded" "$tutti" train llava.yaml data.pack=best_fit model.vision.images=1 run.dir=n
expect "does not divide model.vision.image_size" "$tutti" train llava.yaml model.vision.patch_size=5 run.dir=n
expect "a picture is 16 tokens, and a sample has 12" "$tutti" train llava.yaml model.seq_len=12 run.dir=n
expect "prompts with pictures are not answered in training" "$tutti" train llava.yaml train.objective=grpo train.grpo.reward=x run.dir=n
passed
