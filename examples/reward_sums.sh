#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A reward for examples/sums_rewards.yaml: 1 for an answer that is the sum which its prompt asks for and nothing else, 0 for any other.
# A line of JSON comes for each answer, a number goes for each; what is asked stands in the record, which is the prompt's own line.
exec awk '
{
    right = 0
    if (match($0, /"prompt": "[0-9]+\+[0-9]+="/)) {
        split(substr($0, RSTART + 11, RLENGTH - 13), number, "+")
        right = index($0, "{\"answer\":\"" (number[1] + number[2]) "\",") == 1
    }
    print right
}'
