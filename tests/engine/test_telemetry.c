/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: long threads */
/* What a look at rounding tells (engine/telemetry.h): the figures of a plain recount of each product's operands, the
 * same in every layout, and of a run that is the same to the bit with and without looks. */
#include "toy.h"

#include "config/config.h"
#include "machine.h"
#include "site/site.h"

enum { LOOK = 2, MOST = 4096, PARAMS = 64, MAX_LAYERS = 3, MAX_RANKS = 4 };

/* ---- a recount ---- */
struct recount {
    const void *q[MOST]; /* what QUANTISE put out, and what it did, until a product takes it */
    struct rounded_counts did[MOST];
    int n;
    struct rounded_counts sum[PARAMS][RECIPE_OPERANDS];
};

static double value(const struct view *v, int64_t r, int64_t c)
{
    const char *p = device_here((void *)(uintptr_t)v->p);
    int64_t at = r * v->stride + c;
    return v->dtype == DT_BF16 ? (double)bf16_to_f32(((const bf16 *)(const void *)p)[at])
                               : (double)((const float *)(const void *)p)[at];
}

static struct rounded_counts count(const struct kernel_call *c)
{
    const struct quantise_attrs *at = at_quantise(&c->at);
    const struct format_info f = format_info(at->format);
    const struct view *d = &c->out[1];
    struct rounded_counts n = {0};
    double scale = d->nd == 1 ? value(d, 0, 0) : 1;
    for (int64_t r = 0; r < c->in[0].n[0]; r++)
        for (int64_t k = 0; k < c->in[0].n[1]; k++) {
            double x = value(&c->in[0], r, k), one = d->nd == 2 ? value(d, r / at->rows, k / at->cols) : scale,
                   became = value(&c->out[0], r, k) * one;
            double over = at->scaling == SCALING_TENSOR ? f.max + ldexp(0.5, ilogb(f.max) - f.fraction) : INFINITY;
            rounded_add(&n, &(struct rounded_counts){1, fabs(x) / one > over, x != 0 && became == 0,
                                                     (became - x) * (became - x), x * x, (float)fabs(x)});
        }
    return n;
}

static void take(struct recount *w, const void *q, int param, enum recipe_operand o)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (w->q[i] == q) {
            rounded_add(&w->sum[param][o], &w->did[i]);
            w->q[i] = NULL;
            return;
        }
}

/* Operands are those of the products, wherever the counts of the engine put them. */
static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct recount *w = ctx;
    const struct tape *t = p->tape;
    if (c->step->step != LOOK - 1 || i->again) return;
    if (c->op == OP_QUANTISE) {
        assert_true(w->n < MOST);
        w->q[w->n] = c->out[0].p;
        w->did[w->n++] = count(c);
    }
    if (c->op != OP_LINEAR_SCALED) return;
    int param = (tape_tensor(t, tape_tensor(t, t->nodes[i->node].in[1])->root)->slot - SLOT_PARAM) / 2;
    assert_true(param < PARAMS);
    if (c->phase != KERNEL_BWD_IN) take(w, c->in[0].p, param, OPERAND_X);
    if (c->phase != KERNEL_BWD_W) take(w, c->in[1].p, param, OPERAND_W);
    if (c->phase != KERNEL_FWD) take(w, c->dout[0].p, param, OPERAND_DY);
}

static void near(double got, double want, double by, const char *what, const struct telemetry_row *r)
{
    if (!(fabs(got - want) <= by * fabs(want)))
        fail_msg("%s of layer %d %s %s: %.9g, counted again %.9g", what, r->layer, r->product, r->operand, got, want);
}

static enum recipe_operand operand_of(const struct telemetry_row *r)
{
    for (int o = 0; o < RECIPE_OPERANDS; o++)
        if (!strcmp(r->operand, recipe_operand_name((enum recipe_operand)o))) return (enum recipe_operand)o;
    fail_msg("no operand %s", r->operand);
    return OPERAND_X;
}

