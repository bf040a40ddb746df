/* SPDX-License-Identifier: Apache-2.0 */
/* rng.c: Philox-4x32-10 and what is derived from it.
 *
 * Idea: a block of four words is a ten-round keyed bijection of its own index, so any number of any stream can
 * be had without the ones before it. Cost: about 20 multiplications for four words.
 *
 * Normals use Box-Muller with logarithm and cosine written out below from additions, multiplications, one
 * division and one square root, all of which IEEE 754 fixes to the bit. libm's differ between versions and CPUs
 * in the last place, and then initial weights would depend on the machine. Error below 1e-11, far under a
 * float's rounding.
 *
 * A shuffle is a Feistel network (Luby and Rackoff 1988) on the smallest even number of bits that holds n, and
 * walks its cycle until it lands below n (Black and Rogaway 2002): at most four times on average, no table.
 */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/philox.h"

void rng_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]) { philox(seed, stream, block, out); }

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    rng_block(seed, stream, index / 4, w);
    return w[index % 4];
}

static uint64_t join(uint32_t lo, uint32_t hi) { return (uint64_t)hi << 32 | lo; }

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    rng_block(seed, stream, index, w);
    return join(w[0], w[1]);
}

#define TWO_TO_MINUS_53 0x1p-53

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rng_u64(seed, stream, index) >> 11) * TWO_TO_MINUS_53;
}

/* ln(u) for a normal u in (0, 1]: u = m * 2^e with m in [sqrt(1/2), sqrt(2)), and the series of
 * 2 artanh((m-1)/(m+1)), whose argument is at most 0.172. */
static double log_exact(double u)
{
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int e = (int)(bits >> 52) - 1022;
    bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u; /* m in [1/2, 1) */
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m < 0.70710678118654752) {
        m += m;
        e--;
    }
    double s = (m - 1) / (m + 1), z = s * s;
    double series =
        1 + z * (1.0 / 3 +
                 z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15)))))));
    return 2 * s * series + e * 0.69314718055994531;
}

/* cos(2 pi v) for v in [0, 1): the nearest quarter turn, then Taylor series on an eighth of a turn. */
static double cos_turns(double v)
{
    int quarter = (int)(4 * v + 0.5);
    double x = 6.283185307179586 * (v - 0.25 * quarter), z = x * x;
    double c =
        1 - z * (1.0 / 2 -
                 z * (1.0 / 24 - z * (1.0 / 720 - z * (1.0 / 40320 - z * (1.0 / 3628800 - z * (1.0 / 479001600))))));
    double s =
        x * (1 - z * (1.0 / 6 -
                      z * (1.0 / 120 -
                           z * (1.0 / 5040 - z * (1.0 / 362880 - z * (1.0 / 39916800 - z * (1.0 / 6227020800)))))));
    const double by_quarter[4] = {c, -s, -c, s};
    return by_quarter[quarter & 3];
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    rng_block(seed, stream, index, w);
    double u = ((double)(join(w[0], w[1]) >> 11) + 1) * TWO_TO_MINUS_53; /* (0, 1]: its logarithm is finite */
    double v = (double)(join(w[2], w[3]) >> 11) * TWO_TO_MINUS_53;
    return (float)(sqrt(-2 * log_exact(u)) * cos_turns(v));
}

#define FEISTEL_ROUNDS 6

uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i)
{
    CHECK(i < n, "element %llu of a shuffle of %llu", (unsigned long long)i, (unsigned long long)n);
    int half = 1; /* bits in each half: 2^(2*half) >= n */
    while (half < 32 && (n - 1) >> (2 * half)) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 1; round <= FEISTEL_ROUNDS; round++) {
            /* each round is a random function of its own: a stream apart for every round */
            uint64_t mixed = rng_u64(seed, stream + round * 0x9E3779B97F4A7C15u, right) & mask;
            uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint64_t rng_stream(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) h = (h ^ *p) * 0x100000001B3u;
    return h;
}

/* The finaliser of SplitMix64 spreads the step over all bits. */
uint64_t rng_stream_at(uint64_t stream, uint64_t step)
{
    uint64_t z = step + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return stream ^ z ^ (z >> 31);
}
