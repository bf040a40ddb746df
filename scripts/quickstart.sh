#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a checkout to generated text: installs what is missing, builds the program, learns a tokenizer, trains a small model on
# this project's own sources for about a minute, and lets it write.
#
#   scripts/quickstart.sh [key=value ...]     such as run.steps=200, or data.train=FOLDER
#
# How many steps that minute has is measured on ten of them before a run's first start; they stay the same from then on. Run
# again, it finds the finished run and goes straight to the text; a run that was stopped goes on. Remove runs/quickstart to
# start afresh. A new build/ has kernels for this machine only (TUTTI_ISA=native); one that is there stays as it was configured.
# At the end it says how long each part took.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
config=examples/quickstart.yaml
seconds=55 # of training; the samples it writes, checkpoints, validation and the page come on top
run=runs/quickstart text=src prompt="static int" steps=
for word in "$@"; do
    case $word in
    run.dir=*) run=${word#*=} ;;
    run.steps=*) steps=${word#*=} ;;
    run.sample_prompt=*) prompt=${word#*=} ;;
    data.train=*) text=${word#*=} ;;
    esac
done
tokenizer=$run/pieces.json
say() { echo "quickstart: $*" >&2; }
parts=()
# took WORD SINCE: remembers that this part ends now.
took() { parts+=("$1 $((SECONDS - $2)) s"); }

# Steps that take $seconds here, a multiple of 60: by the faster half of ten, for other programs disturb the slower one.
measure_steps() {
    local folder
    folder=$(mktemp -d)
    trap "rm -r '$folder'" EXIT # of the subshell that this runs in
    LOG=error build/tutti train "$config" data.tokenizer="$tokenizer" "$@" run.dir="$folder" data.cache_dir="$run/data" \
        run.steps=10 checkpoint.every=0 run.eval_every=0 run.sample_every=0 run.tensorboard=false || return 1
    sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$folder/metrics.jsonl" | sort -g |
        awk -v seconds=$seconds 'NR <= 5 { s += $1 / 5 } END { n = int(seconds / s / 60) * 60; print (n < 120 ? 120 : (n > 1800 ? 1800 : n)) }'
}

# of_run KEY: the first number that the started run's config has under this name.
of_run() { sed -n "s/^ *$1: \([0-9]*\)$/\1/p" "$run/config.yaml" | head -1; }

say "1. what is needed"
since=$SECONDS
bash scripts/deps.sh
took installing $since
say "2. build"
since=$SECONDS
native=()
if [ ! -e build/CMakeCache.txt ]; then native=(-DTUTTI_ISA=native); fi
bash scripts/build.sh --program "${native[@]}"
took building $since

saved=$(readlink "$run/checkpoints/latest" || true) # step-00000200
if [ -n "$saved" ]; then
    every=$(of_run every)
    [ -n "$steps" ] || steps=$(of_run steps)
else
    say "3. learn a tokenizer: which bytes of $text often come together"
    mkdir -p "$run"
    read -ra inputs <<<"$(tr '[],' '   ' <<<"$text")"
    since=$SECONDS
    build/tutti data train-tokenizer --vocab-size 2048 --out "$tokenizer" "${inputs[@]}" >&2
    took "the tokenizer" $since
    since=$SECONDS
    if [ -z "$steps" ]; then
        steps=$(measure_steps "$@")
        took measuring $since
    fi
    every=$(((steps + 5) / 6))
fi
if [ "$saved" = "$(printf 'step-%08d' "$steps")" ]; then
    say "4. $run has done its $steps steps (rm -r $run starts afresh)"
else
    if [ -n "$saved" ]; then say "4. train: $run stopped at $saved; going on from there to $steps steps (rm -r $run starts afresh)"
    else say "4. train $config into $run: $steps steps, and every $every of them it writes something"; fi
    log_every=$every
    if [ -t 2 ]; then log_every=5; fi # on a terminal the line is overwritten
    since=$SECONDS
    build/tutti train "$config" data.tokenizer="$tokenizer" checkpoint.every="$every" run.sample_every="$every" \
        run.eval_every=$((3 * every)) run.log_every="$log_every" run.sample_prompt="$prompt" run.sample_temperature=0.5 "$@" run.steps="$steps"
    took training $since
fi

say "5. let it write"
since=$SECONDS
write() { build/tutti generate "$run" --prompt "$1" --max-tokens 220 --temperature 0.5 --seed "$2"; }
write "$prompt" 1
echo
if [ "$text" = src ]; then
    write "/* The" 2
    echo
fi
took writing $since
say "6. a page about the run, for a browser: $(build/tutti report "$run")"
took=$(printf '%s, ' "${parts[@]}")
say "done in $SECONDS s: ${took%, }"
say "To write with your own words:"
echo "    build/tutti generate $run --prompt \"$prompt\" --temperature 0.5 --seed 2" >&2
say "to train on your own text, about as long:"
echo "    scripts/quickstart.sh data.train=FOLDER run.dir=runs/mine run.sample_prompt=\"The\"" >&2
