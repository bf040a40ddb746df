/* SPDX-License-Identifier: Apache-2.0 */
/* The table of generators and what each asks of its numbers. A row is data, so that --help, errors and tests walk the
 * same list. */
#include <string.h>

#include "schedule/generator.h"

static struct schedule *gen_onestage(int n_ranks, int n_microbatches, int n_chunks)
{
    CHECK(n_ranks == 1 && n_chunks == 1, "onestage on %d ranks", n_ranks);
    return schedule_new_onestage(n_microbatches, false);
}

static const struct generator {
    const char *name, *doc;
    schedule_gen_fn *make;
    schedule_gen_rounds_fn *make_rounds; /* instead, where microbatches go in rounds */
    int min_chunks, max_chunks;          /* stages per rank; the default is the least */
    int max_ranks;                       /* 0: no limit of its own */
    int min_rounds;                      /* microbatches are at least this many times the ranks */
    bool even;                           /* ranks and microbatches are even: two directions */
} generators[] = {
    {.name = "onestage",
     .doc = "no pipeline: gradient accumulation",
     .make = gen_onestage,
     .min_chunks = 1,
     .max_chunks = 1,
     .max_ranks = 1},
    {.name = "naive",
     .doc = "one microbatch at a time: the model-parallel baseline",
     .make = schedule_gen_naive,
     .min_chunks = 1,
     .max_chunks = 64},
    {.name = "gpipe",
     .doc = "all forwards, then all backwards (Huang et al. 2019)",
     .make = schedule_gen_gpipe,
     .min_chunks = 1,
     .max_chunks = 64},
    {.name = "1f1b",
     .doc = "one forward, one backward (PipeDream-flush)",
     .make = schedule_gen_1f1b,
     .min_chunks = 1,
     .max_chunks = 1},
    {.name = "interleaved",
     .doc = "1f1b with several chunks per rank (Narayanan et al. 2021)",
     .make_rounds = schedule_gen_interleaved,
     .min_chunks = 2,
     .max_chunks = 64},
    {.name = "zbh1",
     .doc = "weight gradients fill the end, memory of 1f1b (Qi et al. 2023)",
     .make = schedule_gen_zbh1,
     .min_chunks = 1,
     .max_chunks = 1},
    {.name = "zbh2",
     .doc = "no bubble between steps, twice the memory of 1f1b",
     .make = schedule_gen_zbh2,
     .min_chunks = 1,
     .max_chunks = 1},
    {.name = "zbv",
     .doc = "two chunks in a V, memory of 1f1b, even over ranks",
     .make = schedule_gen_zbv,
     .min_chunks = 2,
     .max_chunks = 2},
    {.name = "dualpipe",
     .doc = "two directions, every stage placed twice (DeepSeek-V3)",
     .make = schedule_gen_dualpipe,
     .min_chunks = 1,
     .max_chunks = 1,
     .min_rounds = 2,
     .even = true},
    {.name = "dualpipev",
     .doc = "one half of dualpipe, folded into a V",
     .make = schedule_gen_dualpipev,
     .min_chunks = 2,
     .max_chunks = 2,
     .min_rounds = 2},
};
enum { N_GENERATORS = (int)(sizeof generators / sizeof generators[0]) };

const char *schedule_kind_name(int i) { return i >= 0 && i < N_GENERATORS ? generators[i].name : NULL; }

const char *schedule_kind_doc(int i) { return i >= 0 && i < N_GENERATORS ? generators[i].doc : NULL; }

static int check_numbers(const struct generator *g, int p, int m, int v, int round, struct err *e)
{
    if (p < 1 || m < 1)
        return err_set(e, ERR_REQUEST, "%s: %d stages, %d microbatches: choose 1 or more", g->name, p, m);
    if (g->max_ranks && p > g->max_ranks)
        return err_set(e, ERR_REQUEST, "%s runs on %d rank, not %d; choose 1f1b", g->name, g->max_ranks, p);
    if (v < g->min_chunks || v > g->max_chunks)
        return err_set(e, ERR_REQUEST, "%s: %d chunks per rank; choose %d%s", g->name, v,
                       v < g->min_chunks ? g->min_chunks : g->max_chunks,
                       g->min_chunks < g->max_chunks ? " (2 to 64)" : "");
    if (g->even && p % 2)
        return err_set(e, ERR_REQUEST, "%s: %d stages; the two directions need an even number: choose %d or %d",
                       g->name, p, p > 1 ? p - 1 : 2, p + 1);
    if (m < g->min_rounds * p)
        return err_set(e, ERR_REQUEST, "%s: %d microbatches on %d stages; choose %d or more", g->name, m, p,
                       g->min_rounds * p);
    if (g->even && m % 2)
        return err_set(e, ERR_REQUEST, "%s: %d microbatches; the two directions need an even number: choose %d or %d",
                       g->name, m, m - 1, m + 1);
    if (round && !g->make_rounds)
        return err_set(e, ERR_REQUEST,
                       "%s: rounds of %d microbatches; it has no rounds, only interleaved has; choose 0", g->name,
                       round);
    if (round < 0 || round > m)
        return err_set(e, ERR_REQUEST, "%s: rounds of %d microbatches, and there are %d; choose 1 to %d", g->name,
                       round, m, m);
    return p > SCHEDULE_MAX_RANKS ? schedule_limits(p, p, m, e) : schedule_limits(p, p * v, m, e);
}

int schedule_generate(struct schedule **out, const char *kind, int n_ranks, int n_microbatches, int n_chunks, int round,
                      struct err *e)
{
    const char *names[N_GENERATORS];
    *out = NULL;
    for (int i = 0; i < N_GENERATORS; i++) {
        const struct generator *g = &generators[i];
        names[i] = g->name;
        if (strcmp(g->name, kind)) continue;
        int v = n_chunks ? n_chunks : g->min_chunks;
        int rc = check_numbers(g, n_ranks, n_microbatches, v, round, e),
            most = n_ranks < n_microbatches ? n_ranks : n_microbatches;
        if (!rc && g->make_rounds) *out = g->make_rounds(n_ranks, n_microbatches, v, round ? round : most);
        else if (!rc) *out = g->make(n_ranks, n_microbatches, v);
        return rc;
    }
    const char *near = str_nearest(kind, names, N_GENERATORS);
    struct str all = {0};
    for (int i = 0; i < N_GENERATORS; i++) str_printf(&all, "%s%s", i ? ", " : "", names[i]);
    int rc = err_set(e, ERR_REQUEST, "no schedule '%s'%s%s%s; there are %s", kind, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "", str_text(&all));
    str_free(&all);
    return rc;
}
