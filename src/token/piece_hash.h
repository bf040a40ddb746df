/* SPDX-License-Identifier: Apache-2.0 */
/* piece_hash.h: hashing short pieces of text for tables in memory: multiply and fold, eight bytes a step. Never stored.
 * Includes: libc only. Order: Local.
 */
#ifndef TUTTI_TOKEN_PIECE_HASH_H
#define TUTTI_TOKEN_PIECE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t piece_mix(uint64_t h, uint64_t v)
{
    __uint128_t m = (__uint128_t)(h ^ v ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t piece_hash(const unsigned char *p, size_t n)
{
    uint64_t h = n, v;
    while (n >= 8) {
        memcpy(&v, p, 8);
        h = piece_mix(h, v);
        p += 8;
        n -= 8;
    }
    v = 0;
    memcpy(&v, p, n);
    return piece_mix(h, v);
}

#endif
