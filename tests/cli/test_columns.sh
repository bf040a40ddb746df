#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# What is told a terminal fits it: every line of plan and of every view of explain has at most 100 columns, for all examples and at
# real sizes (7 B on 64 ranks, 1,000 layers, 256 experts). Figures have units; where nothing is
# left out (--full) there is at least as much.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

fits() { # fits WHAT: of $dir/out
    awk 'length($0) > 100 { n++; if (n == 1) first = $0 } END { if (n) { print n " lines beyond 100 columns, the first: " first; exit 1 } }' "$dir/out" >"$dir/long" ||
        fail "$*: $(cat "$dir/long")"
    grep -nE ' $' "$dir/out" >"$dir/long" && fail "$*: blanks at the end of line $(head -1 "$dir/long")"
}
# views MOST CONFIG OPTIONS...: at most so many lines in any view
views() {
    local most=$1 view
    shift
    "$tutti" plan "$@" >"$dir/out" 2>"$dir/err" || fail "plan $*: $(cat "$dir/err")"
    fits "plan $*"
    grep -qE '^work .*[0-9] [kMGTPEZ]?FLOP per step .* [kMGTPEZ]?FLOP per token' "$dir/out" || fail "plan $*: work has no unit: $(grep ^work "$dir/out")"
    for view in layout tape schedule memory comm; do
        "$tutti" explain "$1" "$view" "${@:2}" >"$dir/out" 2>"$dir/err" || fail "explain $* $view: $(cat "$dir/err")"
        fits "explain $* $view"
        [ "$(wc -l <"$dir/out")" -le "$most" ] || fail "explain $* $view: $(wc -l <"$dir/out") lines, more than $most"
        [ "$(wc -l <"$dir/out")" -ge 3 ] || fail "explain $* $view tells nothing"
    done
}

at=0
for example in "$root"/examples/*.yaml; do
    at=$((at + 1))
    drawn_here $at 3 || continue # every day a third of them
    n=$(sed -n 's/^#.* -n \([0-9]*\).*/\1/p' "$example" | head -1)
    views 400 "$example" -n "${n:-1}"
    [ "$("$tutti" explain "$example" tape -n "${n:-1}" --full | wc -l)" -ge "$("$tutti" explain "$example" tape -n "${n:-1}" | grep -c '^ *[0-9]')" ] ||
        fail "$example: --full tells less"
done
llama7b=("$root/examples/quickstart.yaml" model.layers=32 model.hidden=4096 model.heads=32 model.kv_heads=32 model.ffn=11008 model.vocab=32000 model.seq_len=4096
    batch.global=64 batch.micro=1)
views 250 "${llama7b[@]}" -n 64 parallel.zero=3
views 900 "${llama7b[@]}" -n 64 parallel.zero=1 parallel.tp=4 parallel.pp=8 parallel.sequence_parallel=true
views 250 "$root/examples/quickstart.yaml" model.layers=1000
views 400 "$root/examples/mixtral-ep.yaml" -n 64 model.layers=20 model.moe.experts=256 batch.global=64 batch.micro=1 parallel.ep=32 parallel.zero=1
# Of the folded layers: 1,000 of them are told in as many lines as 10.
for view in layout tape; do
    for layers in 10 1000; do "$tutti" explain "$root/examples/quickstart.yaml" $view model.layers=$layers | wc -l >"$dir/$layers"; done
    cmp -s "$dir/10" "$dir/1000" || fail "explain $view: $(cat "$dir/10") lines of 10 layers, $(cat "$dir/1000") of 1,000"
done

passed
