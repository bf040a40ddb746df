#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every source, script and example begins with its licence (SPDX), as CONTRIBUTING.md says; LICENSE is there, whole.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh"
cd "$root" || exit 1
line="SPDX-License-Identifier: Apache-2.0"
while read -r file; do
    head -n 2 "$file" | grep -q "$line" || fail "$file does not begin with $line"
done < <(find src tests scripts cmake examples bench CMakeLists.txt \
    \( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' -o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name '*.yaml' -o -name '*.sbatch' -o -name '*.in' -o -name '*.supp' \) \
    -not -path '*/corpus/*' -not -path '*/fixtures/*' -not -path '*/checkpoint/stored-v*')
[ "$(grep -c . LICENSE)" -gt 150 ] && grep -q "Apache License" LICENSE || fail "LICENSE"
passed
