#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The pictures of docs/layouts are what the program draws: EXAMPLE-RANKS.svg. Some page shows each. Wrong requests end in 2.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$root" || exit 1
for picture in docs/layouts/*.svg; do
    name=$(basename "$picture" .svg)
    "$tutti" explain "examples/${name%-*}.yaml" layout -n "${name##*-}" --svg "$dir/$name.svg" || fail "$name is not drawn"
    cmp "$picture" "$dir/$name.svg" || fail "$picture is old: draw it again"
    grep -q "layouts/$name.svg" docs/*.md README.md || fail "no page shows $picture"
    ! grep -qE '"-|nan|inf' "$dir/$name.svg" || fail "$name has a box of no size"
done
# A tensor cut over two ranks: the upper half here, the lower half there.
[ "$(grep -c '#1d6fa5' docs/layouts/fsdp-4.svg)" -gt 40 ] || fail "no pieces in the picture of ZeRO 3"
"$tutti" explain examples/fsdp.yaml layout -n 4 parallel.zero=3 --svg "$dir/no/such/folder.svg" 2>"$dir/err" && fail "a folder that is not there"
grep -q "no/such" "$dir/err" || fail "does not name the folder: $(cat "$dir/err")"
"$tutti" explain examples/fsdp.yaml tape -n 4 --svg "$dir/x.svg" 2>"$dir/err"
[ $? = 2 ] || fail "a picture of the tape is not refused"
# More ranks than there is room for: those that are alike are folded, and it says so.
"$tutti" explain examples/fsdp.yaml layout -n 32 batch.global=32 --svg "$dir/x.svg" || fail "32 ranks are not drawn"
grep -q "ranks 2 to 30: 29 more along dp, alike" "$dir/x.svg" || fail "what is folded of 32 ranks is not said: $(grep -o '>ranks[^<]*' "$dir/x.svg")"
grep -q "3 ranks are drawn; bands stand for the other 29" "$dir/x.svg" || fail "32 ranks: no word on how many are drawn"
"$tutti" explain examples/fsdp.yaml layout -n 16384 batch.global=16384 parallel.tp=4 parallel.pp=8 model.hidden=4096 model.heads=32 model.kv_heads=8 model.ffn=12288 model.vocab=65536 model.layers=48 --svg "$dir/x.svg" || fail "16384 ranks are not drawn"
grep -q "more groups of 4 along dp, alike" "$dir/x.svg" || fail "16384 ranks: $(grep -o '>ranks[^<]*' "$dir/x.svg")"
# Every expert is named, in ranges; what colours mean is said in sentences.
grep -q ">experts 0 to 3 of 8: gate<" docs/layouts/mixtral-ep-2.svg && grep -q ">experts 4 to 7 of 8: gate<" docs/layouts/mixtral-ep-2.svg ||
    fail "experts of mixtral-ep: $(grep -o '>expert[^<]*' docs/layouts/mixtral-ep-2.svg)"
for picture in docs/layouts/*.svg; do
    grep -q "this rank computes with it" "$picture" && grep -q "other ranks have it, this one does not" "$picture" || fail "legend of $picture"
done
# The same as text: a line per parameter, every expert among them, what rank 0 has not is said, letters are explained.
"$tutti" explain examples/mixtral-ep.yaml layout --full -n 2 model.moe.experts=300 model.layers=1 >"$dir/text" || fail "300 experts as text"
[ "$(grep -c '^layers.0.moe.experts.[0-9]*.gate.weight ' "$dir/text")" = 300 ] || fail "not 300 experts in the text"
[ "$(grep -c '^layers.0.moe.experts.[0-9]*.gate.weight .* nothing ' "$dir/text")" = 150 ] || fail "not 150 experts elsewhere"
grep -q "^rank 0 of 2: dp_shard 0 of 2, ep 0 of 2" "$dir/text" || fail "the text does not say which rank: $(head -1 "$dir/text")"
for letter in S0 R "not named"; do grep -q "^  $letter.*rank of the axis has" "$dir/text" || fail "the text does not explain $letter"; done
# For a terminal experts that lie alike are one line and a note: 0 and 1 to 149 here, 150 to 299 elsewhere.
"$tutti" explain examples/mixtral-ep.yaml layout -n 2 model.moe.experts=300 model.layers=1 >"$dir/text" || fail "300 experts, folded"
for line in "experts.0.gate" "experts 1 to 149" "experts.150.gate.* nothing " "experts 151 to 299"; do
    grep -q "$line" "$dir/text" || fail "the folded text has no $line"
done
passed
