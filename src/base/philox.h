/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h: a block of Philox-4x32-10, for rng.c and for a GPU's kernels, which cannot call it: one text, C11, C++ and
 * nvcc. Floor 0. Order: Local. */
#ifndef TUTTI_BASE_PHILOX_H
#define TUTTI_BASE_PHILOX_H

#include <stdint.h>

#include "base/fn.h"

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u /* golden ratio */
#define PHILOX_W1 0xBB67AE85u /* sqrt(3) - 1 */
#define PHILOX_ROUNDS 10

TUTTI_FN void philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
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

/* rng_stream_at. */
TUTTI_FN uint64_t philox_stream_at(uint64_t stream, uint64_t step)
{
    uint64_t z = step + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return stream ^ z ^ (z >> 31);
}

#endif
