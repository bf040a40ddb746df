# SPDX-License-Identifier: Apache-2.0
# tutti schedule: figures, files and refusals, as a person meets them. $1: the program.
set -eu
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# 1f1b: bubble (p-1)/m; the JSON is one object and alone on stdout.
"$tutti" schedule 1f1b --stages 4 --microbatches 8 --json > "$dir/a.json"
grep -q '"bubble_ratio": 0.375' "$dir/a.json" || fail "bubble of 1f1b is not 3/8"
grep -q '"kind": "1f1b"' "$dir/a.json" || fail "kind"
head -c 1 "$dir/a.json" | grep -q '{' || fail "the JSON does not begin the output"

# Text goes out and comes back: the same text, the same figures.
"$tutti" schedule zbh1 --stages 3 --microbatches 6 --lower --text > "$dir/s.txt"
"$tutti" schedule --read "$dir/s.txt" --text > "$dir/again.txt"
cmp "$dir/s.txt" "$dir/again.txt" || fail "text does not round-trip"
"$tutti" schedule --read - --cost 2,2,2,0.5 --json < "$dir/s.txt" | grep -q '"ideal": 36' || fail "cost"

"$tutti" schedule dualpipe --stages 4 --microbatches 8 --svg "$dir/s.svg" > /dev/null
grep -q '</svg>' "$dir/s.svg" || fail "no picture"
"$tutti" schedule --help | grep -q interleaved || fail "help does not list the kinds"

# refuse TEXT ARGS...: status 2, TEXT on stderr, nothing on stdout
refuse() {
    want=$1
    shift
    status=0
    "$tutti" schedule "$@" > "$dir/out" 2> "$dir/err" || status=$?
    [ "$status" = 2 ] || fail "$* ends with $status, not 2"
    grep -q -e "$want" "$dir/err" || fail "$*: no '$want' in: $(cat "$dir/err")"
    [ ! -s "$dir/out" ] || fail "$*: something on stdout"
}
refuse "did you mean 'gpipe'" gpip --stages 2 --microbatches 2
refuse "did you mean '--stages'" gpipe --stage 2 --microbatches 2
refuse "and there are 6; choose 1 to 6" interleaved --stages 4 --microbatches 6 --round 7
refuse "it has no rounds" 1f1b --stages 4 --microbatches 6 --round 4
refuse "leave them out" --read "$dir/s.txt" --round 2
"$tutti" schedule interleaved --stages 4 --microbatches 6 --round 6 --json | grep -q '"bubble_ratio": 0.25' || fail "6 microbatches in one round: not (p-1)/(v m)"
"$tutti" schedule gpipe --stages 2 --microbatches 3 --stage-cost 1,2 --json | grep -q '"makespan": 21' || fail "a stage twice as dear"
refuse "wanted 2 numbers of 0 or more, one per stage" gpipe --stages 2 --microbatches 3 --stage-cost 1,2,3
refuse "wanted 0, 1, 2 or 3, got '4'" gpipe --stages 2 --microbatches 3 --zero 4
"$tutti" schedule zbh1 --stages 2 --microbatches 3 --zero 3 --recompute --lower --text > "$dir/z.txt"
grep -q '^rank 0: 0GATHER 0F0 .*0RECOMPUTE0 .*0B0 .*0REDUCE' "$dir/z.txt" || fail "what travels: $(cat "$dir/z.txt")"
"$tutti" schedule --read "$dir/z.txt" --text | cmp - "$dir/z.txt" || fail "what travels does not round-trip"
refuse "leave out --zero and --recompute" --read "$dir/z.txt" --zero 1
sed 's/0REDUCE/0REDUCE 0REDUCE/' "$dir/z.txt" > "$dir/broken.txt"
refuse "reduced twice" --read "$dir/broken.txt"
sed 's/0RECOMPUTE0 0B0/0B0 0RECOMPUTE0/' "$dir/z.txt" > "$dir/broken.txt"
cmp -s "$dir/z.txt" "$dir/broken.txt" || refuse "RECOMPUTE comes first" --read "$dir/broken.txt"
refuse "wanted F,B,W,COMM" gpipe --stages 2 --microbatches 2 --cost 1,2
refuse "how many pipeline ranks" gpipe
sed 's/1F3 //' "$dir/s.txt" > "$dir/broken.txt"
refuse "rank 1 never issues 1F3" --read "$dir/broken.txt"
echo done
