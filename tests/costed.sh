#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# costed.sh NAME COMMAND...: runs a test. With TUTTI_COSTS=FILE in the environment its seconds of processor time, those of everything it
# started and waited for, are appended there, from which tests/costs.sh makes tests/costs.txt.
if [ -z "${TUTTI_COSTS:-}" ]; then exec "${@:2}"; fi
"${@:2}"
status=$?
told=$(mktemp)
times >"$told" # not in a pipe: there it is another shell's. Its second line: user and system of those that ended, as 1m2.345s
awk -v name="$1" 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, a, /[ms]/); s += 60 * a[1] + a[2] } printf "%s %.2f\n", name, s }' "$told" \
    >>"$TUTTI_COSTS"
rm -f "$told"
exit $status
