#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shards of pictures from a config: a run that learns them, the same on more ranks and workers and after an interruption; what is said
# of samples; what is refused.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
make=$(dirname "$tutti")/tests/make_shards
[ -x "$make" ] || { echo "skipped: $make was not built"; exit 77; }
cd "$dir" || exit 1
"$make" s 2 24 40 4 jpg && "$make" v 1 12 40 4 png || fail "no shards"
cat >vit.yaml <<'END'
model: {family: vit, layers: 1, hidden: 32, heads: 2, image_size: 16, patch_size: 4, classes: 4}
data: {train: ["s-{0..1}.tar"], valid: [v-0.tar], cache_dir: cache, image: {scale: [0.5, 1.0]}}
batch: {global: 8, micro: 2}
optimizer: {lr: 3.0e-3, schedule: {name: constant, warmup_steps: 2}}
precision: {recipe: fp32}
run: {dir: run, steps: 24, eval_every: 24, eval_batches: 0, threads: 1, tensorboard: false}
checkpoint: {every: 12}
END
losses() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
"$tutti" train vit.yaml 2>log || fail "it does not train: $(tail -3 log)"
grep -q "48 pictures in 2 shards" log || fail "what was found is not said: $(cat log)"
losses run >one
[ "$(wc -l <one)" = 24 ] || fail "$(wc -l <one) steps have a loss"
awk 'NR <= 4 { a += $2 } NR > 20 { b += $2 } END { exit !(b < 0.7 * a) }' one || fail "it does not learn: $(cat one)"
# The same on two ranks with three workers, after an interruption, from the list that was made.
"$tutti" train vit.yaml run.dir=again run.steps=12 -n 2 data.workers=3 data.prefetch=4 run.eval_every=0 2>log || fail "two ranks: $(tail -3 log)"
! grep -q "were found in" log || fail "the pictures were looked for again"
"$tutti" train vit.yaml run.dir=again 2>log || fail "it does not go on: $(tail -3 log)"
losses again >two
paste one two | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-3) bad = 1 } END { exit bad || NR != 24 }' || fail "another run: $(paste one two)"

expect() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out 2>&1
    grep -qF -- "$words" out || fail "$*: no '$words': $(head -5 out)"
}
expect "label " "$tutti" data inspect vit.yaml --step 2 --sample 3
expect '"format":"JPEG"' "$tutti" data inspect vit.yaml --json
expect "page.html" "$tutti" data inspect vit.yaml --html page.html
[ "$(grep -o 'data:image/png;base64,[A-Za-z0-9+/=]*"' page.html | wc -l)" = 8 ] || fail "the page does not show eight pictures"
grep -o 'base64,[A-Za-z0-9+/=]*"' page.html | head -1 | sed 's/base64,//; s/"//' | base64 -d | head -c 8 | cmp -s - <(printf '\211PNG\r\n\032\n') || fail "what is on the page is no PNG"
expect "of s-" "$tutti" data ledger vit.yaml --step 3
"$tutti" data ledger vit.yaml --step 3 --json >ledger
byte=$(grep -o '"shard_byte": *[0-9]*' ledger | head -1 | grep -o '[0-9]*$') shard=$(grep -o '"shard": *"[^"]*"' ledger | head -1 | cut -d'"' -f4)
tail -c +$((byte + 1)) "$shard" | head -c 3 | cmp -s - <(printf '\377\330\377') || fail "no JPEG lies at byte $byte of $shard"
expect "pictures/s" "$tutti" bench data vit.yaml --seconds 0.02 --need 100
expect "colour" "$tutti" data inspect "$root/tests/fuzz/corpus/image/exif.jpg"

# A metadataset of Megatron-Energon, whose parts are no overlap; its folders are named, and a step that is left out is said to be.
mkdir -p e/.nv-meta && cp s-0.tar s-1.tar e/
printf 'sample_type: {__module__: megatron.energon, __class__: ImageClassificationSample}\nfield_map: {image: jpg, label: cls}\n' >e/.nv-meta/dataset.yaml
printf 'split_parts: {train: [s-0.tar], val: [s-1.tar]}\nexclude: [s-0.tar/000003, s-0.tar/nobody]\n' >e/.nv-meta/split.yaml
printf '{"shard_counts": {"s-0.tar": 24, "s-1.tar": 24}}\n' >e/.nv-meta/.info.json
printf '__class__: MetadatasetV2\nsplits:\n  train: {blend: [{path: e, weight: 2}, {path: e, split_part: val}]}\n  val: {path: e}\n' >mix.yaml
"$tutti" train vit.yaml data.train=mix.yaml data.valid=mix.yaml run.dir=m run.steps=3 run.skip=[2] run.eval_every=3 2>log || fail "a metadataset: $(tail -3 log)"
grep -q "47 pictures\|71 pictures" log && grep -q "1 samples are excluded that its shards do not have" log && ! grep -q "is trained on, too" log || fail "a metadataset says: $(cat log)"
grep -q '"sources":\[{"samples":16,.*{"samples":8,' m/metrics.jsonl || fail "no two sources: $(tail -1 m/metrics.jsonl)"
expect "mix.yaml: e (val): 5 samples" "$tutti" data ledger vit.yaml data.train=mix.yaml --step 3 run.dir=m
expect '"left_out":true,"left_out_by":"run.skip"' "$tutti" data ledger vit.yaml data.train=mix.yaml --step 2 run.dir=m run.skip=[2] --json
echo '{"step":3,"cause":"loss","loss":9,"mean":1,"deviation":0.1,"back_to":0}' >m/skips.jsonl
expect "left out: the run in m did not train on this step's batch (m/skips.jsonl" "$tutti" data ledger vit.yaml data.train=mix.yaml --step 3 run.dir=m
expect '"left_out":false' "$tutti" data ledger vit.yaml data.train=mix.yaml --step 1 run.dir=m --json

# A step of it once more, from the checkpoint before.
expect "has the same, to the last digit" "$tutti" replay run --step 14

# Refused: packed shards, texts, sound, more classes than the model has, a damaged picture by shard and key.
gzip -k v-0.tar
expect "is packed by gzip" "$tutti" train vit.yaml data.train=v-0.tar.gz run.dir=x
expect "no tar archive" "$tutti" train vit.yaml data.train=vit.yaml run.dir=x
expect "wanted 0 to 2 (model.classes)" "$tutti" train vit.yaml model.classes=3 run.dir=x
mkdir sound && (cd sound && printf 'RIFF' >a.wav && printf '1' >a.cls && tar cf ../sound.tar --format=ustar a.wav a.cls)
expect "sound or video" "$tutti" train vit.yaml data.train=sound.tar run.dir=x
expect "choose at least " "$tutti" train vit.yaml data.image.resize=8 run.dir=x
expect "is of texts" "$tutti" train vit.yaml data.pack=padded run.dir=x
cp v-0.tar bad.tar
printf 'xxxx' | dd of=bad.tar bs=1 seek=560 conv=notrunc 2>/dev/null
expect "bad.tar: sample 000000 at byte 0: PNG: damaged" "$tutti" train vit.yaml data.train=bad.tar run.dir=y
expect "bad records were skipped" "$tutti" train vit.yaml data.train=bad.tar data.skip_bad=true run.steps=2 run.dir=z
passed
