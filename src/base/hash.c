/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c: the one file that knows xxHash.
 *
 * XXH64 reads about ten bytes per nanosecond on one core, several times faster than any disk, so every byte of
 * a checkpoint can be checked on its way in and out. XXH3 is faster still on short keys but its state is half a
 * kilobyte with an alignment of its own, and here the disk is what one waits for.
 */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

_Static_assert(sizeof(XXH64_state_t) <= sizeof(struct hash64), "struct hash64 holds the library's state");

uint64_t hash64(const void *p, size_t n) { return XXH64(n ? p : "", n, 0); }

struct hash128 hash128(const void *p, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(n ? p : "", n);
    return (struct hash128){.hi = h.high64, .lo = h.low64};
}

void hash64_init(struct hash64 *h) { XXH64_reset((XXH64_state_t *)(void *)h->opaque, 0); }

void hash64_add(struct hash64 *h, const void *p, size_t n)
{
    if (n) XXH64_update((XXH64_state_t *)(void *)h->opaque, p, n);
}

uint64_t hash64_value(const struct hash64 *h) { return XXH64_digest((const XXH64_state_t *)(const void *)h->opaque); }

char *hash64_print(char out[17], uint64_t v)
{
    snprintf(out, 17, "%016llx", (unsigned long long)v);
    return out;
}

int hash64_parse(const char *text, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 16) return -1;
    uint64_t v = 0;
    for (int i = 0; i < 16; i++) {
        const char *d = memchr(digits, text[i], 16);
        if (!d) return -1;
        v = v << 4 | (uint64_t)(d - digits);
    }
    *out = v;
    return 0;
}
