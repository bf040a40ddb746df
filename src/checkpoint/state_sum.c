/* SPDX-License-Identifier: Apache-2.0 */
/* state_sum.c: two multiplications per element, which do not wait for each other from element to element: about 2 ns
 * for three of them, so a core sums fp32 about as fast as it reads memory. A checksum of bytes in a fixed order was
 * rejected: a rank that holds columns of a matrix would have to send them to be put in order first.
 */
#include "checkpoint/state_sum.h"

#include <string.h>

static inline uint64_t mixed(uint64_t z)
{
    const uint64_t k = 0xd6e8feb86659fd93u;
    z = (z ^ z >> 32) * k;
    z = (z ^ z >> 32) * k;
    return z ^ z >> 32;
}

/* n elements of that width at p, the first of which is number `at` of the tensor. */
static uint64_t run_sum(const unsigned char *p, size_t width, uint64_t at, int64_t n)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    uint64_t sum = 0, place = at * golden;
#define SUM(type)                                                                                                      \
    for (int64_t i = 0; i < n; i++, place += golden) {                                                                 \
        type bits;                                                                                                     \
        memcpy(&bits, p + (size_t)i * sizeof bits, sizeof bits);                                                       \
        sum += mixed(place + bits);                                                                                    \
    }
    switch (width) {
    case 1: SUM(uint8_t) break;
    case 2: SUM(uint16_t) break;
    case 4: SUM(uint32_t) break;
    default: SUM(uint64_t) break;
    }
#undef SUM
    return sum;
}

uint64_t state_sum(const struct shape *whole, const struct region *box, enum dtype dtype, int64_t lo, int64_t n,
                   const void *p)
{
    struct region all = region_whole(whole), part[REGION_STRETCH];
    const unsigned char *from = p;
    size_t width = dtype_bytes(dtype);
    uint64_t sum = 0;
    int parts = n ? region_stretch(box, lo, n, part) : 0;
    for (int i = 0; i < parts; i++) {
        struct region_run run;
        for (bool more = region_run_first(&run, &part[i], &all, &part[i]); more; more = region_run_next(&run))
            sum += run_sum(from + (size_t)run.b * width, width, (uint64_t)run.a, run.n);
        from += (size_t)region_volume(&part[i]) * width;
    }
    return sum;
}
