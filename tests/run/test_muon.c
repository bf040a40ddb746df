/* SPDX-License-Identifier: Apache-2.0 */
/* Muon in every kind of layout: from the same gradients every rank gets, to the bit, one rank's values and momentum.
 * (tutti verify compares whole steps, where gradients differ in their last bits and Newton-Schulz makes more of that.)
 * And what is planned for it is what it takes. */
#include <stdatomic.h>

#include "config/config.h"
#include "layout/region.h"
#include "optim/muon.h"
#include "run/site.h"
#include "run/toy.h"

enum { STEPS = 3, MOST_KEYS = 16, MOST = 1 << 18 };
static const char *const toy_keys[] = {
    "model.layers=4", "model.hidden=36",     "model.heads=3",         "model.kv_heads=1",     "model.ffn=52",
    "model.vocab=67", "model.seq_len=20",    "run.threads=1",         "comm.timeout_s=60",    "batch.global=8",
    "batch.micro=1",  "optimizer.name=muon", "precision.recipe=fp32", "parallel.dp_shard=-1",
};
#define MIXTRAL "model.family=mixtral", "model.kv_heads=3", "model.moe.experts=4"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.kv_heads=3", "model.moe.experts=6", "model.moe.ffn=14", "model.moe.shared=1",      \
        "model.moe.first_dense=1", "model.mla.q_rank=14", "model.mla.kv_rank=10", "model.mla.nope_dim=7",              \
        "model.mla.rope_dim=6", "model.mla.value_dim=9"

static const struct layout_row {
    int ranks;
    const char *key[MOST_KEYS];
} rows[] = {
    {2, {"parallel.zero=0"}},
    {2, {"parallel.zero=1"}},
    {3, {"parallel.zero=2"}},
    {4, {"parallel.zero=3", "parallel.dp_replicate=2"}},
    {2, {"parallel.zero=1", "parallel.cp=2"}},
    {2, {"parallel.tp=2"}},
    {3, {"parallel.tp=3"}},
    {4, {"parallel.tp=4"}}, /* more ranks than heads */
    {4, {"parallel.tp=2", "parallel.zero=3"}},
    {4, {"parallel.pp=2", "parallel.schedule=dualpipe", "parallel.zero=1"}},
    {2, {MIXTRAL, "parallel.ep=2", "parallel.zero=1"}},
    {4, {MIXTRAL, "parallel.tp=2", "parallel.ep=2", "parallel.zero=1"}},
    {4, {MIXTRAL, "parallel.tp=4", "parallel.ep=2", "parallel.etp=2", "parallel.zero=1"}},
    {4, {MIXTRAL, "parallel.tp=4", "parallel.ep=1", "parallel.etp=2", "parallel.zero=0"}},
    {2, {DEEPSEEK, "parallel.tp=2"}},
    {4, {DEEPSEEK, "parallel.ep=2", "parallel.zero=2"}},
    {2, {"precision.recipe=bf16", "precision.grad=bf16", "parallel.tp=2"}},
};
enum { N_ROWS = (int)(sizeof rows / sizeof *rows) };

static void resolve(struct config *c, struct arena *a, const struct layout_row *row, int ranks, bool keep_layout)
{
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy_keys / sizeof *toy_keys; i++) all[k++] = arena_strdup(a, toy_keys[i]);
    for (int i = 0; row->key[i]; i++)
        if (keep_layout || strncmp(row->key[i], "parallel.", strlen("parallel.")) != 0)
            all[k++] = arena_strdup(a, row->key[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, ranks, &e)) fail_msg("%s", e.text);
}

/* By global element: of one rank, values and momentum. */
struct truth {
    int64_t n;
    float *value, *moment;
};
struct trial {
    struct config c;
    struct truth *want;
    bool writes; /* the one rank */
    _Atomic int wrong, owners, planned;
    _Atomic char covered[MOST]; /* by global element: somebody steps it */
    char first[160];
};

/* Of one element in step t, of size 1: every fifth matrix has a rank of 1. */
static float gradient(const struct param *p, int which, int t, int64_t i)
{
    int64_t row = i / p->n[p->nd - 1], col = i % p->n[p->nd - 1];
    uint64_t stream = (uint64_t)(1000 * t + which);
    if (which % 5 == 2) return rng_normal(1, stream, (uint64_t)row) * rng_normal(2, stream, (uint64_t)col);
    return rng_normal(3, stream, (uint64_t)i);
}

typedef void each_fn(struct trial *t, float *here, float *global, int64_t n);

/* What this rank steps of a parameter's array beside the whole of it. */
static void each_run(struct trial *t, const struct engine *g, int i, int which, float *here, float *global, each_fn *f)
{
    const struct param *p = &g->params.p[i];
    struct array_span x = store_held(&g->store, i, which);
    struct shape shape = shape_of(p->nd, p->n);
    struct region whole = region_whole(&shape),
                  mine = param_rows(p, x.lo / param_row_numel(p), x.n / param_row_numel(p));
    struct region_run run;
    if (!x.n) return;
    for (bool more = region_run_first(&run, &mine, &mine, &whole); more; more = region_run_next(&run))
        f(t, here + run.a, global + run.b, run.n);
}

