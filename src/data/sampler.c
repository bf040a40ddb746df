/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c: the arithmetic of sample order.
 *
 * Why a tree: rounding every source's share on its own can make one source's count fall when k grows, which would hand
 * out a sample twice; with two sources it cannot (what does not go left goes right), and a tree is nothing but
 * choices between two. Shares are 64-bit fixed point, so the counts are integers computed exactly, the same on
 * every machine. Rejected: largest deficit (needs the history), independent draws (correct only on average).
 */
#include "data/sampler.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SHARE_BITS = 62 };

void blend_init(struct blend *b, const double *weights, int n)
{
    CHECK(n > 0, "a blend of nothing");
    *b = (struct blend){.below = xmalloc(((size_t)n + 1) * sizeof *b->below), .n = n};
    b->below[0] = 0;
    for (int i = 0; i < n; i++) {
        CHECK(weights[i] >= 0 && isfinite(weights[i]), "weight %d is %g", i, weights[i]);
        b->below[i + 1] = b->below[i] + weights[i];
    }
    CHECK(b->below[n] > 0, "all weights are zero");
}

void blend_fini(struct blend *b)
{
    xfree(b->below);
    *b = (struct blend){0};
}

/* Of the first m samples through a node, how many go left: m * share rounded to the nearest. */
static int64_t go_left(int64_t m, uint64_t share)
{
    unsigned __int128 half = (unsigned __int128)1 << (SHARE_BITS - 1);
    return (int64_t)(((unsigned __int128)m * share + half) >> SHARE_BITS);
}

int blend_pick(const struct blend *b, int64_t k, int64_t *r)
{
    CHECK(k >= 0, "sample %lld", (long long)k);
    int lo = 0, hi = b->n;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        double all = b->below[hi] - b->below[lo], left = b->below[mid] - b->below[lo];
        uint64_t share = all > 0 ? (uint64_t)ldexp(left / all, SHARE_BITS) : 0;
        int64_t before = go_left(k, share);
        if (go_left(k + 1, share) > before) {
            hi = mid;
            k = before;
        } else {
            lo = mid;
            k -= before;
        }
    }
    *r = k;
    return lo;
}

int64_t order_pick(uint64_t seed, int source, bool shuffled, int64_t n, int64_t r, int64_t *epoch)
{
    int64_t pass = r / n, i = r % n;
    if (epoch) *epoch = pass;
    if (!shuffled) return i;
    char name[64];
    snprintf(name, sizeof name, "data/order/%d/%lld", source, (long long)pass);
    return (int64_t)rng_permute(seed, rng_stream(name), (uint64_t)n, (uint64_t)i);
}
