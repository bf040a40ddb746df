/* SPDX-License-Identifier: Apache-2.0 */
/* cache_runs.h: which rows of a call are whose, and where the keys and values of each sequence lie: ATTENTION_CACHED's
 * fourth input (and CONV_CACHED's, SCAN_CACHED's), i32 [sequences, RUN_PAGES + pages].
 *
 * A row is a run: `n` new tokens of one sequence, rows [first, first + n) of q, k and v, after `past` tokens that are
 * in the cache. Place i of the sequence is row page[i / size] * size + i % size of both caches, where `size` is the
 * places of a page, the same in every row. What a sequence has beside keys and values, its states, is row `state` of
 * their caches. So a sequence grows by pages, and sequences may read the same ones. Runs stand in the order of their
 * rows and do not overlap; n is 0 for those that are not in use; rows of no run (there to fill up a call) put out zeros
 * and store nothing. Includes: kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CACHE_RUNS_H
#define TUTTI_KERNEL_CACHE_RUNS_H

#include "base/err.h"
#include "kernel/kernel.h"

enum { RUN_FIRST, RUN_ROWS, RUN_PAST, RUN_STATE, RUN_BOTH, RUN_PAGES };
enum { CACHE_PAGE = 16 }; /* rows of a page */

struct cache_run {
    int64_t first, n, past, state;
    bool both; /* its rows see each other in both directions: a prompt, where attention has prefixes */
    const int32_t *page;
};

static inline struct cache_run cache_run_of(const struct kernel_call *c, int64_t s)
{
    const int32_t *row = (const int32_t *)c->in[3].p + s * c->in[3].stride;
    return (struct cache_run){row[RUN_FIRST], row[RUN_ROWS],      row[RUN_PAST],
                              row[RUN_STATE], row[RUN_BOTH] != 0, row + RUN_PAGES};
}
/* Places that row t of a run sees: those before this one. */
static inline int64_t cache_run_end(const struct cache_run *r, int64_t t) { return r->past + (r->both ? r->n : t + 1); }
/* The most places that a sequence can have. */
static inline int64_t cache_places(const struct kernel_call *c) { return (c->in[3].n[1] - RUN_PAGES) * CACHE_PAGE; }
static inline int64_t cache_row_of(const struct cache_run *r, int64_t place)
{
    return r->page[place / CACHE_PAGE] * (int64_t)CACHE_PAGE + place % CACHE_PAGE;
}

/* A table that does not fit the call is a bug of whoever made it: rows, and of caches of states a row for each. */
static inline void cache_states_check(const struct kernel_call *c)
{
    int64_t end = 0;
    for (int64_t s = 0; s < c->in[3].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        if (!r.n) continue;
        CHECK(r.n > 0 && r.first >= end && r.first + r.n <= c->in[0].n[0], "run %lld: rows %lld .. %lld of %lld",
              (long long)s, (long long)r.first, (long long)(r.first + r.n - 1), (long long)c->in[0].n[0]);
        CHECK(r.past >= 0 && r.state >= 0 && r.state < c->in[4].n[0], "run %lld: row %lld of a cache of %lld",
              (long long)s, (long long)r.state, (long long)c->in[4].n[0]);
        for (int64_t t = 0; t < s; t++)
            CHECK(!cache_run_of(c, t).n || cache_run_of(c, t).state != r.state, "runs %lld and %lld share row %lld",
                  (long long)t, (long long)s, (long long)r.state);
        end = r.first + r.n;
    }
}
/* The same of keys and values. */
static inline void cache_runs_check(const struct kernel_call *c)
{
    int64_t end = 0, pages = c->in[4].n[0] / CACHE_PAGE;
    for (int64_t s = 0; s < c->in[3].n[0]; s++) {
        struct cache_run r = cache_run_of(c, s);
        if (!r.n) continue;
        CHECK(r.n > 0 && r.first >= end && r.first + r.n <= c->in[0].n[0], "run %lld: rows %lld .. %lld of %lld",
              (long long)s, (long long)r.first, (long long)(r.first + r.n - 1), (long long)c->in[0].n[0]);
        CHECK(r.past >= 0 && r.past + r.n <= cache_places(c), "run %lld: %lld places, the table has room for %lld",
              (long long)s, (long long)(r.past + r.n), (long long)cache_places(c));
        for (int64_t i = 0; i * CACHE_PAGE < r.past + r.n; i++)
            CHECK(r.page[i] >= 0 && r.page[i] < pages, "run %lld: page %d is beyond the cache of %lld", (long long)s,
                  r.page[i], (long long)pages);
        end = r.first + r.n;
    }
}

#endif
