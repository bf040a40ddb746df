#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run, its samples and starts, and the page made of it: with one rank, with several, damaged, under way; seen in a browser
# where one is installed.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
tiny=(model.layers=2 model.hidden=32 model.heads=2 model.seq_len=32 batch.global=8 batch.micro=2 run.threads=1
    "data.train=$root/README.md" "data.valid=$root/README.md" run.steps=6 run.eval_every=3 checkpoint.every=2 run.sample_every=4)
echo "model: {family: llama}" >"$dir/tiny.yaml"
train() { "$tutti" train "$dir/tiny.yaml" "${tiny[@]}" "$@" 2>"$dir/log" || fail "train $*: $(cat "$dir/log")"; }
has() { grep -q -- "$1" "$dir/page.html" || fail "$2: the page lacks $1"; }

train "run.dir=$dir/one" "run.sample_prompt=<b>&"
grep -A1 '^step 4 writes$' "$dir/log" | grep -q '^    | <b>&' || fail "no sample in the log: $(cat "$dir/log")"
[ "$(cut -d, -f1 "$dir/one/samples.jsonl" | tr '\n' ' ')" = '{"step":4 {"step":6 ' ] || fail "samples: $(cat "$dir/one/samples.jsonl")"
grep -q '"ranks":1,"threads":1,.*"step":0}' "$dir/one/starts.jsonl" || fail "starts: $(cat "$dir/one/starts.jsonl")"
[ "$("$tutti" report "$dir/one")" = "$dir/one/report.html" ] || fail "does not say where the page is"
"$tutti" report "$dir/one" --html "$dir/page.html" >"$dir/out" || fail "report"
cmp -s "$dir/page.html" "$dir/one/report.html" || fail "two pages of one run differ"
for what in '<polyline' 'Loss, nats per token' '&lt;b&gt;&amp;' 'peak memory of a rank' '<td>optimizer</td>' 'kernels' 'eval_every: 3'; do has "$what" one; done
! grep -qE '<script|https?://[^w]|(^|[^_a-z])nan|-inf' "$dir/page.html" || fail "the page needs something beside it, or has numbers that are none"

# From another folder than the run was started in, with a tokenizer that its config names from there, and when that is gone.
cp "$root/tests/data/fixtures/gpt2.json" "$dir/tok.json"
(cd "$dir" && train "run.dir=moved" data.tokenizer=tok.json run.sample_every=0)
mv "$dir/tok.json" "$dir/gone.json"
(cd / && "$tutti" report "$dir/moved" --html "$dir/page.html" >"$dir/out") || fail "report from another folder"
has '<td>optimizer</td>' "from another folder"
! grep -q 'left out' "$dir/page.html" || fail "from another folder memory is left out: $(grep -o '[^>]*left out[^<]*' "$dir/page.html")"

# A page is shown to others: what is secret in an address is in the run's config and not there.
cp -r "$dir/one" "$dir/signed"
sed -i "s|^\\( *- path: \\).*|\\1\"https://me:HIDDEN@host/corpus.txt?sig=HIDDEN\"|" "$dir/signed/config.yaml"
grep -q HIDDEN "$dir/signed/config.yaml" || fail "no address in the config"
"$tutti" report "$dir/signed" --html "$dir/page.html" >"$dir/out" || fail "report of an address"
has 'https://host/corpus.txt' "an address"
! grep -q HIDDEN "$dir/page.html" || fail "the page shows what is secret in an address"

# What the page says is what the run wrote.
last=$(grep '"step":6,"loss"' "$dir/one/metrics.jsonl" | sed 's/.*"loss":\([0-9.]*\),.*/\1/')
has "$(printf '%.4f' "$last")" "the last loss"

train "run.dir=$dir/many" -n 4 parallel.pp=2 parallel.zero=1
"$tutti" report "$dir/many" --html "$dir/page.html" >"$dir/out" || fail "report of four ranks"
[ "$(grep -c '<div class="picture"><svg' "$dir/page.html")" = 2 ] || fail "layout and schedule are not both there"
has 'over threads\|threads</td>\|local' "four ranks"
grep -q '"ranks":4' "$dir/many/starts.jsonl" || fail "starts of four ranks: $(cat "$dir/many/starts.jsonl")"

# Beside each other: a run that is not as far is compared at the step it reached, with a step done twice by its later value.
mkdir "$dir/far" "$dir/near" "$dir/apart"
for p in 3:4.0 6:2.0 9:1.0; do echo "{\"step\":${p%:*},\"valid_loss\":${p#*:},\"valid_tokens\":9}"; done >"$dir/far/metrics.jsonl"
for p in 3:4.0 6:3.0 6:2.5; do echo "{\"step\":${p%:*},\"valid_loss\":${p#*:},\"valid_tokens\":9}"; done >"$dir/near/metrics.jsonl"
echo '{"step":4,"valid_loss":3.0,"valid_tokens":9}' >"$dir/apart/metrics.jsonl"
"$tutti" report "$dir/far" --beside "$dir/near,$dir/apart" >"$dir/out" || fail "report of several"
for line in '| `far` | 9 | 1.0000 | +0.00 % |' '| `near` | 6 | 2.5000 | +25.00 % |' '| `apart` | 4 | 3.0000 | no step in common |'; do
    grep -qxF "$line" "$dir/out" || fail "beside: no $line in $(cat "$dir/out")"
done

# Stopped in the middle of a line, config gone, directory wrong.
head -c $(($(stat -c %s "$dir/one/metrics.jsonl") - 20)) "$dir/one/metrics.jsonl" >"$dir/cut" && cp "$dir/cut" "$dir/one/metrics.jsonl"
rm "$dir/one/config.yaml"
"$tutti" report "$dir/one" --html "$dir/page.html" >"$dir/out" || fail "report of a damaged run"
has '1 lines of the run' "a damaged run" && has 'left out' "a damaged run"
"$tutti" report "$dir" 2>"$dir/err"
[ $? = 2 ] && grep -q "is not the directory of a run" "$dir/err" || fail "a folder that is no run: $(cat "$dir/err")"
"$tutti" train "$dir/tiny.yaml" "${tiny[@]}" "run.dir=$dir/never" run.sample_every=3 2>"$dir/err"
[ $? = 2 ] && grep -q "run.sample_every: .*choose 4" "$dir/err" || fail "a sample between checkpoints: $(cat "$dir/err")"

if bash "$root/scripts/browser.sh" >/dev/null 2>&1; then
    "$tutti" report "$dir/many" --html "$dir/page.html" >"$dir/out"
    echo '<!DOCTYPE html><title>empty</title>' >"$dir/empty.html"
    for page in page empty; do
        bash "$root/scripts/browser.sh" "$dir/$page.html" "$dir/$page.png" 2>"$dir/err" || fail "$(cat "$dir/err")"
    done
    size() { stat -c %s "$dir/$1.png" 2>/dev/null || echo 0; }
    [ "$(size page)" -gt $((2 * $(size empty))) ] ||
        fail "the browser's picture of the page ($(size page) bytes) says no more than that of an empty one ($(size empty))"
else
    echo "no browser: the page was not looked at"
fi
passed
