#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti data dedup from outside: killed at any moment it goes on to the same bytes; on a full disk it fails with the file's name and goes
# on; memory does not grow with the corpus; folders that hold something else, and options that contradict each other, are refused.
set -u
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit

# corpus FOLDER DOCUMENTS: in four files, some documents alike.
corpus() {
    mkdir -p "$1"
    awk -v n="$2" -v dir="$1" 'BEGIN {
        srand(7)
        for (i = 0; i < n; i++) {
            text = ""
            for (k = 0; k < 60; k++) text = text sprintf("w%d%s", int(rand() * 5000), k % 12 == 11 ? "\\n" : " ")
            if (i % 5 == 4) text = some[int(rand() * 20)]
            if (i % 7 == 6) sub(/w1/, "other ", text)
            some[i % 20] = text
            printf "{\"text\": \"%s\"}\n", text >(dir "/" int(i / n * 4) ".jsonl")
        }
    }'
}
options=(--unit 100KB --memory 16MiB --part 200KB --steps "exact,lines,near,substring,passages" --repeat 40)
dedup() { "$tutti" data dedup "$@" "${options[@]}"; }
whole() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

corpus "$dir/in" 3000
dedup --out "$dir/want" -n 2 "$dir/in" >"$dir/log" 2>&1 || fail "a plain run: $(cat "$dir/log")"
want=$(whole "$dir/want")
[ "$(grep -c '"step"' "$dir/want/dedup.json")" = 5 ] || fail "dedup.json: $(head -c 600 "$dir/want/dedup.json")"

# Killed again and again, each time a little later.
kills=0
for ((i = 1; i <= 12; i++)); do
    "$tutti" data dedup "${options[@]}" --out "$dir/killed" -n 2 "$dir/in" >"$dir/log" 2>&1 &
    pid=$!
    sleep "0.0$((i * 7 % 10))"
    kill -KILL $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
    [ -e "$dir/killed/dedup.json" ] && break
    [ "$(find "$dir/killed" -maxdepth 1 -name '*.part' | wc -l)" -le 4 ] || fail "parts left behind: $(ls "$dir/killed")"
done
[ -e "$dir/killed/dedup.json" ] || dedup --out "$dir/killed" -n 2 "$dir/in" >"$dir/log" 2>&1 || fail "after kills: $(cat "$dir/log")"
# Killed with its result there, and its work too: the result stands, and the next one removes the rest.
cp -r "$dir/want" "$dir/done" && mkdir -p "$dir/done/dedup.work/rank-0-of-2" && echo 1 >"$dir/done/dedup.work/rank-0-of-2/0-exact.edits"
: >"$dir/done/dedup.lock"
for done in done killed; do
    dedup --out "$dir/$done" -n 2 "$dir/in" >"$dir/log" 2>&1
    status=$?
    { [ $status = 2 ] && grep -q "holds a finished result" "$dir/log"; } || fail "$done: status $status: $(cat "$dir/log")"
done
[ "$(whole "$dir/done")" = "$want" ] || fail "what was left: $(diff <(whole "$dir/done") <(echo "$want"))"
[ "$(whole "$dir/killed")" = "$want" ] || fail "after $kills kills the result is another: $(diff <(whole "$dir/killed") <(echo "$want"))"
[ $kills -ge 1 ] || fail "nothing was killed"

# Two at once in one folder: one of them is refused.
"$tutti" data dedup "${options[@]}" --out "$dir/two" -n 1 "$dir/in" >"$dir/log" 2>&1 &
pid=$!
until_so $pid test -e "$dir/two/dedup.work/job"
if kill -STOP $pid 2>/dev/null; then
    dedup --out "$dir/two" -n 1 "$dir/in" >"$dir/log" 2>&1
    status=$?
    { [ $status = 2 ] && grep -q "two: another tutti data dedup is at work\|two: holds a finished" "$dir/log"; } ||
        fail "two at once: status $status: $(cat "$dir/log")"
    kill -CONT $pid
fi
wait $pid || fail "the first of two: status $?"

# A disk that is full after so many KiB of any file; then it goes on where it was.
for most in 8 40 200; do
    rm -rf "$dir/full"
    (trap '' XFSZ && ulimit -f $most && dedup --out "$dir/full" -n 2 "$dir/in") >"$dir/log" 2>&1 && fail "$most KiB were enough"
    grep -q "full/" "$dir/log" || fail "a full disk is not named: $(cat "$dir/log")"
    [ ! -e "$dir/full/dedup.json" ] || fail "finished on a full disk"
    : >"$dir/full/dedup.json.tmp-7-7" # as one that was killed while it wrote the result leaves it
    dedup --out "$dir/full" -n 2 "$dir/in" >"$dir/log" 2>&1 || fail "after a full disk: $(cat "$dir/log")"
    [ "$(whole "$dir/full")" = "$want" ] || fail "after a full disk the result is another"
