/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: the builds of the vector kernels, one row per instruction set.
 *
 * The *_body.h files are written once in the words of vec.h and compiled once per build: vec_<isa>.c (rows of the
 * operation table), flat_<isa>.c (optimizer, norms, casts), formats_<isa>.c, quantise_<isa>.c and attention_<isa>.c.
 * Which row serves a call of the operation table is asked when its way is chosen; matrix products have a table of their
 * own (tile.h), since their best panels depend on the dtype too. Includes: kernel.h, formats.h, attention.h, cpuid.h.
 * Order: Local; any thread.
 */
#ifndef TUTTI_KERNEL_CPU_BUILD_H
#define TUTTI_KERNEL_CPU_BUILD_H

#include "kernel/cpu/attention.h"
#include "kernel/cpuid.h"
#include "kernel/formats.h"
#include "kernel/kernel.h"

struct cpu_build {
    enum isa needs; /* the least level that can run these functions */
    const struct kernel_family *vec;
    const struct flat_ops *flat; /* ref's bits */
    const struct attention_build *attention;
    const struct format_ops *formats;     /* ref's bits */
    const struct kernel_family *quantise; /* AMAX and QUANTISE: ref's bits */
};
/* The best at or under this CPU's level. NULL: there is none. */
const struct cpu_build *cpu_build(void);
/* All that were compiled, the least first; NULL past the end. What needs more than cpu_isa() must not be run. */
const struct cpu_build *cpu_build_at(int i);

#if defined(__x86_64__)
extern const struct kernel_family kernel_vec_avx2, kernel_vec_avx512, kernel_vec_avx512bf16;
extern const struct flat_ops flat_ops_avx2, flat_ops_avx512;
extern const struct format_ops format_ops_avx2, format_ops_avx512;
extern const struct kernel_family kernel_quantise_avx2, kernel_quantise_avx512;
extern const struct attention_build attention_avx2, attention_avx512, attention_avx512bf16;
#elif defined(__aarch64__)
extern const struct kernel_family kernel_vec_neon, kernel_vec_neonbf16;
extern const struct flat_ops flat_ops_neon, flat_ops_neonbf16;
extern const struct format_ops format_ops_neon;
extern const struct kernel_family kernel_quantise_neon;
extern const struct attention_build attention_neon, attention_neonbf16;
#endif

#endif
