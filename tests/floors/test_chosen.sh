#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which tests a sanitizer's build runs every day (tests/chosen.sh), of a house of four rooms: what is new and what is quick always, then
# rooms that changed, then those above them, then others by lot, within the seconds that there are; every test has its turn.
set -euo pipefail
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cat >"$dir/floors" <<'EOF'
room low  :
room mid/part : low
room mid  : low
room top  : mid
room else : low
EOF
{
    echo '# all: 0 0 0'
    for room in low mid top else; do
        for k in 1 2 3 4; do echo "$room/test_$k 500 10.00 -"; done
        echo "$room/test_quick 500 0.90 50"
    done
    echo "late/mid/test_late 1 10 -"
} >"$dir/costs"
{ grep -v '^#' "$dir/costs" | cut -d' ' -f1; echo else/test_new; } >"$dir/names"
export COSTS=$dir/costs FLOORS=$dir/floors
chosen() { bash "$root/tests/chosen.sh" "$dir/names" "$@" 2>"$dir/told" | sort >"$dir/out"; }
n() { grep -c "$1" "$dir/out" || true; }

# Seconds for nothing: the new one and the quick ones.
chosen 3 0 1 mid
[ "$(tr '\n' ' ' <"$dir/out")" = "else/test_new else/test_quick low/test_quick mid/test_quick top/test_quick " ] || fail "with 0 seconds: $(cat "$dir/out")"
# A room that changed first, on whatever device it runs; then the one above it.
chosen 3 54 1 mid
[ "$(n '^\(late/\)\{0,1\}mid/test_[1-4l]')" = 5 ] && [ "$(wc -l <"$dir/out")" = 10 ] || fail "the room that changed: $(cat "$dir/out")"
chosen 3 94 1 mid
[ "$(n '^mid/\|^late/mid')" = 6 ] && [ "$(n ^top/)" = 5 ] && [ "$(n ^low/)" = 1 ] || fail "and the one above: $(cat "$dir/out")"
grep -q '^14 of 22 tests, 93 of 173 seconds of a processor: 1 new, 4 quick, 5 of 5 in rooms that changed (mid), 4 of 4 above them, 0 of 8 others' "$dir/told" ||
    fail "$(cat "$dir/told")"
# All above the lowest can feel it.
chosen 3 54 1 low
[ "$(n ^low/)" = 5 ] && [ "$(wc -l <"$dir/out")" = 10 ] || fail "$(cat "$dir/out")"
grep -q 'above them, 0 of 0 others' "$dir/told" || fail "$(cat "$dir/told")"
# All of it where there is time; the other column's costs are its own, and what it has none of is new there.
chosen 3 1000 1 mid
[ "$(wc -l <"$dir/out")" = 22 ] || fail "$(cat "$dir/told")"
chosen 4 100 1
[ "$(wc -l <"$dir/out")" = 20 ] && [ "$(n quick)" = 2 ] || fail "$(cat "$dir/out" "$dir/told")"
# The same number the same tests; and within a few numbers each has its turn.
chosen 3 54 7 && cp "$dir/out" "$dir/before" && chosen 3 54 7
cmp -s "$dir/before" "$dir/out" || fail "7 draws others the second time"
for seed in $(seq 30); do
    chosen 3 54 $((seed * 7919))
    cat "$dir/out"
done | sort -u >"$dir/met"
[ "$(wc -l <"$dir/met")" = 22 ] || fail "30 numbers meet $(wc -l <"$dir/met") of 22"
passed
