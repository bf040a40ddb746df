/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers in every kind of layout: from the same gradients every rank gets, to the bit, one rank's values and state.
 * (tutti verify compares whole steps, where gradients differ in their last bits and Newton-Schulz makes more of that.)
 * And what is planned for it is what it takes. */
#include <stdatomic.h>

#include "config/config.h"
#include "kernel/flat.h"
#include "layout/region.h"
#include "optim/muon.h"
#include "site/site.h"
#include "toy.h"

enum { STEPS = 3, MOST_KEYS = 20, MOST = 1 << 19 };
static const char *const toy_keys[] = {
    "model.layers=4", "model.hidden=36",     "model.heads=3",         "model.kv_heads=1",     "model.ffn=52",
    "model.vocab=67", "model.seq_len=20",    "run.threads=1",         "comm.timeout_s=60",    "batch.global=8",
    "batch.micro=1",  "optimizer.name=muon", "precision.recipe=fp32", "parallel.dp_shard=-1", "optimizer.ema=0.9",
};
#define MIXTRAL "model.family=mixtral", "model.kv_heads=3", "model.moe.experts=4"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.kv_heads=3", "model.moe.experts=6", "model.moe.ffn=14", "model.moe.shared=1",      \
        "model.moe.first_dense=1", "model.mla.q_rank=14", "model.mla.kv_rank=10", "model.mla.nope_dim=7",              \
        "model.mla.rope_dim=6", "model.mla.value_dim=9"

/* Filters of convolutions have two dims and are no matrices. */
#define SPACES                                                                                                         \
    "model.family=mamba2", "model.ssm.heads=6", "model.ssm.groups=3", "model.ssm.head_dim=5", "model.ssm.state=7"

/* Weights of bf16 alone, rounded by chance. */
#define CHANCE "precision.recipe=bf16", "precision.master=none"

/* Moments in blocks of 16; rows of o are cut by heads. */
#define BLOCKS                                                                                                         \
    "optimizer.name=adamw", "optimizer.block=16", "model.hidden=64", "model.heads=4", "model.kv_heads=2", "model.ffn=64"

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
    {4, {CHANCE, "optimizer.name=adamw", "parallel.tp=2", "parallel.zero=3"}},
    {4, {CHANCE, "optimizer.name=adamw", "parallel.tp=4", "precision.grad=bf16"}},
    {3, {CHANCE, "optimizer.name=adamw", "parallel.zero=1"}},
    {4, {CHANCE, "parallel.tp=2", "parallel.zero=1"}},
    {4,
     {CHANCE, MIXTRAL, "optimizer.name=lion", "parallel.tp=4", "parallel.ep=2", "parallel.etp=2", "parallel.zero=1"}},
    {4, {BLOCKS, "optimizer.moments=8bit", "parallel.tp=2", "parallel.zero=3"}},
    {3,
     {BLOCKS, "optimizer.moments=fp8", "parallel.zero=1", "parallel.pp=3", "precision.recipe=bf16",
      "precision.grad=bf16"}},
    {4,
     {BLOCKS, "optimizer.moments=8bit", MIXTRAL, "model.kv_heads=4", "parallel.tp=4", "parallel.ep=2", "parallel.etp=2",
      "parallel.zero=1"}},
    {3, {"optimizer.name=adamw", "optimizer.moments=8bit", "optimizer.block=16", "parallel.zero=2"}}, /* 36 columns */
    {4, {BLOCKS, CHANCE, "optimizer.moments=fp8", "parallel.tp=2", "parallel.zero=2"}},
    {4, {"optimizer.name=adafactor", "parallel.tp=2", "parallel.zero=3"}},
    {4,
     {"optimizer.name=adafactor", "optimizer.adafactor.relative=true", "parallel.tp=4", "precision.recipe=bf16",
      "precision.grad=bf16"}},
    {4, {"optimizer.name=adafactor", "parallel.pp=2", "parallel.schedule=dualpipe", "parallel.zero=1", CHANCE}},
    {4, {"optimizer.name=adafactor", MIXTRAL, "parallel.tp=4", "parallel.ep=2", "parallel.etp=2", "parallel.zero=1"}},
    {4, {"optimizer.name=adafactor", MIXTRAL, "parallel.tp=2", "parallel.ep=2", "parallel.zero=2"}},
    {4, {CHANCE, "optimizer.name=sgd", "parallel.pp=2", "parallel.zero=2"}},
    {3, {SPACES, "optimizer.name=adafactor", "parallel.zero=1"}},
    {4, {SPACES, "optimizer.name=adafactor", "parallel.tp=2", "parallel.zero=2", "optimizer.vectors.name=lion"}},
    {4,
     {SPACES, CHANCE, "optimizer.name=lion", "optimizer.vectors.name=adafactor", "parallel.tp=2", "parallel.zero=3"}},
    {3, {SPACES, "optimizer.vectors.name=adafactor", "parallel.tp=3", "precision.grad=bf16", "precision.recipe=bf16"}},
    {2, {SPACES, "optimizer.name=adamw", "optimizer.moments=8bit", "optimizer.block=16", "parallel.zero=1"}},
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
    float *value[STORE_MAX_ARRAYS]; /* by array of the store: [MOST] */
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
    const struct array_row *row = &store_array(&g->store, which)->row;
    if (!x.n) return;
    struct shape shape = array_shape(row, p);
    struct region one = param_rows(p, 0, 1), each = array_box(row, p, &one), whole = region_whole(&shape);
    one = param_rows(p, x.lo / region_volume(&each), x.n / region_volume(&each));
    struct region mine = array_box(row, p, &one);
    struct region_run run;
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
    const float *masters = t->want->value[STORE_MASTER];
    for (int64_t i = global - masters; i >= 0 && i < MOST && i < global + n - masters; i++) t->covered[i] = 1;
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
        if (x.n) flat_cast_here(&g->kernels, NULL, device_here(to), s->grad_dtype, here, DT_F32, x.n);
        xfree(all);
        xfree(here);
    }
}

static void compare_array(struct trial *t, struct engine *g, int which, float *global)
{
    if (g->params.numel > MOST) fail_msg("%lld parameters", (long long)g->params.numel);
    for (int i = 0; i < g->params.n; i++) {
        int before = t->wrong;
        if (!array_covers(&g->store.array[which].row, &g->params.p[i])) continue;
        float *here = xmalloc(to_size(store_held(&g->store, i, which).n) * 4 + 4);
        store_read(&g->store, g->stream, i, which, here);
        each_run(t, g, i, which, here, global + 0, compare);
        global += g->params.p[i].numel;
        if (t->wrong > before && !t->first[0])
            snprintf(t->first, sizeof t->first, "%s of %s", g->store.array[which].row.name, g->params.p[i].name);
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
        optim_step(&g->store, g->stream, &o, &g->tools, 0.02, step, 0.5);
        stream_sync(g->stream);
    }
    for (int i = 0; i < g->params.n; i++) t->owners += g->params.p[i].owner > 1;
    for (int k = STORE_MASTER; k < g->store.n_arrays; k++)
        if (g->store.array[k].row.saved) compare_array(t, g, k, t->want->value[k]);
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
        struct truth want;
        for (int k = 0; k < STORE_MAX_ARRAYS; k++) want.value[k] = xcalloc(MOST, 4);
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
        if (many->c.optimizer.name == OPTIM_MUON && many->c.parallel.dp_shard * many->c.parallel.cp > 1)
            assert_true(many->owners > 0);
        for (int k = 0; k < STORE_MAX_ARRAYS; k++) xfree(want.value[k]);
        xfree(t);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_give_the_bits_of_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