done

# Work files that are damaged are noticed: one is, then the rest is taken from there.
"$tutti" data dedup "${options[@]}" --out "$dir/hurt" -n 1 "$dir/in" >"$dir/log" 2>&1 &
pid=$!
until_so $pid test -e "$dir/hurt/dedup.work/rank-0-of-1/1-lines.edits"
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
if [ -e "$dir/hurt/dedup.work/rank-0-of-1/0-exact.edits" ]; then
    printf 'x' | dd of="$dir/hurt/dedup.work/rank-0-of-1/0-exact.edits" bs=1 seek=60 conv=notrunc 2>/dev/null
    dedup --out "$dir/hurt" -n 1 "$dir/in" >"$dir/log" 2>&1 && fail "a damaged file of edits was believed"
    grep -q "0-exact.edits: .*checksum" "$dir/log" || fail "a damaged file of edits: $(cat "$dir/log")"
fi

# Refused, with status 2 and nothing changed.
refuse() { # WHAT PATTERN ARGUMENTS...
    local what=$1 pattern=$2 status
    shift 2
    "$tutti" data dedup "$@" >"$dir/log" 2>&1
    status=$?
    { [ $status = 2 ] && grep -q -- "$pattern" "$dir/log"; } || fail "$what: status $status: $(cat "$dir/log")"
}
refuse "a finished folder" "holds a finished result" --out "$dir/want" "$dir/in"
mkdir "$dir/other" && echo 1 >"$dir/other/file"
refuse "a folder with something else" "is not empty" --out "$dir/other" "$dir/in"
refuse "no such step" "there is no 'nearly'" --out "$dir/x" "$dir/in" --steps exact,nearly
refuse "a step of nothing" "there is no ''" --out "$dir/x" "$dir/in" --steps exact,
refuse "little memory" "less than the 16" --out "$dir/x" "$dir/in" --memory 1MiB
refuse "a part that does not fit" "lower --part" --out "$dir/x" "$dir/in" --steps substring --memory 100MiB
refuse "rows alone" "come together" --out "$dir/x" "$dir/in" --rows 5
refuse "too many hashes" "more than 2048" --out "$dir/x" "$dir/in" --rows 500 --bands 500
refuse "shingles" "wanted words:N" --out "$dir/x" "$dir/in" --shingles letters:3
refuse "a threshold of 0" "threshold" --out "$dir/x" "$dir/in" --threshold 0
refuse "no input" "gone" --out "$dir/x" "$dir/gone"
refuse "a repeat of nothing" "--repeat" --out "$dir/x" "$dir/in" --repeat 4
[ ! -e "$dir/x/dedup.json" ] || fail "a refused run wrote something"
echo '{"text": "good"} ' >"$dir/bad.jsonl" && echo '{"text": ' >>"$dir/bad.jsonl"
refuse "a bad record" "bad.jsonl:2" --out "$dir/y" -n 2 "$dir/bad.jsonl" "$dir/in"
"$tutti" data dedup --out "$dir/z" -n 2 "$dir/bad.jsonl" "$dir/in" --skip-bad >"$dir/log" 2>&1 || fail "--skip-bad: $(cat "$dir/log")"
grep -q "1 bad records" "$dir/log" || fail "a bad record is not counted: $(cat "$dir/log")"
grep -rq "bad.jsonl:2" "$dir/z" || fail "a bad record is not listed"

# Four times the corpus, the same memory: sorting is on disk.
peak() { "$tutti" data dedup --out "$dir/$1" -n 1 "$dir/$2" --memory 16MiB --json 2>"$dir/log" | grep -oE '"memory_peak_bytes": ?[0-9]+' | grep -oE '[0-9]+'; }
if "$tutti" --version >/dev/null 2>&1 && [ -z "${ASAN_OPTIONS:-}${TSAN_OPTIONS:-}" ]; then
    corpus "$dir/one" 8000
    corpus "$dir/four" 32000
    one=$(peak p1 one) four=$(peak p4 four)
    { [ -n "$one" ] && [ "$four" -lt $((one + 8000000)) ] && [ "$four" -lt 80000000 ]; } || fail "memory: $one bytes, four times the corpus: $four"
    echo "peak memory: $one bytes, four times the corpus: $four"
fi
passed
