/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: checksums of bytes of 64 bits (XXH64, seed 0: the value `xxhsum -H1` prints) and names for contents of 128
 * (XXH3, seed 0: `xxhsum -H2`).
 *
 * For telling whether a file is what was written, at memory speed; no defence against an adversary. The library
 * (xxHash) is named in hash.c only.
 * Includes: libc only. Order: Local.
 */
#ifndef TUTTI_BASE_HASH_H
#define TUTTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *p, size_t n);

/* Wide enough to stand for the bytes themselves: of 10^10 different texts some two agree with a chance of 10^-19. */
struct hash128 {
    uint64_t hi, lo;
};
struct hash128 hash128(const void *p, size_t n);

/* The same value over bytes that come in pieces. */
struct hash64 {
    uint64_t opaque[11];
};
void hash64_init(struct hash64 *h);
void hash64_add(struct hash64 *h, const void *p, size_t n);
uint64_t hash64_value(const struct hash64 *h); /* of all bytes added so far; more may follow */

/* 16 lower-case hexadecimal digits and back: 0, or -1 when text is anything else. */
char *hash64_print(char out[17], uint64_t v);
int hash64_parse(const char *text, uint64_t *out);

#endif
