/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: the builds of the vector kernels, one row per instruction set.
 *
 * The *_body.h files are written once in the words of vec.h and compiled once per build: vec_<part>_<isa>.c (rows of
 * the operation table, in parts that compile side by side), flat_<isa>.c (optimizer, norms, casts), formats_<isa>.c,
 * quantise_<isa>.c and attention_<isa>.c. Which row serves a call of the operation table is asked when its way is
 * chosen; matrix products have a table of their own (tile.h), since their best panels depend on the dtype too.
 * Includes: kernel.h, formats.h, attention.h, cpuid.h. Order: Local; any thread.
 */
#ifndef TUTTI_KERNEL_CPU_BUILD_H
#define TUTTI_KERNEL_CPU_BUILD_H

#include "kernel/cpu/attention/attention.h"
#include "kernel/cpuid.h"
#include "kernel/flat_ops.h"
#include "kernel/formats.h"
#include "kernel/kernel.h"

enum { BUILD_ACT, BUILD_NORM, BUILD_MOVE, BUILD_SCAN, BUILD_QUANTISE, BUILD_PARTS };
struct cpu_build {
    enum isa needs;                                /* the least level that can run these functions */
    const struct kernel_family *part[BUILD_PARTS]; /* each slot is in one; AMAX and QUANTISE have ref's bits */
    const struct flat_ops *flat;                   /* ref's bits */
    const struct attention_build *attention;
    const struct format_ops *formats; /* ref's bits */
};
/* The best at or under this CPU's level. NULL: there is none. */
const struct cpu_build *cpu_build(void);
/* The slot of the part that has it; NULL: none. */
const struct kernel_slot *cpu_build_slot(const struct cpu_build *b, enum op op, enum kernel_phase phase);
/* All that were compiled, the least first; NULL past the end. What needs more than cpu_isa() must not be run. */
const struct cpu_build *cpu_build_at(int i);

#define BUILD_HAS(isa)                                                                                                 \
    extern const struct kernel_family kernel_vec_act_##isa, kernel_vec_norm_##isa, kernel_vec_move_##isa,              \
        kernel_vec_scan_##isa
#if defined(__x86_64__)
BUILD_HAS(avx2);
BUILD_HAS(avx512);
BUILD_HAS(avx512bf16);
extern const struct flat_ops flat_ops_avx2, flat_ops_avx512;
extern const struct format_ops format_ops_avx2, format_ops_avx512;
extern const struct kernel_family kernel_quantise_avx2, kernel_quantise_avx512;
extern const struct attention_build attention_avx2, attention_avx512, attention_avx512bf16;
#elif defined(__aarch64__)
BUILD_HAS(neon);
BUILD_HAS(neonbf16);
extern const struct flat_ops flat_ops_neon, flat_ops_neonbf16;
extern const struct format_ops format_ops_neon;
extern const struct kernel_family kernel_quantise_neon;
extern const struct attention_build attention_neon, attention_neonbf16;
#endif

#endif
