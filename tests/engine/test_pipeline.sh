#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: devices untouchable
# suite: long addresses
# Pipelines from the command line: a schedule of one's own, layers by hand, the trace of a run, what is refused and how, and
# which stage is blamed for a NaN. $1: the program.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

foxes 100 >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<END
model: {layers: 4, hidden: 32, heads: 4, ffn: 48, seq_len: 16}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 4, micro: 1}
precision: {recipe: fp32}
parallel: {pp: 2}
run: {threads: 1, tensorboard: false, steps: 4}
END
train() { # NAME RANKS KEYS...
    local name=$1 ranks=$2
    shift 2
    "$tutti" train "$dir/tiny.yaml" -n "$ranks" run.dir="$dir/$name" "$@" >"$dir/log" 2>&1
}
loss() { sed 's/.*"loss":\([0-9.]*\).*/\1/' "$dir/$1/metrics.jsonl" | tail -1; }

# Three ways to say what is to be computed, and one result.
train one 1 parallel.pp=1 || fail "one rank: $(tail -2 "$dir/log")"
"$tutti" schedule zbh1 --stages 2 --microbatches 4 --text >"$dir/mine.txt"
train text 2 parallel.schedule_file="$dir/mine.txt" || fail "a text file: $(tail -2 "$dir/log")"
printf '0F0,0F1,,0B0,0F2,0B1,0F3,0B2,0B3\n,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n' >"$dir/mine.csv"
train csv 2 parallel.schedule_file="$dir/mine.csv" || fail "a table: $(tail -2 "$dir/log")"
train layers 2 'parallel.pp_layers=[1, 1, 0, 2]' parallel.schedule=interleaved parallel.chunks=2 2>/dev/null &&
    fail "a middle stage without layers was taken"
train layers 2 'parallel.pp_layers=[0, 1, 3, 0]' parallel.schedule=interleaved parallel.chunks=2 run.trace="$dir/trace.json" ||
    fail "layers by hand: $(tail -2 "$dir/log")"
for name in text csv layers; do
    [ "$(loss $name)" = "$(loss one)" ] || fail "$name ends with loss $(loss $name), one rank with $(loss one)"
done
# The resolved config of a run repeats it.
"$tutti" train "$dir/layers/config.yaml" -n 2 run.dir="$dir/again" run.trace=null >"$dir/log" 2>&1 || fail "again: $(tail -2 "$dir/log")"
[ "$(loss again)" = "$(loss one)" ] || fail "the resolved config trains something else"

# Interleaved with any number of microbatches, in rounds of any length.
for global in 3 5 7; do
    train "one$global" 1 parallel.pp=1 batch.global=$global || fail "one rank: $(tail -2 "$dir/log")"
    for round in 0 1 3; do
        train rounds 2 parallel.schedule=interleaved batch.global=$global parallel.round=$round ||
            fail "interleaved, $global microbatches in rounds of $round: $(tail -2 "$dir/log")"
        [ "$(loss rounds)" = "$(loss "one$global")" ] ||
            fail "$global microbatches in rounds of $round end with $(loss rounds), not $(loss "one$global")"
        planned=$("$tutti" plan "$dir/tiny.yaml" -n 2 parallel.schedule=interleaved batch.global=$global parallel.round=$round --json |
            grep -o '"peak_bytes":[0-9]*' | head -1)
        grep -q "$planned[,}]" "$dir/rounds/metrics.jsonl" ||
            fail "planned $planned bytes, trained with $(grep -o '"peak_bytes":[0-9]*' "$dir/rounds/metrics.jsonl" | tail -1)"
        rm -rf "$dir/rounds"
    done
done

# The trace has a lane per rank, every kind of span, and every action of two steps.
for word in '"name":"rank 0 (pp 0)"' '"name":"rank 1 (pp 1)"' '"cat":"forward"' '"cat":"backward"' '"cat":"comm"' '"cat":"optimizer"'; do
    grep -q "$word" "$dir/trace.json" || fail "no $word in the trace"
done
n=$(grep -c '"cat":"forward"' "$dir/trace.json")
[ "$n" = 32 ] || fail "$n forwards in the trace of 2 steps, 4 stages, 4 microbatches"

# refuse TEXT KEYS...
refuse() {
    local want=$1 status=0
    shift
    train no 2 "$@" || status=$?
    [ $status = 2 ] || fail "$*: ends with $status"
    grep -q -e "$want" "$dir/log" || fail "$*: no '$want' in: $(cat "$dir/log")"
}
refuse "did you mean '1f1b'" parallel.schedule=1f1
refuse "parallel.round.*there are 3; choose 1 to 3" parallel.schedule=interleaved batch.global=3 parallel.round=4
refuse "parallel.round.*only interleaved has; choose 0" parallel.schedule=zbh1 parallel.round=2
refuse "parallel.round.*choose 0" parallel.schedule_file="$dir/mine.txt" parallel.round=2
refuse "have 5 layers together, the model has 4" 'parallel.pp_layers=[2, 3]'
refuse "3 numbers of layers for 2 stages" 'parallel.pp_layers=[1, 1, 2]'
sed 's/1F3 //' "$dir/mine.txt" >"$dir/broken.txt"
refuse "broken.txt: rank 1 never issues 1F3" parallel.schedule_file="$dir/broken.txt"
refuse "this run has parallel.pp = 2 and 8" parallel.schedule_file="$dir/mine.txt" batch.global=8

# A run that diverges says which tensor, from the stage where it began.
train nan 2 optimizer.lr=1e6 optimizer.clip=0 optimizer.schedule.warmup_steps=0 && fail "a learning rate of a million works"
grep -q "first seen in .*forward, layer" "$dir/log" || fail "nobody is blamed: $(tail -2 "$dir/log")"

passed