static void test_recount(void **state)
{
    (void)state;
    static const struct {
        enum recipe recipe;
        bool again;
    } of[] = {{RECIPE_FP8_DELAYED, false}, {RECIPE_FP8_DELAYED, true}, {RECIPE_FP8_BLOCK, false}, {RECIPE_MXFP8, true}};
    for (size_t v = 0; v < sizeof of / sizeof *of; v++) {
        struct engine_config c = toy_config(v % 2 ? MODEL_GPT2 : MODEL_LLAMA, DT_BF16);
        struct recount *w = xcalloc(1, sizeof *w);
        struct telemetry_row *rows;
        struct engine_report r;
        struct toy t;
        double cut = 0;
        c.precision = (struct recipe_config){.recipe = of[v].recipe, .history = 4, .look_every = LOOK};
        if (of[v].again) c.recompute.again = AGAIN_ALL;
        toy_open(&t, &c);
        t.g->watch = look;
        t.g->watch_ctx = w;
        for (int s = 0; s < LOOK; s++) engine_step(t.g, &t.batch, s, 5e-2, &r);
        int n = telemetry_rows(t.g, &rows);
        assert_int_equal(n, 2 /* layers */ * 4 /* products */ * RECIPE_OPERANDS);
        for (int i = 0; i < n; i++) {
            const struct rounded_counts *x = &w->sum[rows[i].param][operand_of(&rows[i])];
            assert_true(x->elements > 0 && rows[i].amax == (double)x->amax);
            near(rows[i].saturated, x->saturated / x->elements, 1e-12, "saturated", &rows[i]);
            near(rows[i].flushed, x->flushed / x->elements, 1e-12, "flushed", &rows[i]);
            near(rows[i].error, sqrt(x->moved / x->squares), 1e-5, "error", &rows[i]);
            assert_true(rows[i].layer >= 0 && rows[i].layer < 2 && rows[i].error > 1e-3);
            cut += x->saturated;
        }
        if (of[v].recipe == RECIPE_FP8_DELAYED) assert_true(cut > 0); /* weights grew since the step before */
        xfree(rows);
        xfree(w);
        toy_close(&t);
    }
}

/* ---- nothing changes ---- */
static float *trained(int64_t every, double *loss)
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_BF16);
    struct engine_report r;
    struct toy t;
    c.precision = (struct recipe_config){.recipe = RECIPE_NVFP4, .history = 4, .look_every = every};
    c.model.layers = 3;
    toy_open(&t, &c);
    for (int s = 0; s < 3; s++) engine_step(t.g, &t.batch, s, 1e-2, &r);
    *loss = r.loss;
    float *v = xcalloc(to_size(t.g->params.numel) + 1, sizeof *v);
    for (int i = 0; i < t.g->params.n; i++)
        store_read(&t.g->store, t.g->stream, i, STORE_MASTER, v + t.g->params.p[i].offset);
    v[t.g->params.numel] = (float)t.g->params.numel;
    toy_close(&t);
    return v;
}

static void test_same_bits(void **state)
{
    (void)state;
    double a, b;
    float *with = trained(1, &a), *without = trained(0, &b);
    int64_t n = 0;
    while (n == 0 || with[n] != (float)n) n++;
    assert_true(n > 1000 && a == b && !memcmp(with, without, to_size(n + 1) * sizeof *with));
    xfree(with);
    xfree(without);
}

/* ---- layouts ---- */
struct job {
    struct config c;
    int32_t *tokens;
    struct telemetry_row row[PARAMS * RECIPE_OPERANDS]; /* of the rank that is 0 in the world */
    char product[PARAMS * RECIPE_OPERANDS][64];
    int n;
    uint8_t fallen[MAX_LAYERS][MAX_RANKS];
};

static void keep_rows(struct job *j, struct engine *g, struct comm *world, struct err *e)
{
    struct telemetry_row *rows;
    int n = telemetry_rows(g, &rows);
    (void)e;
    for (int i = 0; (!world || comm_rank(world) == 0) && i < n; i++) {
        snprintf(j->product[j->n], sizeof j->product[0], "%s", rows[i].product);
        j->row[j->n++] = rows[i];
    }
    xfree(rows);
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    engine_init(g);
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    for (int s = 0; s < LOOK; s++) engine_step(g, &b, s, 1e-2, &report);
    keep_rows(j, g, world, e);
    for (int l = 0; l < MAX_LAYERS && l < g->fallback.n; l++)
        j->fallen[l][world ? comm_rank(world) : 0] = g->fallback.fallen[l];
    site_close(&at);
    return rc;
}

