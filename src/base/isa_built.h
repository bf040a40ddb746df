/* SPDX-License-Identifier: Apache-2.0 */
/* isa_built.h: which levels of kernel/cpuid.h have kernels in this program: all that the architecture has, or, built
 * for one machine alone (cmake/isa.cmake), those that it runs. cpu_isa() stops at the highest one, and a table of
 * kernels writes the rows of what may be left out as IF_<name>(row,). Includes nothing. */
#ifndef TUTTI_BASE_ISA_BUILT_H
#define TUTTI_BASE_ISA_BUILT_H

/* The number of the highest level (enum isa). The first above ISA_REF is always there. */
#ifndef TUTTI_ISA_BUILT
#define TUTTI_ISA_BUILT 4
#endif

#if TUTTI_ISA_BUILT >= 2
#define IF_AVX512(...) __VA_ARGS__
#define IF_NEONBF16(...) __VA_ARGS__
#else
#define IF_AVX512(...)
#define IF_NEONBF16(...)
#endif
#if TUTTI_ISA_BUILT >= 3
#define IF_AVX512BF16(...) __VA_ARGS__
#else
#define IF_AVX512BF16(...)
#endif
#if TUTTI_ISA_BUILT >= 4
#define IF_AMX(...) __VA_ARGS__
#else
#define IF_AMX(...)
#endif

#endif