static void put(struct trial *t, float *here, float *global, int64_t n)
{
    (void)t;
    memcpy(here, global, to_size(n) * sizeof *here);
}

static void compare(struct trial *t, float *here, float *global, int64_t n)
{
    for (int64_t i = global - t->want->value; i >= 0 && i < MOST && n > 0 && i < global + n - t->want->value; i++)
        t->covered[i] = 1;
    if (t->writes) memcpy(global, here, to_size(n) * sizeof *here);
    else if (memcmp(global, here, to_size(n) * sizeof *here)) t->wrong++;
}

static void set_gradients(struct trial *t, struct engine *g, int step)
{
    struct store *s = &g->store;
    for (int i = 0; i < g->params.n; i++) {
        const struct param *p = &g->params.p[i];
        struct array_span x = store_held(s, i, STORE_MASTER);
        float *all = xmalloc(to_size(p->numel) * 4), *here = xmalloc(to_size(x.n) * 4 + 4);
        for (int64_t k = 0; k < p->numel; k++) all[k] = gradient(p, i, step, k);
        each_run(t, g, i, STORE_MASTER, here, all, put);
        void *to = store_state_is_whole(s) ? store_grad_ptr(s, i) : store_piece_grad(s, i);
        if (x.n) g->kernels.flat->cast(NULL, device_here(to), s->grad_dtype, here, DT_F32, x.n);
        xfree(all);
        xfree(here);
    }
}

static void compare_array(struct trial *t, struct engine *g, int which, float *global)
{
    for (int i = 0; i < g->params.n; i++) {
        int before = t->wrong;
        float *here = xmalloc(to_size(store_held(&g->store, i, which).n) * 4 + 4);
        if (!array_covers(&g->store.array[which].row, &g->params.p[i])) continue;
        store_read(&g->store, g->stream, i, which, here);
        each_run(t, g, i, which, here, global + 0, compare);
        global += g->params.p[i].numel;
        if (t->wrong > before && !t->first[0]) snprintf(t->first, sizeof t->first, "%s", g->params.p[i].name);
        xfree(here);
    }
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *t = arg;
    struct site at, paper;
    int rc = site_open(&at, &(struct site_config){.config = &t->c, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    struct optim_config o = config_optim(&t->c);
    engine_init(g);
    for (int step = 0; step < STEPS; step++) {
        set_gradients(t, g, step);
        optim_step(&g->store, g->stream, &o, g->muon, 0.02, step, 0.5);
        stream_sync(g->stream);
    }
    for (int i = 0; i < g->params.n; i++) t->owners += g->params.p[i].owner > 1;
    compare_array(t, g, STORE_MASTER, t->want->value);
    compare_array(t, g, store_find(&g->store, "m"), t->want->moment);
    struct err ignored;
    int n = config_ranks(&t->c);
    if (!site_open(&paper, &(struct site_config){.config = &t->c, .kind = SITE_COUNTS, .rank = at.ranks.rank, .n = n},
                   &ignored)) {
        for (int k = 0; k < MEM_N; k++) t->planned += paper.dev->ledger.peak[k] != at.dev->ledger.peak[k];
        site_close(&paper);
    } else t->planned += 1000;
    rc = engine_status(g, e);
    site_close(&at);
    return rc;
}

static void run(struct trial *t, int ranks)
{
    struct err e = {0};
    struct comm_config cc = config_comm(&t->c);
    if (ranks > 1 ? comm_run_local(ranks, &cc, rank_main, t, &e) : rank_main(NULL, t, &e)) fail_msg("%s", e.text);
}

static void test_layouts_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        struct arena *a = arena_new();
        struct truth want = {.value = xcalloc(2 * MOST, 4)};
        want.moment = want.value + MOST;
        struct trial *t = xcalloc(2, sizeof *t), *one = t, *many = t + 1;
        one->want = many->want = &want;
        one->writes = true;
        resolve(&one->c, a, &rows[i], 1, false);
        resolve(&many->c, a, &rows[i], rows[i].ranks, true);
        run(one, 1);
        run(many, rows[i].ranks);
        assert_int_equal(one->planned, 0);
        for (int k = 0; k < MOST; k++)
            if (one->covered[k] != many->covered[k]) fail_msg("row %d: element %d is stepped by nobody", i, k);
        if (many->wrong) fail_msg("row %d: %d runs differ, first in %s", i, many->wrong, many->first);
        if (many->planned) fail_msg("row %d: %d categories are not as planned", i, many->planned);
        if (many->c.parallel.dp_shard * many->c.parallel.cp > 1) assert_true(many->owners > 0);
        xfree(want.value);
        xfree(t);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_give_the_bits_of_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
