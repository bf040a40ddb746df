/* SPDX-License-Identifier: Apache-2.0 */
/* cpuid.h: which instruction sets this CPU offers, in one ordered scale per architecture: each level includes those
 * below it.
 *
 * Kernels ask once per call (the probe runs once per process) and take their best path at or under the level.
 * The environment variable TUTTI_ISA (ref; avx2, avx512, avx512-bf16, amx; neon, neon-bf16) lowers the level, never
 * raises it: tests walk every path on one machine with it. Includes libc only. Order: Local; any thread.
 */
#ifndef TUTTI_KERNEL_CPUID_H
#define TUTTI_KERNEL_CPUID_H

enum isa {
    ISA_REF, /* whatever the compiler assumes */
#if defined(__aarch64__)
    ISA_NEON,      /* vectors of 128 bits: every Armv8-A that runs Linux */
    ISA_NEON_BF16, /* and the bf16 dot product and conversions (Armv8.6-A, optional from 8.2) */
#elif defined(__x86_64__)
    ISA_AVX2,        /* AVX2, FMA, F16C */
    ISA_AVX512,      /* AVX-512 F, BW, DQ, VL, CD */
    ISA_AVX512_BF16, /* and the bf16 dot product and conversions */
    ISA_AMX,         /* and tiles for bf16; the kernel has granted their use to this process */
#endif
    ISA_N
};
enum isa cpu_isa(void);
/* The highest level that this program has kernels of (isa_built.h): cpu_isa() is never above it. */
enum isa isa_built(void);
/* What TUTTI_ISA says and no processor of this architecture has; NULL: it says nothing, or a level. */
const char *isa_unknown(void);
const char *isa_name(enum isa isa); /* "ref", "avx2", ... as TUTTI_ISA takes them */

#endif
