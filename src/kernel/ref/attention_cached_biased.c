/* SPDX-License-Identifier: Apache-2.0 */
/* New tokens of several sequences against keys and values in pages, scores with a bias by distance or none, not scaled:
 * what a decoder of T5 sees of its own tokens, and of what its encoder made. Keys and values that come with the tokens
 * are stored first; then a row of scores at a time. Runs are few, so a row's run is found by looking at all. */
#include "kernel/buckets.h"
#include "kernel/cache_runs.h"
#include "kernel/ref/attention_rows.h"

enum { Q, K, VALUE, RUNS, CACHE_K, CACHE_V, TABLE };

static bool stores(const struct kernel_call *c) { return c->in[K].p != NULL; }

static void check_runs(const struct kernel_call *c)
{
    int64_t end = 0, pages = c->in[CACHE_K].n[0] / CACHE_PAGE;
    for (int64_t s = 0; s < c->in[RUNS].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        if (!r.n) continue;
        int64_t places = r.past + (stores(c) ? r.n : 0);
        CHECK(r.n > 0 && r.first >= end && r.first + r.n <= c->in[Q].n[0], "run %lld: rows %lld .. %lld of %lld",
              (long long)s, (long long)r.first, (long long)(r.first + r.n - 1), (long long)c->in[Q].n[0]);
        CHECK(r.past >= 0 && places <= cache_places(c), "run %lld: %lld places, the table has room for %lld",
              (long long)s, (long long)places, (long long)cache_places(c));
        for (int64_t i = 0; i * CACHE_PAGE < places; i++)
            CHECK(r.page[i] >= 0 && r.page[i] < pages, "run %lld: page %d is beyond the cache of %lld", (long long)s,
                  r.page[i], (long long)pages);
        end = r.first + r.n;
    }
}

/* The run that row t is of, and the row's place behind the run's first; -1: of none. */
static int64_t row_of(const struct kernel_call *c, int64_t t, struct cache_run *r)
{
    for (int64_t s = 0; s < c->in[RUNS].n[0]; s++) {
        *r = cache_run_of(c, s);
        if (t >= r->first && t < r->first + r->n) return t - r->first;
    }
    return -1;
}

static void store_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct cache_run r;
    int64_t row = row_of(c, t, &r), to = row < 0 ? 0 : cache_row_of(&r, r.past + row);
    for (int64_t a = 0; row >= 0 && a < c->in[K].n[1]; a++) {
        ref_set(&c->in[CACHE_K], to, a, ref_get(&c->in[K], t, a));
        ref_set(&c->in[CACHE_V], to, a, ref_get(&c->in[VALUE], t, a));
    }
}

/* What head h adds to the score of a key so many places before its query. */
static double bias(const struct kernel_call *c, int64_t h, int64_t before)
{
    const struct distances_attrs d = {.most = at_attention_cached_biased(&c->at)->most};
    const struct view *w = &c->in[TABLE];
    return c->n_in > TABLE ? ref_get(w, bucket_of(&d, w->n[0], -before), h) : 0;
}

static void query_row(const struct kernel_call *c, int64_t t, double *p_C)
{
    const struct attention_cached_biased_attrs *at = at_attention_cached_biased(&c->at);
    struct cache_run r;
    int64_t A = at->head_dim, row = row_of(c, t, &r), n = row < 0 ? 0 : r.past + (stores(c) ? row + 1 : 0);
    for (int64_t h = 0; h < at->heads; h++) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++) {
            p_C[j] =
                ref_dot(&c->in[Q], t, h * A, &c->in[CACHE_K], cache_row_of(&r, j), h * A, A) + bias(c, h, n - 1 - j);
            max = fmax(max, p_C[j]);
        }
        for (int64_t j = 0; j < n; j++) sum += p_C[j] = exp(p_C[j] - max);
        for (int64_t a = 0; a < A; a++) {
            double o = 0;
            for (int64_t j = 0; j < n; j++) o += p_C[j] * ref_get(&c->in[CACHE_V], cache_row_of(&r, j), h * A + a);
            ref_set(&c->out[0], t, h * A + a, n ? o / sum : 0);
        }
    }
}

void attention_cached_biased_fwd_ref(const struct kernel_call *c)
{
    check_runs(c);
    if (stores(c)) ref_each_row(c, c->in[Q].n[0], 0, store_row);
    ref_each_row(c, c->in[Q].n[0], cache_places(c), query_row);
}

size_t attention_cached_biased_scratch_ref(const struct kernel_call *c, int n_threads)
{
    return ref_scratch(cache_places(c), n_threads);
}
