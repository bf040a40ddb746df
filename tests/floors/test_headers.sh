#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Headers that a device's own files include are C++, too, in which CUDA's are compiled: those of device/ and kernel/, and what they
# include, each alone between extern "C"; what files of C are made of (*_body.h) is not. Skipped without a C++ compiler.
set -euo pipefail
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
command -v "${CXX:-c++}" >/dev/null || { echo "skipped: there is no C++ compiler"; exit 77; }
compiles() { # HEADER FOLDER
    printf 'extern "C" {\n#include "%s"\n}\n' "$1" | "${CXX:-c++}" -std=gnu++17 -Wall -Wno-unused-function -fsyntax-only -I "$2" -x c++ - >"$dir/said" 2>&1
}
mkdir -p "$dir/bad"
echo 'static inline int *f(void *p) { return p; }' >"$dir/bad/a.h"
! compiles a.h "$dir/bad" || fail "C is taken for C++"
n=0
for header in "$root"/src/device/*.h "$root"/src/kernel/*.h; do
    case $header in *_body.h) continue ;; esac
    compiles "${header#"$root/src/"}" "$root/src" || fail "${header#"$root/"}: $(grep -m3 'error\|warning' "$dir/said")"
    n=$((n + 1))
done
[ $n -gt 25 ] || fail "only $n headers"
passed
