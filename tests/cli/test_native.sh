#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# -DTUTTI_ISA=native configures: the kernels of what this machine runs and no others, and no level but all and native.
# The tables that lose rows are compiled for the least that a native build has, on any machine.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh"
configure() { cmake -S "$root" -B "$dir/$1" "${@:2}" >"$dir/log" 2>&1; }
kernels() { grep -oE "src/[a-z_/]*_(avx2|avx512|avx512bf16|amx|neon|neonbf16)\.c\"" "$dir/$1/compile_commands.json" | sort -u; }

configure native -DTUTTI_ISA=native -DTUTTI_SANITIZE= || fail "native: $(cat "$dir/log")"
here=$(grep -oE 'up to level [0-9]' "$dir/log" | grep -oE '[0-9]$') || fail "native does not say up to where: $(cat "$dir/log")"
level=0
for isa in $(case $(uname -m) in x86_64) echo avx2 avx512 avx512bf16 amx ;; aarch64) echo neon neonbf16 ;; esac); do
    level=$((level + 1))
    if [ $level -le "$here" ]; then kernels native | grep -q "_$isa\.c" || fail "level $here has no kernels of $isa"
    else ! kernels native | grep "_$isa\.c" || fail "level $here has kernels of $isa"; fi
done
configure other -DTUTTI_ISA=avx2 && fail "a level is taken: all and native are the ways"
grep -q 'TUTTI_ISA=avx2: all or native' "$dir/log" || fail "says nothing about avx2: $(cat "$dir/log")"
grep -q 'kernels up to' <("$tutti" --version) || fail "the program does not say up to where: $("$tutti" --version)"

mkdir -p "$dir/objects"
for f in kernel/cpuid kernel/cpu/build kernel/cpu/tile kernel/cpu/linear kernel/cpu/scaled kernel/cpu/codes_product comm/fold; do
    cc -std=gnu11 -D_GNU_SOURCE -DTUTTI_ISA_BUILT=1 -I"$root/src" -O0 -c "$root/src/$f.c" -o "$dir/objects/${f//\//-}.o" ||
        fail "$f.c does not compile for the first level alone"
done
! nm "$dir"/objects/*.o | grep -E ' U .*(avx512|amx|neonbf16)' || fail "a table has rows of levels that are not built"
passed
