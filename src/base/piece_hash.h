/* SPDX-License-Identifier: Apache-2.0 */
/* piece_hash.h: hashing short pieces of text for tables in memory: multiply and fold, eight bytes a step. Never stored.
 * Includes: libc only. Order: Local.
 */
#ifndef TUTTI_BASE_PIECE_HASH_H
#define TUTTI_BASE_PIECE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t piece_mix(uint64_t h, uint64_t v)
{
    __uint128_t m = (__uint128_t)(h ^ v ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* The bytes p[0..n), n <= 8, as a number: with n, no two texts have the same. No loop, and no copy of n bytes. */
static inline uint64_t piece_few(const unsigned char *p, size_t n)
{
    uint32_t low, high;
    if (n < 4) return n ? (uint64_t)p[0] | (uint64_t)p[n / 2] << 8 | (uint64_t)p[n - 1] << 16 : 0;
    memcpy(&low, p, 4);
    memcpy(&high, p + n - 4, 4);
    return (uint64_t)low | (uint64_t)high << 32;
}

/* With a seed that nobody outside knows (the address of what is hashed for, say), nobody can write texts that fall
 * together. */
static inline uint64_t piece_hash_from(uint64_t seed, const unsigned char *p, size_t n)
{
    uint64_t h = seed ^ n, v;
    if (n <= 8) return piece_mix(h, piece_few(p, n));
    for (size_t at = 0; at + 8 < n; at += 8) {
        memcpy(&v, p + at, 8);
        h = piece_mix(h, v);
    }
    memcpy(&v, p + n - 8, 8); /* may have bytes that were in the one before */
    return piece_mix(h, v);
}

/* Whether two texts of n bytes are the same; quick where they are short. */
static inline bool piece_same(const unsigned char *a, const unsigned char *b, size_t n)
{
    uint64_t x, y;
    if (n <= 8) return piece_few(a, n) == piece_few(b, n);
    for (size_t at = 0; at + 8 < n; at += 8) {
        memcpy(&x, a + at, 8);
        memcpy(&y, b + at, 8);
        if (x != y) return false;
    }
    memcpy(&x, a + n - 8, 8); /* may have bytes that were in the one before */
    memcpy(&y, b + n - 8, 8);
    return x == y;
}

static inline uint64_t piece_hash(const unsigned char *p, size_t n) { return piece_hash_from(0, p, n); }

#endif
