#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds tutti.
#
#   scripts/build.sh [--program] [DIRECTORY] [CMAKE OPTION ...]     default: build/
#
#   --program    the program and its manual pages, not the tests
#
#   scripts/build.sh build-asan -DTUTTI_SANITIZE=address,undefined
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

directory=$root/build
what=(--target all)
if [ "${1:-}" = --program ]; then
    what=(--target tutti manual)
    shift
fi
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    case $1 in
    /*) directory=$1 ;;
    *) directory=$root/$1 ;;
    esac
    shift
fi
# Warnings are errors where changes are judged, not on the machine of somebody with a newer compiler.
if [ -n "${CI:-}" ]; then set -- -DTUTTI_WERROR=ON "$@"; fi
generator=()
if [ ! -e "$directory/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
# A compiler cache, where one is installed: paths are told from the root, so that another clone finds what this one compiled.
if command -v ccache >/dev/null; then
    generator+=("-DCMAKE_C_COMPILER_LAUNCHER=env;CCACHE_BASEDIR=$root;CCACHE_NOHASHDIR=1;ccache")
fi

echo "build: $directory $*" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# What a build that works has to say is of no use to anybody; what one that fails says is shown whole.
if ! cmake -S "$root" -B "$directory" "${generator[@]}" "$@" >"$log" 2>&1 ||
    ! cmake --build "$directory" "${what[@]}" --parallel "${TUTTI_JOBS:-$(nproc)}" >"$log" 2>&1; then
    grep -v '^\[[0-9/]*\] Building\|^\[[0-9/]*\] Linking' "$log" >&2 || true
    echo "build: failed in $directory" >&2
    exit 1
fi