static void run(struct job *j, struct arena *a, const char *keys, int ranks)
{
    struct err e = {0};
    memset(j, 0, sizeof *j);
    j->tokens = machine_toy(&j->c, a,
                            arena_printf(a,
                                         "batch.global=8 batch.micro=2 model.layers=3 precision.recipe=fp8-delayed "
                                         "precision.telemetry=%d %s",
                                         LOOK, keys),
                            ranks);
    struct comm_config cc = config_comm(&j->c);
    int rc = ranks > 1 ? comm_run_local(ranks, &cc, rank_main, j, &e) : rank_main(NULL, j, &e);
    if (rc) fail_msg("'%s': %s", keys, e.text);
    xfree(j->tokens);
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
        double by; /* of sums that are rounded in another order */
    } ways[] = {
        {"parallel.dp_shard=2 parallel.zero=3", 2, 0},
        {"parallel.dp_replicate=2", 2, 0},
        {"parallel.pp=2", 2, 0},
        {"parallel.pp=3 parallel.schedule=zbh1", 3, 0},
        {"memory.recompute=full", 1, 0},
        {"batch.micro=3", 1, 0},       /* with sequences that do not exist, */
        {"parallel.dp_shard=3", 3, 0}, /* or none but such in a microbatch */
        {"parallel.tp=3 parallel.dp_shard=1", 3, 0.04},
        {"parallel.tp=3 parallel.dp_shard=1 parallel.sequence_parallel=true", 3, 0.04},
        {"parallel.cp=2 parallel.dp_shard=1", 2, 0.04},
    };
    struct arena *a = arena_new();
    static const char calm[] =
        "precision.recipe=fp8-current optimizer.lr=1e-5 precision.layers={\"layers.*\":fp8-current} ";
    struct job *kept = xcalloc(1, sizeof *kept), *slow = xcalloc(1, sizeof *slow), *other = xcalloc(1, sizeof *other);
    run(kept, a, "", 1);
    run(slow, a, calm, 1);
    double some = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        const struct job *one = ways[w].by > 0 ? slow : kept;
        run(other, a, arena_printf(a, "%s%s", ways[w].by > 0 ? calm : "", ways[w].keys), ways[w].ranks);
        assert_int_equal(one->n, 3 * 4 * RECIPE_OPERANDS);
        assert_int_equal(other->n, one->n);
        for (int i = 0; i < one->n; i++) {
            const struct telemetry_row *x = &one->row[i], *y = &other->row[i];
            double by = ways[w].by;
            bool same =
                !strcmp(one->product[i], other->product[i]) && !strcmp(x->operand, y->operand) && x->layer == y->layer;
            if (!same || fabs(x->saturated - y->saturated) > by / 4 || fabs(x->flushed - y->flushed) > by / 4 ||
                fabs(x->error - y->error) > (by ? 5 * by : 1e-12) * x->error ||
                fabs(x->amax - y->amax) > 5 * by * x->amax)
                fail_msg("'%s': layer %d %s %s: amax %g, saturated %g, flushed %g, error %g; one rank has layer %d %s "
                         "%s %g, %g, %g, %g",
                         ways[w].keys, y->layer, other->product[i], y->operand, y->amax, y->saturated, y->flushed,
                         y->error, x->layer, one->product[i], x->operand, x->amax, x->saturated, x->flushed, x->error);
            some += x->saturated;
        }
    }
    assert_true(some > 0);
    xfree(kept);
    xfree(slow);
    xfree(other);
    arena_free(a);
}

