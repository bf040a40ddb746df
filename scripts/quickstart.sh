#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a checkout to generated text: installs what is missing, builds, trains a small model on this project's own
# sources and documents for a few minutes, saves it, and lets it write.
#
#   scripts/quickstart.sh [key=value ...]     such as run.steps=200
#
# Run again, it finds the finished run and goes straight to the text. Remove runs/quickstart to start afresh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
run=runs/quickstart

echo "quickstart: 1. what is needed" >&2
bash scripts/deps.sh
echo "quickstart: 2. build" >&2
bash scripts/build.sh
if [ -e "$run/checkpoints/latest" ]; then
    echo "quickstart: 3. train: $run has a checkpoint; going on from there (rm -r $run starts afresh)" >&2
else
    echo "quickstart: 3. train examples/quickstart.yaml into $run (a few minutes)" >&2
fi
build/tutti train examples/quickstart.yaml run.sample_every=250 run.sample_prompt="static int " "$@"
echo "quickstart: 4. let it write" >&2
build/tutti generate "$run/checkpoints/latest" --prompt "The " --max-tokens 300 --temperature 0.8 --seed 1
echo
echo "quickstart: 5. a page about the run: $(build/tutti report "$run")" >&2
echo "quickstart: done. To write with your own words:" >&2
echo "    build/tutti generate $run/checkpoints/latest --prompt \"...\"" >&2
echo "To train on your own text: build/tutti train examples/quickstart.yaml data.train=FOLDER run.dir=runs/mine" >&2
