/* SPDX-License-Identifier: Apache-2.0 */
/* fn.h: how a function is declared that a header defines for the host and for a GPU's kernels. C11, C++ and nvcc.
 * Includes: nothing of the house. Order: Local. */
#ifndef TUTTI_BASE_FN_H
#define TUTTI_BASE_FN_H

#if defined(__CUDACC__)
#define TUTTI_FN static __host__ __device__ inline
#else
#define TUTTI_FN static inline __attribute__((unused))
#endif

#endif
