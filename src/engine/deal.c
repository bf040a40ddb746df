/* SPDX-License-Identifier: Apache-2.0 */
/* Three steps over prefix sums of the costs.
 *
 *   1. The least bound T under which all layers can be dealt, by halving: whether a bound will do is seen by filling
 *      stages from the front as far as T allows, which leaves the least to the last.
 *   2. Under that bound the place where a stage may end is a range [lo, hi]: hi by filling from the front, lo from the
 *      back.
 *   3. In these ranges the least sum of squares, stage after stage. The best begin of a stage moves only forward with
 *      its end (squares of sums are convex), so ends are solved by halves: the one in the middle first, then each side
 *      with half of the begins (Galil and Park, "Dynamic programming with convexity, concavity and sparsity", 1992).
 *
 * Cost: O(stages x width x log width), where a width is what a range allows; with layers that are alike it is at most
 * the number of stages. Rejected: giving layer after layer to the cheapest stage. It finds the same numbers while all
 * layers cost the same, but knows no order of layers that differ, and leaves stages empty that may not be.
 */
#include "engine/deal.h"

#include "base/err.h"
#include "base/mem.h"

struct deal {
    int n_stages, n_layers;
    const int64_t *sum;  /* [n_layers + 1]: of the layers before */
    int64_t first, last; /* besides layers */
    int64_t bound;
    int *lo, *hi;  /* [n_stages]: where the stage may end */
    int64_t *best; /* by (stage, end - lo): the least sum of squares up to there */
    int *begin;    /* and where that stage begins */
    size_t *at;    /* [n_stages]: the stage's part of these two */
};

int deal_least(int stage, int n_stages) { return stage > 0 && stage + 1 < n_stages; }

bool deal_possible(int n_layers, int n_stages) { return n_layers >= n_stages - 2; }

static int64_t cost_of(const struct deal *d, int stage, int begin, int end)
{
    return d->sum[end] - d->sum[begin] + (stage == 0 ? d->first : 0) + (stage == d->n_stages - 1 ? d->last : 0);
}

/* The last place where a stage that begins at `begin` may end, leaving the others their least; below begin: none. */
static int furthest(const struct deal *d, int stage, int begin)
{
    int after = d->n_stages - 2 - stage; /* stages between this one and the last, a layer for each */
    int lo = begin - 1, hi = d->n_layers - (after > 0 ? after : 0);
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (cost_of(d, stage, begin, mid) <= d->bound) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

/* Fills from the front; whether everything is dealt under the bound. */
static bool fill(struct deal *d)
{
    int at = 0;
    for (int s = 0; s < d->n_stages; s++) {
        int to = furthest(d, s, at);
        if (to < at + deal_least(s, d->n_stages)) return false;
        d->hi[s] = at = to;
    }
    return at == d->n_layers;
}

static void least_bound(struct deal *d)
{
    int64_t lo = d->first > d->last ? d->first : d->last, hi = d->sum[d->n_layers] + d->first + d->last;
    while (lo < hi) {
        d->bound = lo + (hi - lo) / 2;
        if (fill(d)) hi = d->bound;
        else lo = d->bound + 1;
    }
    d->bound = hi;
    CHECK(fill(d), "no way to deal %d layers to %d stages", d->n_layers, d->n_stages);
}

/* hi is filled in; lo, from the back: the first end from which all later stages stay below the bound, and each between
 * the ends has its layer. */
static void find_ranges(struct deal *d)
{
    d->lo[d->n_stages - 1] = d->n_layers;
    for (int s = d->n_stages - 1; s > 0; s--) {
        int begin = d->lo[s] - deal_least(s, d->n_stages);
        while (begin >= s && cost_of(d, s, begin - 1, d->lo[s]) <= d->bound) begin--;
        d->lo[s - 1] = begin;
    }
    size_t n = 0;
    for (int s = 0; s < d->n_stages; s++) {
        CHECK(d->lo[s] <= d->hi[s], "stage %d ends nowhere", s);
        d->at[s] = n;
        n += (size_t)(d->hi[s] - d->lo[s]) + 1;
    }
    d->best = xcalloc(n, sizeof *d->best);
    d->begin = xcalloc(n, sizeof *d->begin);
}

/* The best begin, out of [from, to], of a stage that ends at `end`: the last of equal ones. */
static int solve_end(struct deal *d, int s, int end, int from, int to)
{
    const int64_t *before = d->best + d->at[s - 1];
    int most = end - deal_least(s, d->n_stages), found = -1;
    int64_t least = INT64_MAX;
    if (to < most) most = to;
    for (int b = from; b <= most; b++) {
        int64_t c = cost_of(d, s, b, end);
        if (c > d->bound) continue;
        int64_t squares = before[b - d->lo[s - 1]] + c * c;
        if (squares > least) continue;
        least = squares;
        found = b;
    }
    CHECK(found >= 0, "stage %d cannot end at layer %d", s, end);
    d->best[d->at[s] + (size_t)(end - d->lo[s])] = least;
    d->begin[d->at[s] + (size_t)(end - d->lo[s])] = found;
    return found;
}

static void solve(struct deal *d, int s, int first_end, int last_end, int from, int to)
{
    if (first_end > last_end) return;
    int mid = first_end + (last_end - first_end) / 2, begin = solve_end(d, s, mid, from, to);
    solve(d, s, first_end, mid - 1, from, begin);
    solve(d, s, mid + 1, last_end, begin, to);
}

static void least_squares(struct deal *d, int64_t *n)
{
    for (int end = d->lo[0]; end <= d->hi[0]; end++) {
        int64_t c = cost_of(d, 0, 0, end);
        d->best[end - d->lo[0]] = c * c;
    }
    for (int s = 1; s < d->n_stages; s++) solve(d, s, d->lo[s], d->hi[s], d->lo[s - 1], d->hi[s - 1]);
    for (int s = d->n_stages - 1, end = d->n_layers; s >= 0; s--) {
        int begin = s ? d->begin[d->at[s] + (size_t)(end - d->lo[s])] : 0;
        n[s] = end - begin;
        end = begin;
    }
}

void deal_layers(int64_t *n, int n_stages, const int64_t *cost, int n_layers, int64_t first, int64_t last)
{
    CHECK(deal_possible(n_layers, n_stages), "%d layers on %d stages", n_layers, n_stages);
    int64_t *sum = xcalloc((size_t)n_layers + 1, sizeof *sum);
    for (int i = 0; i < n_layers; i++) sum[i + 1] = sum[i] + cost[i];
    CHECK(sum[n_layers] + first + last <= DEAL_MOST, "costs are too large to deal by");
    struct deal d = {.n_stages = n_stages, .n_layers = n_layers, .sum = sum, .first = first, .last = last};
    d.lo = xcalloc((size_t)n_stages, sizeof *d.lo);
    d.hi = xcalloc((size_t)n_stages, sizeof *d.hi);
    d.at = xcalloc((size_t)n_stages, sizeof *d.at);
    least_bound(&d);
    find_ranges(&d);
    least_squares(&d, n);
    xfree(d.lo);
    xfree(d.hi);
    xfree(d.at);
    xfree(d.best);
    xfree(d.begin);
    xfree(sum);
}