/* Experts: told together by layer, the same wherever they are, and the worst of them beside. */
static void test_experts(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
        double by;
    } ways[] = {
        {"parallel.ep=2", 2, 0},
        {"parallel.ep=4", 4, 0},
        {"parallel.dp_shard=2", 2, 0},
        {"parallel.ep=2 moe.buffer=0.3 moe.buffer_least=3", 2, 0},
        {"memory.recompute=full", 1, 0},
        {"parallel.tp=2 parallel.dp_shard=1", 2, 0.04},
        {"parallel.tp=2 parallel.dp_shard=1 parallel.etp=1 parallel.ep=2", 2, 0.04},
    };
    static const char moe[] =
        "model.family=mixtral model.moe.experts=4 model.moe.top_k=2 model.heads=4 model.kv_heads=4 "
        "model.hidden=32 model.moe.ffn=64 optimizer.lr=1e-5 precision.fallback.after=0";
    struct arena *a = arena_new();
    struct job *one = xcalloc(1, sizeof *one), *other = xcalloc(1, sizeof *other);
    run(one, a, moe, 1);
    int told = 0;
    for (int i = 0; i < one->n; i++) {
        bool experts = !strncmp(one->product[i], "moe.experts.*.", 14);
        assert_true(one->row[i].error > 1e-3 && one->row[i].amax > 0);
        assert_true(experts ? one->row[i].worst_error >= one->row[i].error
                            : one->row[i].worst_error == one->row[i].error);
        told += experts;
    }
    assert_int_equal(told, 3 /* layers */ * 2 /* products */ * RECIPE_OPERANDS);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(other, a, arena_printf(a, "%s %s", moe, ways[w].keys), ways[w].ranks);
        assert_int_equal(other->n, one->n);
        for (int i = 0; i < one->n; i++) {
            const struct telemetry_row *x = &one->row[i], *y = &other->row[i];
            double by = ways[w].by;
            if (strcmp(one->product[i], other->product[i]) || strcmp(x->operand, y->operand) || x->layer != y->layer ||
                fabs(x->error - y->error) > (by ? 5 * by : 1e-9) * x->error ||
                fabs(x->amax - y->amax) > 5 * by * x->amax)
                fail_msg("'%s': layer %d %s %s: amax %g, error %g; one rank has layer %d %s %s %g, %g", ways[w].keys,
                         y->layer, other->product[i], y->operand, y->amax, y->error, x->layer, one->product[i],
                         x->operand, x->amax, x->error);
        }
    }
    xfree(one);
    xfree(other);
    arena_free(a);
}

/* The layer whose operands are moved most, and it alone, falls back on every rank of every layout. */
static void test_fallback(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
    } ways[] = {{"", 1},
                {"parallel.dp_shard=2 parallel.zero=3", 2},
                {"parallel.pp=3 parallel.schedule=zbh1", 3},
                {"parallel.dp_shard=2 parallel.pp=2", 4}};
    struct arena *a = arena_new();
    struct job *j = xcalloc(1, sizeof *j);
    double error[MAX_LAYERS] = {0}, next = 0;
    int most = 0;
    run(j, a, "", 1);
    for (int i = 0; i < j->n; i++) error[j->row[i].layer] = fmax(error[j->row[i].layer], j->row[i].error);
    for (int l = 0; l < MAX_LAYERS; l++)
        if (error[l] > error[most]) most = l;
    for (int l = 0; l < MAX_LAYERS; l++)
        if (l != most) next = fmax(next, error[l]);
    assert_true(error[most] > next);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(j, a,
            arena_printf(a,
                         "precision.fallback.after=1 precision.fallback.saturated=1 precision.fallback.error=%.9g %s",
                         (error[most] + next) / 2, ways[w].keys),
            ways[w].ranks);
        for (int l = 0; l < MAX_LAYERS; l++)
            for (int r = 0; r < ways[w].ranks; r++)
                if (j->fallen[l][r] != (l == most))
                    fail_msg("'%s': layer %d on rank %d: %d", ways[w].keys, l, r, l == most);
    }
    xfree(j);
    arena_free(a);
}

