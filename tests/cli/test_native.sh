#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# -DTUTTI_ISA=native configures: the kernels of what this machine runs and no others, and no level but all and native.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
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

# Whatever may name a kernel of an instruction set, compiled for each level that a native build may stop at, asks for none above it.
absent() { case $(uname -m)$1 in x86_641) echo 'avx512|avx512bf16|amx|sim512' ;; x86_642) echo 'avx512bf16|amx' ;; x86_643) echo amx ;; aarch641) echo neonbf16 ;; esac; }
for top in 1 2 3; do
    [ -n "$(absent $top)" ] && drawn_here $top 3 || continue # every day one of them
    mkdir -p "$dir/$top"
    for f in "$root"/src/kernel/cpuid.c "$root"/src/kernel/cpu/*.c "$root"/src/comm/fold.c "$root"/src/curate/minhash.c; do
        [[ ! $f =~ _(avx2|avx512|avx512bf16|amx|neon|neonbf16)\.c$ ]] || continue
        cc -std=gnu11 -D_GNU_SOURCE -DTUTTI_ISA_BUILT=$top -I"$root/src" -O0 -c "$f" -o "$dir/$top/$(basename "$f").o" ||
            fail "$f does not compile for level $top"
    done
    ! nm -A "$dir/$top"/*.o | grep -E " U .*_($(absent $top))$" || fail "level $top asks for kernels above it"
done
passed
