/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds until enough of them are undisturbed, then the best; see rate.h. */
#include "kernel/cpu/rate.h"

#include <stdbool.h>

#include "base/mem.h"

enum { FEWEST = 7, MOST = 21, ENOUGH_UNDISTURBED = 3 };
static const double ROUND_S = 5e-3, PATIENCE_S = 1, UNDISTURBED = 0.95, CLOCKS_AGREE = 1.05;

struct found {
    double undisturbed, busy; /* the best of each kind, operations per second of all members */
    double wall_s;            /* of all rounds */
    int n_undisturbed;
    struct rate_part *sum; /* per member */
};

static double longest_s(const struct rate_part *p, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s = p[i].wall_s > s ? p[i].wall_s : s;
    return s;
}

static void take(struct found *f, const struct rate_part *p, int n)
{
    double by_wall = 0, by_thread = 0;
    bool undisturbed = true, sane = true;
    for (int i = 0; i < n; i++) {
        undisturbed &= p[i].thread_s >= UNDISTURBED * p[i].wall_s;
        sane &= p[i].thread_s > 0 && p[i].thread_s <= CLOCKS_AGREE * p[i].wall_s; /* a clock of coarse ticks is not */
        by_wall += p[i].operations / p[i].wall_s;
        if (sane) by_thread += p[i].operations / p[i].thread_s;
        f->sum[i].operations += p[i].operations;
        f->sum[i].wall_s += p[i].wall_s;
        f->sum[i].thread_s += p[i].thread_s;
    }
    f->wall_s += longest_s(p, n);
    f->n_undisturbed += undisturbed;
    if (undisturbed && by_wall > f->undisturbed) f->undisturbed = by_wall;
    if (sane && by_thread > f->busy) f->busy = by_thread;
}

static double best(const struct found *f, int n)
{
    double rate = 0;
    if (f->n_undisturbed >= ENOUGH_UNDISTURBED) return f->undisturbed;
    if (f->busy > 0 || f->undisturbed > 0) return f->busy > f->undisturbed ? f->busy : f->undisturbed;
    for (int i = 0; i < n; i++) {
        double s =
            f->sum[i].thread_s > 0 && f->sum[i].thread_s < f->sum[i].wall_s ? f->sum[i].thread_s : f->sum[i].wall_s;
        rate += f->sum[i].operations / s;
    }
    return rate;
}

/* So many that each member computes for ROUND_S. Grows by 2 to 100 at a time, since a round may take long on a busy
 * machine. */
static int64_t enough_repeats(rate_round_fn *round, void *arg, struct rate_part *p, int n)
{
    int64_t repeats = 1;
    for (double spent_s = 0; spent_s < 3 * PATIENCE_S && repeats < (int64_t)1 << 40;) { /* a clock may stand still */
        double shortest_s = ROUND_S;
        round(arg, repeats, p);
        spent_s += longest_s(p, n);
        for (int i = 0; i < n; i++) shortest_s = p[i].thread_s < shortest_s ? p[i].thread_s : shortest_s;
        if (shortest_s >= ROUND_S) break;
        double grow = shortest_s > 0 ? 1.2 * ROUND_S / shortest_s : 2;
        repeats = (int64_t)((double)repeats * (grow < 2 ? 2 : grow > 100 ? 100 : grow));
    }
    return repeats;
}

double rate_measure(rate_round_fn *round, void *arg, int n)
{
    struct rate_part *p = xcalloc((size_t)n, sizeof *p);
    struct found f = {.sum = xcalloc((size_t)n, sizeof *f.sum)};
    int64_t repeats = enough_repeats(round, arg, p, n);
    for (int i = 0; i < MOST; i++) {
        if (i >= FEWEST && f.n_undisturbed >= ENOUGH_UNDISTURBED) break;
        if (i >= ENOUGH_UNDISTURBED && f.wall_s > PATIENCE_S) break;
        round(arg, repeats, p);
        take(&f, p, n);
    }
    double rate = best(&f, n);
    xfree(f.sum);
    xfree(p);
    return rate;
}
