#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chosen.sh NAMES COLUMN SECONDS SEED [ROOM ...]: which tests a build under a sanitizer runs every day, one name a line; what they are, and
# what is left out, goes to stderr.
#
# NAMES is a file of the build's tests, one name a line; COLUMN of tests/costs.txt has what each takes of a processor there (3: addresses,
# 4: threads); SECONDS of that may be taken; ROOMs are those that changed. Taken are, in this order and as long as they fit,
#   0. tests whose cost is not known: they are new;
#   1. quick ones, a second at most: a fixed set over all rooms;
#   2. tests of rooms that changed;
#   3. tests of rooms above those (tests/floors/floors.txt, where a room stands below those that include it), which can feel the change;
#   4. others;
# and among equals those that SEED draws, which is another one in each commit, so that each test has its turn.
#
#   COSTS, FLOORS    other files than tests/costs.txt and tests/floors/floors.txt
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
names=$1 column=$2 seconds=$3 seed=$4
shift 4
awk -v column="$column" -v seconds="$seconds" -v seed="$seed" -v rooms="$*" '
    function room_of(test,  part) { n_parts = split(test, part, "/"); return part[n_parts - 1] } # late/engine/test_x: engine
    BEGIN {
        srand(seed)
        n_changed = split(rooms, list, " ")
        for (i = 1; i <= n_changed; i++) changed[list[i]] = 1
    }
    FILENAME == ARGV[1] { if (!/^#/) cost[$1] = $(column + 0); next }
    FILENAME == ARGV[2] {
        if ($1 != "room") next
        room = $2
        sub(/\/.*/, "", room)
        for (i = 4; i <= NF; i++) {
            below = $i
            sub(/\/.*/, "", below)
            if (below in changed || below in feels) feels[room] = 1
        }
        next
    }
    NF {
        test = $1
        room = room_of(test)
        known = (test in cost) && cost[test] != "-"
        class = !known ? 0 : cost[test] <= 1 ? 1 : room in changed ? 2 : room in feels ? 3 : 4
        printf "%d %.9f %s %s\n", class, rand(), known ? cost[test] : 0, test
    }' "${COSTS:-$tests/costs.txt}" "${FLOORS:-$tests/floors/floors.txt}" "$names" | LC_ALL=C sort -k1,1n -k2,2 |
    awk -v seconds="$seconds" -v rooms="$*" '
    { all++; whole += $3; n[$1]++ }
    $1 < 2 || spent + $3 <= seconds { print $4; taken++; spent += $3; took[$1]++; next }
    END {
        printf "%d of %d tests, %d of %d seconds of a processor", taken, all, spent, whole >"/dev/stderr"
        said = rooms == "" ? "" : length(rooms) > 60 ? sprintf("%d rooms", split(rooms, list, " ")) : rooms
        printf ": %d new, %d quick, %d of %d in rooms that changed (%s), %d of %d above them, %d of %d others, drawn\n", took[0], took[1],
            took[2], n[2], said == "" ? "none" : said, took[3], n[3], took[4], n[4] >"/dev/stderr"
    }'
