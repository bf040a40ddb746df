/* SPDX-License-Identifier: Apache-2.0 */
/* Head-tail chunks and the pairs of tokens between them. Everything is closed form: a plan of a thousand ranks asks for
 * it once per rank. Rejected: dealing out tokens or small blocks in turn (balanced too, but blocks of attention would
 * no longer lie next to each other, and masks would cut all of them). */
#include "layout/sequence.h"

#include "layout/region.h"

void context_chunk(int64_t seq, int n, int r, bool tail, int64_t *lo, int64_t *hi)
{
    region_split(seq, tail ? 2 * n - 1 - r : r, 2 * n, lo, hi);
}

int64_t context_rows(int64_t seq, int n, int r, int count)
{
    int64_t rows = 0, lo, hi;
    for (int i = r; i < r + count; i++)
        for (int tail = 0; tail < 2; tail++) {
            context_chunk(seq, n, i, tail, &lo, &hi);
            rows += hi - lo;
        }
    return rows;
}

int64_t context_place(int64_t seq, int n, int r, int64_t i)
{
    int64_t lo, hi;
    context_chunk(seq, n, r, false, &lo, &hi);
    if (i < hi - lo) return lo + i;
    i -= hi - lo;
    context_chunk(seq, n, r, true, &lo, &hi);
    return lo + i;
}

/* Sum over i < n of i + 1 - k0, held between 0 and k1 - k0: pairs of queries before n with keys at or before them. */
static double pairs_before(int64_t n, int64_t k0, int64_t k1)
{
    double keys = (double)(k1 - k0), m = (double)(n - k0);
    if (n <= k0) return 0;
    if (n <= k1) return m * (m + 1) / 2;
    return keys * (keys + 1) / 2 + (double)(n - k1) * keys;
}

double context_pairs(int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool causal, int64_t window)
{
    if (q1 <= q0 || k1 <= k0) return 0;
    if (!causal) return (double)(q1 - q0) * (double)(k1 - k0);
    double seen = pairs_before(q1, k0, k1) - pairs_before(q0, k0, k1);
    if (window > 0) seen -= pairs_before(q1 - window, k0, k1) - pairs_before(q0 - window, k0, k1);
    return seen;
}
