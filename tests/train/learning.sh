# SPDX-License-Identifier: Apache-2.0
# Sourced, after tests/script.sh, by scripts that train a small model on what people or programs think of its answers:
#   small FILE OBJECTIVE DATA SEQ_LEN KEYS   writes a config; OBJECTIVE and DATA are what train and data hold, KEYS more lines
#   train RUN KEYS...                        trains it, which must end well
#   refused WORDS KEYS...                    training is refused, in these words
#   figures RUN NAMES...                     of every step the figures of these names; - where the step has none
#   as_planned RUN KEYS...                   its peak is, to the byte, that of a rank of the plan
# shellcheck shell=bash
small() {
    config=$1
    cat >"$1" <<END
model: {layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 48, seq_len: $4}
train: $2
data: $3
precision: {recipe: fp32}
$5
END
}
train() {
    local run=$1
    shift
    "$tutti" train "$config" run.dir="$run" "$@" >log 2>&1 || fail "$run: $(tail -3 log)"
}
refused() {
    local words=$1
    shift
    "$tutti" train "$config" run.dir=no "$@" >out 2>&1
    [ $? = 2 ] && grep -qF -- "$words" out || fail "does not say '$words': $*: $(tail -1 out)"
}
figures() {
    local run=$1
    shift
    awk -v names="$*" 'BEGIN { n = split(names, name, " ") }
        /"loss":/ { line = ""
            for (i = 1; i <= n; i++) {
                has = match($0, "\"" name[i] "\":[^,}]*")
                line = line (i > 1 ? " " : "") (has ? substr($0, RSTART + length(name[i]) + 3, RLENGTH - length(name[i]) - 3) : "-")
            }
            print line }' "$run/metrics.jsonl"
}
as_planned() {
    local run=$1 peak
    shift
    peak=$(figures "$run" peak_bytes | tail -1)
    "$tutti" plan "$config" --json "$@" >plan.json 2>log || fail "plan: $*: $(tail -1 log)"
    [ ! -s log ] || fail "plan says: $(cat log)"
    grep -Eq "\"peak_bytes\": *$peak[,}]" plan.json || fail "$run: $peak bytes, planned for $*: $(grep -Eo '"peak_bytes": *[0-9]*' plan.json | tr '\n' ' ')"
}
