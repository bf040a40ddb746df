#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Options that other commands build on: the rules that bench comm prints are a comm.table; verify --axes leaves layouts out;
# bench train steps through a parameter server.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

cat >"$dir/toy.yaml" <<END
model: {family: gpt2, layers: 1, hidden: 24, heads: 2, ffn: 32, vocab: 257, seq_len: 9}
batch: {global: 4, micro: 1}
precision: {recipe: fp32}
run: {threads: 1}
END

"$tutti" bench comm --ranks 4 --ranks-per-host 2 --op all --bytes 1K,64K --seconds 0.01 --table >"$dir/rules" || fail "bench comm --table"
grep -q "^# 4 ranks over local, f32" "$dir/rules" || fail "the table does not say where it is from"
echo "all_reduce hosts 2 any ring" >>"$dir/rules"
"$tutti" explain "$dir/toy.yaml" comm -n 4 comm.table="$dir/rules" comm.ranks_per_host=2 >"$dir/out" 2>&1 || fail "its rules are no comm.table: $(cat "$dir/out")"
echo "all_reduce hosts 2 any rink" >"$dir/rules"
"$tutti" plan "$dir/toy.yaml" -n 4 comm.table="$dir/rules" >"$dir/out" 2>&1
[ $? = 2 ] || fail "a wrong table is not refused"
grep -q "comm.table: line 1: algorithms" "$dir/out" || fail "a wrong table: $(cat "$dir/out")"

"$tutti" verify "$dir/toy.yaml" -n 2 --axes tp >"$dir/out" 2>&1 || fail "verify --axes tp: $(tail -1 "$dir/out")"
grep -q "^dp1 zero0 tp2 " "$dir/out" && ! grep -qE "^dp([2-9]|.*(cp|pp|servers)[0-9])" "$dir/out" || fail "verify --axes tp: other layouts: $(cat "$dir/out")"
grep -q "optimizer.eps is" "$dir/out" || fail "verify does not say which eps it takes"
"$tutti" verify "$dir/toy.yaml" --axes tp,xp 2>"$dir/out"
[ $? = 2 ] || fail "--axes xp is not refused"

"$tutti" verify "$dir/toy.yaml" -n 2 --axes dp,tp >"$dir/out" 2>&1 || fail "verify --axes dp,tp: $(tail -1 "$dir/out")"
grep -q "^dp2 zero1 " "$dir/out" && grep -q "^dp1 zero0 tp2 " "$dir/out" || fail "verify --axes dp,tp: $(cat "$dir/out")"
"$tutti" verify "$dir/toy.yaml" -n 2 --axes ep 2>"$dir/out"
[ $? = 2 ] && grep -q "axes ep: no layout of 2 to 2 ranks" "$dir/out" || fail "--axes ep compares nothing and does not say so: $(cat "$dir/out")"

"$tutti" train "$dir/toy.yaml" -n 2 parallel.tp=2 run.steps=1 run.dir="$dir/run" data.train="$dir/rules" model.seq_len=4 batch.global=2 >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
grep -q "^mesh: tp 2, zero 0" "$dir/out" || fail "a dense model's mesh: $(grep mesh: "$dir/out")"

for mode in sync async; do
    "$tutti" bench train --model tiny --seq 16 --micro 1 --batch 2 --steps 1 --ranks 3 --threads 1 --json parallel.servers=1 \
        parallel.server_mode=$mode >"$dir/out" 2>&1 || fail "bench train, $mode server: $(cat "$dir/out")"
    grep -qE '"sent_bytes": ?[1-9]' "$dir/out" || fail "bench train, $mode server: nothing sent"
done
passed
