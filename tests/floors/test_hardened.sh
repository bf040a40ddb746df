#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program, as the linker left it: position-independent, full RELRO, no executable stack, stack protector and FORTIFY at work
# (cmake/harden.cmake). Read from the ELF file, because flags that a build drops on the way leave no other trace.
set -euo pipefail
export LC_ALL=C
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
command -v readelf >/dev/null || { echo "no readelf (binutils), which every compiler here brings along"; exit 1; }

checked() { # PROGRAM: every finding, one a line
    local header segments dynamic symbols
    header=$(readelf -hW "$1") segments=$(readelf -lW "$1") dynamic=$(readelf -dW "$1") symbols=$(readelf --dyn-syms -W "$1")
    grep -q 'Type: *DYN' <<<"$header" && grep -Eq 'FLAGS_1.*PIE' <<<"$dynamic" || echo "not position-independent"
    grep -q 'GNU_RELRO' <<<"$segments" || echo "no RELRO"
    grep -Eq 'FLAGS.*(BIND_NOW|NOW)' <<<"$dynamic" || echo "RELRO is not full: addresses are bound late"
    grep -Eq 'GNU_STACK +.* RW +' <<<"$segments" || echo "the stack is executable"
    grep -Eq 'LOAD .* RWE ' <<<"$segments" && echo "a segment is writable and executable"
    grep -q '__stack_chk_fail' <<<"$symbols" || echo "no stack protector"
    if ! grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Debug$' "$(dirname "$tutti")/CMakeCache.txt"; then
        grep -q -E '__v?snprintf_chk' <<<"$symbols" || echo "no FORTIFY"
    fi
    return 0
}
found=$(checked "$tutti")
[ -z "$found" ] || fail "$tutti: $found"

# The test can fail: a program without any of it shows every finding.
echo '#include <stdio.h>
int main(int n, char **v) { char s[64]; snprintf(s, 64, "%d%s", n, v[0]); return s[0] == 0; }' >"$dir/bare.c"
if cc -O2 -U_FORTIFY_SOURCE -fno-stack-protector -fno-pie -no-pie -Wl,-z,norelro -Wl,-z,lazy -Wl,-z,execstack "$dir/bare.c" \
    -o "$dir/bare" 2>/dev/null; then
    n=$(checked "$dir/bare" | wc -l)
    [ "$n" = 6 ] || fail "of 6 things that a bare program lacks, $n are found: $(checked "$dir/bare")"
fi
passed
