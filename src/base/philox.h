/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h: the generator itself (rng.h says which), for kernels too: C11, C++ and a GPU's compiler. Order: Local. */
#ifndef TUTTI_BASE_PHILOX_H
#define TUTTI_BASE_PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define PHILOX_FN static __host__ __device__ inline
#else
#define PHILOX_FN static inline
#endif

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u /* golden ratio */
#define PHILOX_W1 0xBB67AE85u /* sqrt(3) - 1 */
#define PHILOX_ROUNDS 10

/* rng_block's words. */
PHILOX_FN void philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)PHILOX_M0 * c0, b = (uint64_t)PHILOX_M1 * c2;
        uint32_t next0 = (uint32_t)(b >> 32) ^ c1 ^ k0, next2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = next0;
        c2 = next2;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
