#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti data dedup over processes: the same bytes as by threads, for 1, 2 and 4 of them; an error on one rank ends all, and is told; a
# killed job goes on.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"

mkdir "$dir/in"
awk -v dir="$dir/in" 'BEGIN {
    srand(3)
    for (i = 0; i < 1500; i++) {
        text = ""
        for (k = 0; k < 50; k++) text = text sprintf("w%d%s", int(rand() * 3000), k % 10 == 9 ? "\\n" : " ")
        if (i % 4 == 3) text = some[int(rand() * 20)]
        if (i % 5 == 4) sub(/w1/, "other ", text)
        some[i % 20] = text
        printf "{\"text\": \"%s\"}\n", text >(dir "/" int(i / 300) ".jsonl")
    }
}'
what=(--unit 60KB --memory 16MiB --part 100KB --steps "exact,lines,near,substring,passages" --repeat 40 --list)
"$tutti" data dedup --out "$dir/threads" -n 3 "$dir/in" "${what[@]}" >"$dir/log" 2>&1 || fail "threads: $(cat "$dir/log")"
for n in 1 2 4; do
    ranks $n "$tutti" data dedup --out "$dir/processes$n" --work "$dir/work" "$dir/in" "${what[@]}" >"$dir/log" 2>&1 ||
        fail "$n processes: $(cat "$dir/log")"
    diff -r "$dir/threads" "$dir/processes$n" >"$dir/log" 2>&1 || fail "$n processes: another result: $(head -5 "$dir/log")"
    [ -z "$(find "$dir/work" -type f)" ] || fail "$n processes: work is left: $(find "$dir/work" -type f)"
done
grep -q '"step": "near"' "$dir/processes4/dedup.json" || fail "no step near in $(head -c 500 "$dir/processes4/dedup.json")"

ranks 2 "$tutti" data dedup --out "$dir/killed" "$dir/in" "${what[@]}" >"$dir/log" 2>&1 &
pid=$!
until_so $pid compgen -G "$dir/killed/dedup.work/rank-0-of-2/0-*.edits" >/dev/null
rank0=$(grep -oE '[0-9]+' "$dir/killed/dedup.lock" 2>/dev/null | head -1)
{ [ -n "$rank0" ] && kill -KILL "$rank0"; } 2>/dev/null || echo "rank 0 was faster than its end"
wait $pid && [ -n "$rank0" ] && [ ! -e "$dir/killed/dedup.json" ] && fail "a rank was killed and the job went well"
[ -e "$dir/killed/dedup.json" ] || ranks 2 "$tutti" data dedup --out "$dir/killed" "$dir/in" "${what[@]}" >"$dir/log" 2>&1
diff -r "$dir/threads" "$dir/killed" >"$dir/log2" 2>&1 || fail "killed, and again: $(head -5 "$dir/log2"): $(cat "$dir/log")"

cp -r "$dir/in" "$dir/bad" && echo '{"text": ' >>"$dir/bad/3.jsonl"
ranks 4 "$tutti" data dedup --out "$dir/refused" "$dir/bad" "${what[@]}" >"$dir/log" 2>&1 && fail "a bad record went well"
grep -q "3.jsonl:301" "$dir/log" || fail "a bad record on one rank: $(head -5 "$dir/log")"
ranks 2 "$tutti" data dedup --out "$dir/threads" "$dir/in" "${what[@]}" >"$dir/log" 2>&1
status=$?
{ [ $status != 0 ] && grep -q "holds a finished result" "$dir/log"; } || fail "a finished folder: status $status: $(cat "$dir/log")"
passed
