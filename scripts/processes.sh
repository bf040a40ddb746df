# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that strike a process of a job, with the program in $tutti:
#   processes_of PID         pids of the program among the descendants of a process: a launcher, or a shell before it
# shellcheck shell=bash disable=SC2154
processes_of() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        [ "$(readlink "/proc/$child/exe")" = "$(readlink -f "$tutti")" ] && echo "$child"
        processes_of "$child"
    done
}
