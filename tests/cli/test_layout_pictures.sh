#!/bin/bash
# The pictures of docs/layouts are what the program draws: EXAMPLE-RANKS.svg. Some page shows each. Wrong requests end in 2.
tutti=$1 root=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
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
"$tutti" explain examples/fsdp.yaml layout -n 32 batch.global=32 --svg "$dir/x.svg" 2>"$dir/err" && fail "32 ranks are drawn"
grep -q "room for 16 ranks" "$dir/err" || fail "32 ranks: $(cat "$dir/err")"
[ $failures = 0 ]
