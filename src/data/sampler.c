/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c: the arithmetic of sample order.
 *
 * Why a tree: rounding every source's share on its own can make one source's count fall when k grows, which would hand
 * out a sample twice; with two sources it cannot (what does not go left goes right), and a tree is nothing but
 * choices between two. Shares are 64-bit fixed point, so the counts are integers computed exactly, the same on
 * every machine. Rejected: largest deficit (needs the history), independent draws (correct only on average).
 *
 * Where weights change, a node has at the beginning of each phase the samples that have passed it and the exact sum of
 * their shares; within a phase the sum grows by the phase's share a sample. A share is between 0 and 1, so the rounded
 * sum grows by 0 or 1 with every sample, across phases too: nothing is handed out twice, nothing skipped. Finding the
 * phase is a binary search. Rejected: shares that move within a phase (their sums over the nodes below are no
 * polynomials).
 */
#include "data/sampler.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SHARE_BITS = 62 };

struct blend_node {
    uint64_t share;        /* of the left side */
    int64_t passed;        /* samples through the node before the phase */
    unsigned __int128 sum; /* of their shares */
};

static struct blend_node *node(const struct blend *b, int phase, int middle)
{
    return &b->nodes[(size_t)phase * (size_t)b->n + (size_t)middle];
}

static int middle_of(int lo, int hi) { return lo + (hi - lo) / 2; }

/* Of the first m samples through a node, the shares of the left side, and how many samples these are: the nearest
 * number. */
static unsigned __int128 sum_at(const struct blend_node *x, int64_t m)
{
    return x->sum + (unsigned __int128)(m - x->passed) * x->share;
}

static int64_t go_left(const struct blend_node *x, int64_t m)
{
    unsigned __int128 half = (unsigned __int128)1 << (SHARE_BITS - 1);
    return (int64_t)((sum_at(x, m) + half) >> SHARE_BITS);
}

static double sum_of(const double *w, int lo, int hi)
{
    double sum = 0;
    for (int i = lo; i < hi; i++) sum += w[i];
    return sum;
}

/* The left side's share. Where a side has next to nothing, the difference of two sums has lost it: then its own weights
 * are added up, and its share is counted from its own end. */
static uint64_t share_of(const double *below, const double *weights, int lo, int mid, int hi)
{
    double all = below[hi] - below[lo], left = below[mid] - below[lo], share = all > 0 ? left / all : 0;
    if (share > 0x1p-32 && share < 1 - 0x1p-32) return (uint64_t)ldexp(share, SHARE_BITS);
    double own_left = sum_of(weights, lo, mid), own_right = sum_of(weights, mid, hi), own = own_left + own_right;
    if (!(own > 0)) return 0;
    if (own_left < own_right) return (uint64_t)ldexp(own_left / own, SHARE_BITS);
    return ((uint64_t)1 << SHARE_BITS) - (uint64_t)ldexp(own_right / own, SHARE_BITS);
}

/* The nodes of a phase that begins when m samples have passed the one of lo .. hi - 1; below[i]: weights before i. */
static void begin_phase(struct blend *b, int phase, const double *below, const double *weights, int lo, int hi,
                        int64_t m)
{
    if (hi - lo < 2) return;
    int mid = middle_of(lo, hi);
    struct blend_node *x = node(b, phase, mid);
    *x = (struct blend_node){.share = share_of(below, weights, lo, mid, hi), .passed = m};
    int64_t to_left = 0;
    if (phase) {
        x->sum = sum_at(node(b, phase - 1, mid), m);
        to_left = go_left(node(b, phase - 1, mid), m);
    }
    begin_phase(b, phase, below, weights, lo, mid, to_left);
    begin_phase(b, phase, below, weights, mid, hi, m - to_left);
}

void blend_init(struct blend *b, const double *weights, int n, const int64_t *from, int n_phases)
{
    CHECK(n > 0 && n_phases > 0 && from[0] == 0, "a blend of nothing");
    *b = (struct blend){.n = n, .n_phases = n_phases};
    b->from = xmalloc((size_t)n_phases * sizeof *b->from);
    b->nodes = xcalloc((size_t)n_phases * (size_t)n, sizeof *b->nodes);
    double *below = xmalloc(((size_t)n + 1) * sizeof *below);
    for (int p = 0; p < n_phases; p++) {
        CHECK(!p || from[p] > from[p - 1], "phase %d from %lld", p, (long long)from[p]);
        b->from[p] = from[p];
        below[0] = 0;
        for (int i = 0; i < n; i++) {
            double w = weights[(size_t)p * (size_t)n + (size_t)i];
            CHECK(w >= 0 && isfinite(w), "weight %d is %g", i, w);
            below[i + 1] = below[i] + w;
        }
        CHECK(below[n] > 0, "all weights are zero");
        begin_phase(b, p, below, weights + (size_t)p * (size_t)n, 0, n, from[p]);
    }
    xfree(below);
}

void blend_fini(struct blend *b)
{
    xfree(b->from);
    xfree(b->nodes);
    *b = (struct blend){0};
}

/* The last phase that began before k, or with it. */
static int phase_of(const struct blend *b, int64_t k)
{
    int lo = 0, hi = b->n_phases;
    while (hi - lo > 1) {
        int mid = middle_of(lo, hi);
        if (b->from[mid] <= k) lo = mid;
        else hi = mid;
    }
    return lo;
}

int blend_pick(const struct blend *b, int64_t k, int64_t *r)
{
    CHECK(k >= 0, "sample %lld", (long long)k);
    int lo = 0, hi = b->n, phase = phase_of(b, k);
    while (hi - lo > 1) {
        int mid = middle_of(lo, hi);
        const struct blend_node *x = node(b, phase, mid);
        int64_t before = go_left(x, k);
        if (go_left(x, k + 1) > before) {
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

int64_t blend_count(const struct blend *b, int64_t k, int source)
{
    CHECK(k >= 0 && source >= 0 && source < b->n, "source %d of %d, sample %lld", source, b->n, (long long)k);
    int lo = 0, hi = b->n, phase = phase_of(b, k);
    while (hi - lo > 1) {
        int mid = middle_of(lo, hi);
        int64_t left = go_left(node(b, phase, mid), k);
        if (source < mid) hi = mid;
        else lo = mid;
        k = source < mid ? left : k - left;
    }
    return k;
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
