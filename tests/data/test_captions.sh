#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Captions of pictures from a config: a run that learns them, the same on two ranks and after an interruption; a projector that learns alone; a
# text behind a picture; folders of Megatron-Energon, which are what their shards are; what is refused.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
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

# ---- Megatron-Energon: captions, and questions with answers ----
# The folder's training is that of its shards, named one by one, to the last digit; and the same on two ranks.
exact() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*"grad_norm": *\([0-9.e+-]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
folder() { # NAME SHARD DATASET.YAML
    mkdir -p "$1/.nv-meta" && cp "$2" "$1/s.tar" && printf '%s\n' "$3" >"$1/.nv-meta/dataset.yaml"
    printf 'split_parts: {train: [s.tar], val: [s.tar]}\n' >"$1/.nv-meta/split.yaml"
    printf '{"shard_counts": {"s.tar": 24}}\n' >"$1/.nv-meta/.info.json"
}
folder told t.tar 'sample_type: {__module__: megatron.energon, __class__: CaptioningSample}
field_map: {image: png, caption: txt}'
"$tutti" train llava.yaml data.train=told run.dir=told-run 2>log || fail "a folder of captions: $(tail -3 log)"
exact run >shards && exact told-run | cmp -s - shards || fail "a folder of captions is not its shards: $(exact told-run | diff - shards | head -3)"
[ "$(wc -l <shards)" = 24 ] || fail "no 24 losses to compare: $(cat shards)"
mkdir asked talk
find x -name '*.txt' | while read -r f; do
    name=$(basename "${f%.txt}")
    cp "${f%.txt}.png" asked/ && cp "${f%.txt}.png" talk/
    cp "$png" "asked/$name.mask.png" # nobody's picture
    printf '{"question": "What?", "answers": ["%s"]}' "$(cat "$f")" >"asked/$name.json"
    printf '{"conversations": [{"from": "human", "value": "<image>\\nWhat?"}, {"from": "gpt", "value": "%s"}]}' "$(cat "$f")" >"talk/$name.json"
done
for kind in asked talk; do tar cf $kind.tar --format=ustar --sort=name -C $kind . || fail "no tar"; done
folder vqa asked.tar 'sample_type: {__module__: megatron.energon, __class__: VQASample}
field_map: {image: png, context: "json[question]", answers: "json[answers]"}'
set -- model.seq_len=56 run.steps=6 checkpoint.every=0
"$tutti" train llava.yaml "$@" data.train=talk.tar run.dir=talk-run 2>log || fail "conversations: $(tail -3 log)"
"$tutti" train llava.yaml "$@" data.train=vqa data.valid=vqa run.eval_every=6 run.dir=vqa-run 2>log || fail "a folder of questions: $(tail -3 log)"
exact talk-run >shards && exact vqa-run | cmp -s - shards || fail "a folder of questions is not its shards: $(exact vqa-run | diff - shards | head -3)"
"$tutti" train llava.yaml "$@" data.train=vqa run.dir=vqa-two -n 2 parallel.dp_shard=2 parallel.zero=3 2>log || fail "questions on two ranks: $(tail -3 log)"
losses vqa-run >one && losses vqa-two >two
paste one two | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1 } END { exit bad || NR != 6 }' || fail "two ranks: $(paste one two)"

expect() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1
    grep -qF -- "$words" out || fail "$*: no '$words': $(head -5 out)"
}
expect "it is" "$tutti" data inspect llava.yaml data.train=told
expect "of told/s.tar at byte" "$tutti" data ledger llava.yaml data.train=told
sed -i 's/answers: "json\[answers\]"/&, answer_weights: "json[w]"/' vqa/.nv-meta/dataset.yaml
expect "names answer_weights" "$tutti" train llava.yaml data.train=vqa run.dir=n
sed -i 's/VQASample/InterleavedSample/' vqa/.nv-meta/dataset.yaml
expect "InterleavedSample" "$tutti" train llava.yaml data.train=vqa run.dir=n
expect "names 0 pictures" "$tutti" generate run --prompt it --image "$png"
expect "begins like no image" "$tutti" generate run --prompt '<image>' --image llava.yaml
expect "by one rank" "$tutti" generate run --prompt '<image>' --image "$png" -n 2 --tp 2
expect "--image goes with" "$tutti" generate run --prompts x --image "$png"
expect "joined texts are cut anywhere" "$tutti" train llava.yaml data.pack=joined run.dir=n
expect "choose that, or data.pack: padded" "$tutti" train llava.yaml data.pack=best_fit model.vision.images=1 run.dir=n
expect "does not divide model.vision.image_size" "$tutti" train llava.yaml model.vision.patch_size=5 run.dir=n
expect "a picture is 16 tokens, and a sample has 12" "$tutti" train llava.yaml model.seq_len=12 run.dir=n
expect "prompts with pictures are not answered in training" "$tutti" train llava.yaml train.objective=grpo train.grpo.reward=x train.grpo.tokens=8 run.dir=n
passed
