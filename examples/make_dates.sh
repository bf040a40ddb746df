#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes what examples/dates.yaml and examples/dates_lora.yaml learn from: dates in words, and how they are written by ISO 8601 and
# in Germany. Needs awk alone; the same bytes every time.
#
#   examples/make_dates.sh DIR [TRAIN_RECORDS]
#
# DIR/iso.jsonl, DIR/german.jsonl       {"prompt": "July 14, 1789 = ", "completion": "1789-07-14"}
# DIR/iso_valid.jsonl, DIR/german_valid.jsonl     dates of which none is in the others
# DIR/iso_tasks.jsonl, DIR/german_tasks.jsonl     the same as questions for tutti eval
set -eu
dir=${1:?a folder} records=${2:-8000}
mkdir -p "$dir"
awk -v dir="$dir" -v records="$records" '
function draw(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) }
function put(name, day, month, year, form,    prompt, iso, german) {
    prompt = form ? english[month] " " day ", " year : day " " english[month] " " year
    iso = sprintf("%04d-%02d-%02d", year, month, day)
    german = sprintf("%02d.%02d.%04d", day, month, year)
    printf "{\"prompt\": \"%s = \", \"completion\": \"%s\"}\n", prompt, iso > (dir "/iso" name ".jsonl")
    printf "{\"prompt\": \"%s = \", \"completion\": \"%s\"}\n", prompt, german > (dir "/german" name ".jsonl")
    if (name == "") return
    printf "{\"task\": \"dates\", \"prompt\": \"%s = \", \"target\": \"%s\", \"max_tokens\": 20}\n", prompt, iso > (dir "/iso_tasks.jsonl")
    printf "{\"task\": \"dates\", \"prompt\": \"%s = \", \"target\": \"%s\", \"max_tokens\": 20}\n", prompt, german > (dir "/german_tasks.jsonl")
}
BEGIN {
    state = 1
    split("January February March April May June July August September October November December", english, " ")
    split("31 28 31 30 31 30 31 31 30 31 30 31", days, " ")
    for (i = 0; i < 200; i++) { # kept for validation
        month = 1 + draw(12); day = 1 + draw(days[month]); year = 1500 + draw(600)
        kept[day, month, year] = 1
        put("_valid", day, month, year, i % 2)
    }
    for (i = 0; i < records;) {
        month = 1 + draw(12); day = 1 + draw(days[month]); year = 1500 + draw(600)
        if ((day, month, year) in kept) continue
        put("", day, month, year, i++ % 2)
    }
}'
wc -l "$dir"/*.jsonl | sed 's/^ *//' >&2
