/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread adds into 64-bit bins, four banks of them so that neighbours with one exponent do not wait for each other's
 * store; before a bin can overflow (2^16 squares below 2^48) the banks are emptied into words of 32 bits. Rejected: one long
 * fixed-point number (three adds and a carry per element), and pre-rounding in two passes (an all-reduce more). */
#include "optim/squares.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/device.h"

enum { BANKS = 4, BURST = 1 << 16 };

static void burst(const float *x, int64_t n, int64_t *word)
{
    uint64_t bin[BANKS][SQUARES_BINS];
    memset(bin, 0, sizeof bin);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        uint32_t e = u >> 23 & 255;
        uint64_t m = (u & 0x7fffff) | (e ? 0x800000u : 0); /* times 2^(max(e, 1) - 150) */
        bin[i % BANKS][e] += m * m;
    }
    for (int b = 0; b < BANKS; b++)
        for (int e = 0; e < SQUARES_BINS; e++) {
            word[2 * e] += (int64_t)(bin[b][e] & 0xffffffff);
            word[2 * e + 1] += (int64_t)(bin[b][e] >> 32);
        }
}

struct adding {
    const float *x;
    int64_t n, *word; /* [members][SQUARES_WORDS] */
};

static void member_add(void *arg, int member, int members)
{
    const struct adding *a = arg;
    int64_t lo, hi;
    team_split(a->n, member, members, &lo, &hi);
    for (int64_t i = lo; i < hi; i += BURST)
        burst(a->x + i, hi - i < BURST ? hi - i : BURST, a->word + (int64_t)member * SQUARES_WORDS);
}

void squares_add(struct team *team, const float *x, int64_t n, int64_t word[SQUARES_WORDS])
{
    int members = team_size(team);
    struct adding a = {device_here(x), n, xcalloc((size_t)members * SQUARES_WORDS, sizeof *a.word)};
    team_run(team, member_add, &a);
    for (int i = 0; i < members * SQUARES_WORDS; i++) word[i % SQUARES_WORDS] += a.word[i];
    xfree(a.word);
}

double squares_total(const int64_t word[SQUARES_WORDS])
{
    double sum = 0;
    if (word[2 * 255] || word[2 * 255 + 1]) return INFINITY;
    for (int e = 0; e < 255; e++) {
        int64_t low = word[2 * e] & 0xffffffff, high = word[2 * e + 1] + (word[2 * e] >> 32);
        sum += ldexp((double)high * 4294967296.0 + (double)low, 2 * ((e ? e : 1) - 150));
    }
    return sum;
}
