#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: long addresses
# scripts/quickstart.sh on a small checkout, packages and compiler left out: it measures its steps, trains, shows samples while it
# learns, writes and makes a page; killed, it goes on; finished, it goes straight to the text and writes the same one.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
mkdir -p "$dir/build" "$dir/scripts" "$dir/tests" "$dir/tmp"
export TMPDIR=$dir/tmp
ln -s "$tutti" "$dir/build/tutti"
cp -r "$root/examples" "$dir/"
cp "$root/scripts/quickstart.sh" "$dir/scripts/"
for script in deps build; do echo 'echo "$(basename "$0"): $*" >&2' >"$dir/scripts/$script.sh"; done
cp -r "$root/src/train" "$dir/src" && cp -r "$root/src/optim" "$dir/tests/train"
small=(model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=1 model.ffn=32 model.seq_len=64 batch.global=2 batch.micro=2 run.threads=1
    run.eval_batches=1 run.sample_tokens=10)
quickstart() { bash "$dir/scripts/quickstart.sh" "${small[@]}" "$@" >"$dir/text" 2>"$dir/log"; }
said() { grep -q -- "$1" "$dir/log" || fail "$2: does not say '$1': $(cat "$dir/log")"; }
steps() { sed -n 's/^  steps: //p' "$dir/$1/config.yaml"; }

quickstart run.steps=12 || fail "the first run: $(cat "$dir/log")"
said '^build.sh: --program -DTUTTI_ISA=native$' first
said 'done in [0-9]* s: installing [0-9]* s, building [0-9]* s, the tokenizer [0-9]* s, training [0-9]* s, writing [0-9]* s$' first
said '^step 2 writes$' first
said '^    | static int' first
said '^step 12 writes$' first
[ "$(wc -l <"$dir/runs/quickstart/samples.jsonl")" = 6 ] || fail "not six samples: $(cat "$dir/runs/quickstart/samples.jsonl")"
[ -s "$dir/runs/quickstart/report.html" ] || fail "no page"
grep -q '^static int' "$dir/text" || fail "no text: $(cat "$dir/text")"
cp "$dir/text" "$dir/first"

# What is configured already is built as it is.
touch "$dir/build/CMakeCache.txt"
quickstart || fail "the second run: $(cat "$dir/log")"
said '^build.sh: --program$' second
said 'done in [0-9]* s: installing [0-9]* s, building [0-9]* s, writing [0-9]* s$' second
said 'has done its 12 steps' second
! grep -q '^step' "$dir/log" || fail "the second run trains: $(cat "$dir/log")"
cmp -s "$dir/text" "$dir/first" || fail "the second run writes another text"

# Killed at its second checkpoint at the latest, a run goes on to the same steps: those of its config, which was measured.
killed=$dir/runs/killed/checkpoints
bash "$dir/scripts/quickstart.sh" "${small[@]}" run.dir=runs/killed >"$dir/text" 2>"$dir/log" &
pid=$!
until_so $pid test -e "$killed/latest"
for child in $(cat /proc/$pid/task/*/children); do kill -9 "$child" 2>/dev/null; done
wait $pid && fail "a run that was killed ended well: $(cat "$dir/log")"
want=$(steps runs/killed)
[ "${want:-0}" -ge 120 ] && [ $((want % 60)) = 0 ] || fail "steps of a run that was measured: $want"
said "$want steps, and every $((want / 6)) of them" killed
stopped=$(readlink "$killed/latest")
quickstart run.dir=runs/killed "run.steps=$((10#${stopped#step-} + 1))" || fail "going on: $(cat "$dir/log")"
said "stopped at $stopped; going on from there" killed

# Before its first checkpoint a run begins again; a key that is none is refused in the program's words.
rm -r "$killed" && quickstart run.dir=runs/killed run.steps=6 && said '^step 1 writes$' again || fail "again: $(cat "$dir/log")"
quickstart run.dir=runs/bad model.layer=1 && fail "an unknown key is taken"
said 'model.layer' "an unknown key"
[ "$(tail -1 "$dir/log" | grep -c 'model.layer')" = 1 ] || fail "says more than the program: $(cat "$dir/log")"
[ -z "$(ls "$dir/tmp")" ] || fail "leaves behind $(ls "$dir/tmp")"
passed
