#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every source, script and example begins with its licence (SPDX), as CONTRIBUTING.md says; LICENSE is there, whole.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$root" || exit 1
line="SPDX-License-Identifier: Apache-2.0"
# begins FILES: those that do not have it in their first two lines.
begins() { xargs -0 awk -v line="$line" '
    function told() { if (name != "" && !has) print name }
    FNR == 1 { told(); name = FILENAME; has = 0 }
    FNR <= 2 && index($0, line) { has = 1 }
    FNR == 2 { nextfile }
    END { told() }'; }
printf 'nothing\n' >"$dir/bare.c"
printf '%s\0' "$dir/bare.c" | begins | grep -q bare.c || fail "a file without it passes"
find src tests scripts cmake examples bench CMakeLists.txt \
    \( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' -o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name '*.yaml' -o -name '*.sbatch' -o -name '*.in' -o -name '*.supp' \) \
    -not -path '*/corpus/*' -not -path '*/fixtures/*' -not -path '*/checkpoint/stored-v*' -size +0 -print0 | begins >"$dir/missing"
find src tests scripts cmake -name '*.[ch]' -size 0 >>"$dir/missing"
[ ! -s "$dir/missing" ] || fail "without $line: $(tr '\n' ' ' <"$dir/missing")"
[ "$(grep -c . LICENSE)" -gt 150 ] && grep -q "Apache License" LICENSE || fail "LICENSE"
passed