/* ---- a layer that fell back ---- */
/* Three steps: of a model whose layers [0, n) fell back before, or were never to be rounded. */
static float *layers_in_bf16(enum model_family family, enum recipe recipe, int n, bool fell, bool again, double *loss)
{
    struct engine_config c = toy_config(family, DT_BF16);
    const struct recipe_choice choice[] = {{"layers.0.*", RECIPE_BF16}, {"layers.1.*", RECIPE_BF16}};
    struct engine_report r;
    struct toy t;
    c.precision = (struct recipe_config){.recipe = recipe, .history = 4, .choice = choice, .n_choices = fell ? 0 : n};
    c.precision.fallback.after = fell ? 1 : 0;
    if (again) c.recompute.again = AGAIN_ALL;
    if (recipe == RECIPE_NVFP4) c.model.layers = 3;
    toy_open(&t, &c);
    for (int l = 0; fell && l < n; l++) t.g->fallback.fallen[l] = 1;
    for (int s = 0; s < 3; s++) engine_step(t.g, &t.batch, s, 1e-2, &r);
    engine_evaluate(t.g, &t.batch, &r);
    *loss = r.loss;
    float *v = xcalloc(to_size(t.g->params.numel) + 1, sizeof *v);
    for (int i = 0; i < t.g->params.n; i++)
        store_read(&t.g->store, t.g->stream, i, STORE_MASTER, v + t.g->params.p[i].offset);
    v[t.g->params.numel] = (float)t.g->params.numel;
    toy_close(&t);
    return v;
}

static void test_fallen(void **state)
{
    (void)state;
    static const enum model_family families[] = {MODEL_LLAMA, MODEL_GPT2, MODEL_DEEPSEEK};
    static const enum recipe recipes[] = {RECIPE_FP8_DELAYED, RECIPE_MXFP8, RECIPE_NVFP4};
    for (int v = 0; v < 12; v++) {
        const enum model_family family = families[v % 3];
        const enum recipe recipe = recipes[v / 4];
        double a, b, c;
        int n = 1 + v % 2;
        float *fell = layers_in_bf16(family, recipe, n, true, v % 4 == 3, &a),
              *never = layers_in_bf16(family, recipe, n, false, v % 4 == 3, &b),
              *all = layers_in_bf16(family, recipe, 0, true, v % 4 == 3, &c);
        int64_t at = 0;
        while (at == 0 || fell[at] != (float)at) at++;
        if (a != b || memcmp(fell, never, to_size(at + 1) * sizeof *fell))
            fail_msg("family %d, %s, %d layers: %.9g, wanted %.9g", (int)family, recipe_row(recipe)->name, n, a, b);
        assert_true(at > 1000 && a != c && memcmp(fell, all, to_size(at + 1) * sizeof *fell));
        xfree(fell);
        xfree(never);
        xfree(all);
    }
}

/* A look counts the numbers of its step, not those of the looks before. */
static void test_each_look_begins_anew(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct job j = {0};
    struct site at;
    struct err e = {0};
    struct engine_report report;
    double elements[2] = {0};
    j.tokens =
        machine_toy(&j.c, a,
                    "batch.global=4 batch.micro=2 model.layers=3 precision.recipe=fp8-current precision.telemetry=1",
                    1);
    if (site_open(&at, &(struct site_config){.config = &j.c, .kind = SITE_WORKS}, &e)) fail_msg("%s", e.text);
    engine_init(at.engine);
    struct engine_batch b = machine_part(&j.c, j.tokens, at.ranks.part);
    for (int s = 0; s < 2; s++) {
        engine_step(at.engine, &b, s, 1e-2, &report);
        for (int i = 0; i < at.engine->params.n * RECIPE_OPERANDS; i++)
            elements[s] += at.engine->telemetry.counts[i].elements;
    }
    if (!(elements[0] > 0 && elements[0] == elements[1]))
        fail_msg("%.0f elements, then %.0f", elements[0], elements[1]);
    site_close(&at);
    xfree(j.tokens);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recount),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_fallback),
                                       cmocka_unit_test(test_fallen),
                                       cmocka_unit_test(test_each_look_begins_anew)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
