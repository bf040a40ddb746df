# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder, with their arguments (CMakeLists.txt): sets tutti, root and library; and
#   dir       an empty folder, gone when the script ends, which calls at_end before, where the script has one
#   fail WHAT says that something is wrong, and counts it: in a file, so that it counts in $(...), a pipe and ( ) as well
#   drawn_here I K   whether entry I of a list is in the part, one of K, that this commit draws for every day; all with TUTTI_WHOLE
#                    (tests/drawn.h is the same for programs)
#   foxes N   N lines to train on: each is another, and most of it is in all of them, so that a toy learns them soon
#   until_so PID COMMAND...   waits until COMMAND says yes, or process PID is over; its status is COMMAND's. However slow the machine is:
#             who waits for too long is ended by ctest, whose limit is the test's
#   passed    whether nothing was; a script's last line. Whoever ends another way after a failure ends with status 1
# shellcheck shell=bash disable=SC2034
tutti=$1 root=$2 library=${3:-}
dir=$(mktemp -d)
failed=$(mktemp)
fail() {
    echo "FAILED: $*" >&2
    echo "$*" >>"$failed"
}
drawn_here() {
    local commit
    [ -z "${TUTTI_WHOLE:-}" ] || return 0
    commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo 0)
    [ $((16#${commit:0:7} % $2)) = $(($1 % $2)) ]
}
foxes() {
    local i
    for ((i = 1; i <= $1; i++)); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep."; done
}
until_so() {
    local pid=$1
    shift
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || { "$@"; return; }
        sleep 0.02
    done
}
passed() { [ ! -s "$failed" ]; }
script_end() {
    local status=$?
    if declare -F at_end >/dev/null; then at_end; fi
    if ! passed; then
        echo "$(wc -l <"$failed") lines of failures:" && cat "$failed"
        status=1
    fi
    rm -rf "$dir" "$failed"
    exit "$status"
}
trap script_end EXIT
