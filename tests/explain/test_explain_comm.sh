#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti explain CONFIG comm: no two groups read alike, every line says its group, every group its axes and members, and all of them
# together send what the plan says, so none is left out.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# Bytes that rank 0 sends in a step, as planned.
planned() {
    "$tutti" plan "$@" --json | grep -o '{"rank":0,.*' | sed 's/},{"rank":.*//' >"$dir/rank0"
    { grep -o '"server_bytes":[0-9]*' "$dir/rank0"; grep -o '"comm":.*' "$dir/rank0" | grep -o '"bytes":[0-9]*'; } |
        awk -F: '{ sum += $2 } END { print sum }'
}

# check GROUPS CONFIG...: the names of the groups, separated by |
check() {
    local want=$1
    shift
    "$tutti" explain "$1" comm --full "${@:2}" >"$dir/out" || fail "$*: status $?"
    sed -n '/^stage /q; s/: [0-9]* ranks along .*; rank 0.s are [0-9].*//p' "$dir/out" >"$dir/names"
    [ "$(paste -sd'|' "$dir/names")" = "$want" ] || fail "$*: groups $(paste -sd'|' "$dir/names"), wanted $want"
    [ -z "$(sort "$dir/names" | uniq -d)" ] || fail "$*: alike: $(sort "$dir/names" | uniq -d)"
    # Rows begin with the name of the group above them, and add up to what it says.
    awk '/^stage / { exit }
         / ranks along / { sub(/: [0-9]+ ranks along .*/, ""); name = $0 }
         / bytes a step$/ { said = $(NF - 3); sum = 0 }
         /^  / && index($0, "  " name " ") == 1 { rest = substr($0, length(name) + 3); split(rest, f, " "); sum += f[7]; rows++ }
         /^$/ && name != "" { if (sum != said) print name ": rows send " sum ", it says " said; total += said; name = "" }
         / bytes in all$/ { if ($1 != total) print "in all " $1 ", groups " total; seen = 1 }
         END { if (!rows || !seen) print "no rows, or no sum" }' "$dir/out" >"$dir/wrong"
    [ -s "$dir/wrong" ] && fail "$*: $(cat "$dir/wrong")"
    # For a terminal: the same groups, each with what it sends, and the same sum.
    "$tutti" explain "$1" comm "${@:2}" >"$dir/short" || fail "$*: status $?"
    [ "$(grep -oE '[0-9]+ bytes a step|[0-9]+ bytes in all' "$dir/short")" = "$(grep -oE '[0-9]+ bytes a step|[0-9]+ bytes in all' "$dir/out")" ] ||
        fail "$*: what is told a terminal is not what --full tells"
    grep -hE '[^0-9]1 (operation|message)s' "$dir/out" "$dir/short" && fail "$*: one of a thing is not many"
    local sent
    sent=$(sed -n 's/ bytes in all$//p' "$dir/out")
    [ "${servers:-}" = yes ] || [ "$sent" = "$(planned "$@")" ] || fail "$*: $sent bytes, planned $(planned "$@")"
}

check 'dp_shard+cp state|pp+dp_shard+cp+tp model|pp|cp|tp|ep|dp_shard+cp state hosts|tp hosts|pp hosts' "$root/examples/five_d.yaml" -n 16
grep -q '^ep: 4 ranks along dp_shard 2 x cp 2; rank 0.s are 0 2 4 6$' "$dir/out" || fail "ep's ranks in the dense view"
check 'cp state|pp+cp model|pp|cp state hosts|pp hosts|cp.inner|cp.outer|pp holders 0' "$root/examples/context_parallel.yaml" -n 8 \
    parallel.cp=4 parallel.pp=2 parallel.cp_algorithm=two_level model.tie_embeddings=true
grep -q '^cp.outer: 2 ranks along cp 2 of 4; rank 0.s are 0 2$' "$dir/out" || fail "a part of cp"
check 'dp_shard state|dp_replicate|dp_shard+tp model|edp state|tp|ep|dp_shard state hosts|dp_replicate hosts|tp hosts' \
    "$root/examples/mixtral-ep.yaml" -n 16 parallel.dp_replicate=2 parallel.dp_shard=4 parallel.tp=2 parallel.etp=1 parallel.ep=2 parallel.zero=3
grep -q '^edp state: 4 ranks along dp_shard 4; rank 0.s are 0 2 4 6$' "$dir/out" || fail "experts' state"
servers=yes check 'world|workers|push to 4|push to 5|pull from 4|pull from 5' "$root/examples/fsdp.yaml" -n 6 parallel.servers=2 parallel.zero=0
grep -q '^pull from 5: 5 ranks along dp_shard 4 and 1 server; rank 0.s are 5 0 1 2 3$' "$dir/out" || fail "a server's ranks"

passed
