#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes what examples/sums.yaml, sums_rewards.yaml and sums_score.yaml learn from: sums of two numbers below ten, written by somebody who is
# right two times in five, prompts alone, and pairs of a right sum and a wrong one. Needs awk alone; the same bytes every time.
#
#   examples/make_sums.sh DIR
#
# DIR/sloppy.jsonl     {"prompt": "7+8=", "completion": "14"}
# DIR/prompts.jsonl    {"prompt": "7+8="}
# DIR/pairs.jsonl, valid.jsonl    {"prompt": "7+8=", "chosen": "15", "rejected": "17"}
set -eu
dir=${1:?a folder}
mkdir -p "$dir"
awk -v dir="$dir" '
function draw(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) }
BEGIN {
    state = 1
    for (a = 0; a < 10; a++)
        for (b = 0; b < 10; b++) printf "{\"prompt\": \"%d+%d=\"}\n", a, b > (dir "/prompts.jsonl")
    for (i = 0; i < 6000; i++) {
        a = draw(10); b = draw(10); sum = a + b
        if (draw(5) > 1) sum += 1 + draw(3)
        printf "{\"prompt\": \"%d+%d=\", \"completion\": \"%d\"}\n", a, b, sum > (dir "/sloppy.jsonl")
    }
    for (i = 0; i < 4200; i++) {
        a = draw(10); b = draw(10); wrong = i % 2 ? draw(19) : a + b + draw(7) - 3
        if (wrong < 0 || wrong == a + b) wrong = a + b + 1
        printf "{\"prompt\": \"%d+%d=\", \"chosen\": \"%d\", \"rejected\": \"%d\"}\n", a, b, a + b, wrong > (dir (i < 4000 ? "/pairs.jsonl" : "/valid.jsonl"))
    }
}'
