#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# A GPU's kernels compiled by nvcc, where there is one: every file for an A100 and an H100, and what needs none of their instructions
# for a T4; no spilled register and no memory of single threads but what spills.txt has, no warning. No GPU is needed.
. "$2/tests/script.sh" || exit 1
nvcc=
for at in "${CUDACXX:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
    if [ -z "$nvcc" ] && [ -n "$at" ] && [ -x "$at" ]; then nvcc=$at; fi
done
if [ -z "$nvcc" ]; then
    echo "no nvcc here: nothing was compiled"
    exit 77
fi
# compiled FILE TARGET: whether it compiles as it is to; what nvcc said is in $dir/log
compiled() {
    "$nvcc" -std=c++17 -O3 -I"$root/src" -cubin -arch="$2" -Xptxas -v -o "$dir/cubin" "$1" >"$dir/log" 2>&1 || return 1
    ! grep -q -i 'warning' "$dir/log" || return 1
    awk -v target="$2" '
        FNR == NR { if ($1 !~ /^#/) may[$1 " " $2] = $3; next }
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
        /bytes stack frame/ { if ($1 + 0 > may[kernel " " target] + 0) { print kernel, target, $1; wrong = 1 } }
        END { exit wrong }' "$root/tests/cuda/spills.txt" "$dir/log" >"$dir/spilled"
}
# The check itself: a table that is indexed by what is only known then lies in a thread's own memory.
cat >"$dir/spills.cu" <<'C'
extern "C" __global__ void spills(int *p)
{
    int v[64];
    for (int i = 0; i < 64; i++) v[p[i]] = i;
    for (int i = 0; i < 64; i++) p[i] = v[i ^ p[64]];
}
C
if compiled "$dir/spills.cu" sm_80; then fail "memory of single threads is not seen"; fi
n=0
for f in "$root"/src/kernel/cuda/*.cu; do
    name=$(basename "$f" .cu)
    targets="sm_80 sm_90a"
    grep -q 'gpu_mma_\|gpu_copy16' "$f" || targets="sm_75 $targets"
    for target in $targets; do
        if ! compiled "$f" "$target"; then
            fail "$name for $target"
            grep -i -B2 'error\|warning' "$dir/log" | head -20
            cat "$dir/spilled"
        fi
        kernels=$(grep -c 'Compiling entry function' "$dir/log")
        most=$(grep -o 'Used [0-9]* registers' "$dir/log" | grep -o '[0-9]*' | sort -n | tail -1)
        echo "$name for $target: $kernels kernels, at most ${most:-?} registers"
        n=$((n + kernels))
    done
done
[ "$n" -gt 0 ] || fail "no kernel was compiled"
passed
