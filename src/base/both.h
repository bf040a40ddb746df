/* SPDX-License-Identifier: Apache-2.0 */
/* both.h: functions of headers that a GPU's kernels share with the host: what is computed is written once. Such a
 * header is C11 and C++17, and has nothing that a C++ compiler refuses (compound literals). Order: Local. */
#ifndef TUTTI_BASE_BOTH_H
#define TUTTI_BASE_BOTH_H

#ifndef TUTTI_FN
#if defined(__CUDACC__)
#define TUTTI_FN static __host__ __device__ inline
#else
#define TUTTI_FN static inline __attribute__((unused))
#endif
#endif

#endif
