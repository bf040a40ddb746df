/* SPDX-License-Identifier: Apache-2.0 */
/* suite: whole untouchable */
/* suite: devices untouchable */
/* suite: long addresses */
/* Pipelines beside one rank: every schedule, with every zero level inside, uneven layers, tied embeddings, dropout,
 * recomputation; ranks are threads. And what a pipeline holds: planned is allocated, and nothing is left waiting. */
#include "toy.h"
#include "sanitized.h"

#include "comm/comm.h"

enum { MAX_LAYERS = 12 };

struct layout_row {
    const char *kind;
    int pp, chunks, dp, zero, n_microbatches; /* of one data-parallel part */
    const int64_t *layers;
    int n_layers;
    int round;
    bool exact; /* the bits of one rank: sums keep their order */
};

#define ROW(k, ranks, v, d, z, m) .kind = k, .pp = ranks, .chunks = v, .dp = d, .zero = z, .n_microbatches = m

struct trial {
    struct engine_config c; /* of one rank of the layout */
    struct layout_row y;
    const struct toy *data;
    float *grad, *value; /* by the global table */
    double loss, norm, eval;
};

static int64_t offset_of(const struct param_table *t, int param)
{
    int64_t at = 0;
    for (int i = 0; i < param; i++) at += t->p[i].numel;
    return at;
}

/* The pieces that this rank steps, into arrays of the global shapes. */
static void keep(struct trial *t, const struct engine *g, bool values)
{
    const struct store *s = &g->store;
    for (int i = 0; i < g->params.n; i++) {
        const struct piece *q = &s->units.piece[i];
        const float *from = device_here(values ? store_piece_ptr(s, i, STORE_MASTER) : store_piece_grad(s, i));
        if (g->params.p[i].counted && q->n)
            memcpy((values ? t->value : t->grad) + offset_of(&g->params, i) + q->lo, from, (size_t)q->n * 4);
    }
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *t = arg;
    struct engine_config c = t->c;
    struct device *d;
    struct engine *g = NULL;
    struct comm *shard = NULL, *pipe = NULL, *model = NULL, *shards = NULL, *pipes = NULL;
    struct mesh mesh;
    int degrees[AXIS_N], rc, rank = world ? comm_rank(world) : 0;
    for (int a = 0; a < AXIS_N; a++) degrees[a] = 1;
    degrees[AXIS_PP] = t->y.pp;
    degrees[AXIS_DP_SHARD] = t->y.dp;
    degrees[AXIS_EDP] = -1;
    if ((rc = mesh_init(&mesh, t->y.pp * t->y.dp, degrees, e))) return rc;
    struct mesh_axis along = mesh_axis(&mesh, AXIS_DP_SHARD), over = mesh_axis(&mesh, AXIS_PP);
    if (t->y.dp > 1 && (rc = comm_split(&shard, world, &along, 1, e))) return rc;
    if (t->y.pp > 1 && (rc = comm_split(&pipe, world, &over, 1, e))) return rc;
    if (shard && (rc = comm_split(&shards, world, &along, 1, e))) return rc;
    if (pipe && (rc = comm_split(&pipes, world, &over, 1, e))) return rc;
    if (world && (rc = comm_split(&model, world, (struct mesh_axis[]){over, along}, 2, e))) return rc;
    c.par = par_at(&mesh, rank);
    c.shard = shard;
    c.world = world;
    c.axis[AXIS_PP] = pipe;
    c.host = (struct host_groups){.shard = shards, .pp = pipes};
    c.model_group = model;
    c.zero = t->y.zero;
    c.rank = rank;
    c.pipeline = (struct pipeline_config){.kind = t->y.kind,
                                          .chunks = t->y.chunks,
                                          .round = t->y.round,
                                          .layers = t->y.layers,
                                          .n_layers = t->y.n_layers};
    c.n_microbatches = t->y.n_microbatches;
    if ((rc = device_cpu_new(&d, 1, e))) return rc;
    rc = engine_new(&g, &c, d, e);
    if (!rc) {
        int part = mesh_coord(&mesh, AXIS_DP_SHARD, rank);
        int64_t n = c.n_microbatches * c.micro, at = part * n * c.seq;
        struct engine_batch b = {.tokens = t->data->tokens + at,
                                 .targets = t->data->targets + at,
                                 .positions = t->data->positions + at,
                                 .docs = t->data->docs + at,
                                 .n = n,
                                 .first = part * n};
        for (int64_t i = 0; i < n * c.seq; i++) b.n_trained += b.targets[i] >= 0;
        struct engine_report r;
        struct ledger before;
        engine_init(g);
        before = d->ledger;
        engine_step(g, &b, 3, 1e-2, &r);
        keep(t, g, false);
        if (rank == 0) {
            t->loss = r.loss;
            t->norm = r.grad_norm;
        }
        engine_evaluate(g, &b, &r);
        engine_step(g, &b, 4, 1e-2, &r);
        keep(t, g, true);
        if (rank == 0) t->eval = r.loss;
        assert_memory_equal(&before, &d->ledger, sizeof before);
        rc = engine_status(g, e);
    }
    engine_free(g);
    comm_free(model);
    comm_free(shards);
    comm_free(pipes);
    comm_free(shard);
    comm_free(pipe);
    device_free(d);
    return rc;
}

static void run(struct trial *t, int64_t numel)
{
    struct err e = {0};
    struct comm_config cc = {.timeout_s = 100};
    int n = t->y.pp * t->y.dp;
    t->grad = xcalloc((size_t)numel, 4);
    t->value = xcalloc((size_t)numel, 4);
    if (n > 1 ? comm_run_local(n, &cc, rank_main, t, &e) : rank_main(NULL, t, &e))
        fail_msg("%s pp %d dp %d zero %d: %s", t->y.kind ? t->y.kind : "one rank", t->y.pp, t->y.dp, t->y.zero, e.text);
}

static void forget(struct trial *t)
{
    xfree(t->grad);
    xfree(t->value);
}

static double norm_of(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(s);
}

/* One layout beside one rank, both from config c; the batch has as many sequences as the layout takes. */
static void compare(const struct engine_config *c, const struct layout_row *y)
{
    struct engine_config one = *c;
    one.n_microbatches = (int64_t)y->n_microbatches * y->dp;
    struct toy data = {0};
    toy_batch(&data, &one);
    struct param_table p = {0};
    model_declare(&c->model, NULL, &p);
    struct trial want = {.c = one, .y = {.pp = 1, .dp = 1, .n_microbatches = (int)one.n_microbatches}, .data = &data};
    struct trial got = {.c = *c, .y = *y, .data = &data};
    run(&want, p.numel);
    run(&got, p.numel);
    double bound = c->dtype == DT_F32 ? 1e-5 : 2e-2;
    double all = norm_of(want.grad, p.numel);
    char name[160];
    snprintf(name, sizeof name, "%s pp %d chunks %d dp %d zero %d m %d", y->kind, y->pp, y->chunks, y->dp, y->zero,
             y->n_microbatches);
    for (int i = 0; i < p.n; i++) {
        int64_t at = offset_of(&p, i);
        double own = norm_of(want.grad + at, p.p[i].numel);
        double g = distance(got.grad + at, want.grad + at, p.p[i].numel) / fmax(own, 1e-2 * all);
        double v = own > 1e-6 * all ? toy_relative_error(got.value + at, want.value + at, p.p[i].numel) : 0;
        if (!(g < bound)) fail_msg("%s: the gradient of %s is off by %g", name, p.p[i].name, g);
        if (!(v < 10 * bound)) fail_msg("%s: the value of %s is off by %g", name, p.p[i].name, v);
    }
    if (y->exact &&
        (memcmp(got.grad, want.grad, (size_t)p.numel * 4) || memcmp(got.value, want.value, (size_t)p.numel * 4) ||
         got.loss != want.loss || got.eval != want.eval))
        fail_msg("%s: near one rank, and not its bits", name);
    if (!(fabs(got.loss - want.loss) < bound * want.loss)) fail_msg("%s: loss %g, not %g", name, got.loss, want.loss);
    if (!(fabs(got.norm - want.norm) < bound * want.norm)) fail_msg("%s: norm %g, not %g", name, got.norm, want.norm);
    if (!(fabs(got.eval - want.eval) < bound * want.eval)) fail_msg("%s: loss %g, not %g", name, got.eval, want.eval);
    forget(&want);
    forget(&got);
    param_table_free(&p);
    xfree(data.tokens);
    xfree(data.targets);
    xfree(data.positions);
    xfree(data.docs);
}

static struct engine_config small(enum model_family f, int layers)
{
    struct engine_config c = toy_config(f, DT_F32);
    c.model.layers = layers;
    c.micro = 1;
    return c;
}

static void test_corridor(void **state)
{
    (void)state;
    struct engine_config c = small(MODEL_LLAMA, 2);
    compare(&c, &(struct layout_row){.kind = "1f1b", .pp = 2, .dp = 1, .n_microbatches = 3});
}

/* Each row runs with two models or options; under a sanitizer with one, in turn: the other one makes no path of its
 * own. */
#define ONE_OF_TWO(i) (SANITIZED ? (int)((i) % 2) : 0)

/* Every generator, on as few and as many ranks as it likes, with chunks. */
static void test_schedules(void **state)
{
    (void)state;
    static const struct layout_row all[] = {
        {ROW("naive", 2, 2, 1, 0, 2)},       {ROW("naive", 3, 1, 1, 0, 2)},       {ROW("gpipe", 3, 1, 1, 0, 4)},
        {ROW("gpipe", 2, 2, 1, 0, 3)},       {ROW("1f1b", 4, 1, 1, 0, 6)},        {ROW("1f1b", 3, 1, 1, 0, 2)},
        {ROW("interleaved", 2, 2, 1, 0, 4)}, {ROW("interleaved", 2, 3, 1, 0, 4)}, {ROW("zbh1", 3, 1, 1, 0, 5)},
        {ROW("zbh2", 3, 1, 1, 0, 7)},        {ROW("zbv", 2, 2, 1, 0, 5)},         {ROW("zbv", 1, 2, 1, 0, 3)},
        {ROW("dualpipe", 2, 1, 1, 0, 4)},    {ROW("dualpipe", 4, 1, 1, 0, 10)},   {ROW("dualpipev", 2, 2, 1, 0, 5)},
        {ROW("dualpipev", 3, 2, 1, 0, 7)},   {ROW("onestage", 1, 1, 1, 0, 3)},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int v = ONE_OF_TWO(i); v < 2; v += CASE_STRIDE) {
            struct engine_config c = small(v ? MODEL_LLAMA : MODEL_GPT2, 6);
            c.model.tie_embeddings = v == (int)(i & 1);
            c.model.dropout = i % 3 == 0 ? 0.2 : 0;
            c.recompute.again = i % 3 == 1 ? AGAIN_ALL : 0;
            c.model.document_mask = i % 4 == 2;
            compare(&c, &all[i]);
        }
}

/* Data-parallel ranks beside each stage, at every zero level. */
static void test_zero_inside(void **state)
{
    (void)state;
    static const struct layout_row all[] = {
        {ROW("1f1b", 2, 1, 2, 0, 3)}, {ROW("gpipe", 2, 1, 2, 0, 3)},     {ROW("interleaved", 2, 2, 2, 0, 4)},
        {ROW("zbh1", 2, 1, 2, 0, 4)}, {ROW("zbv", 2, 2, 2, 0, 4)},       {ROW("dualpipe", 2, 1, 2, 0, 4)},
        {ROW("1f1b", 2, 1, 3, 0, 2)}, {ROW("dualpipev", 2, 2, 2, 0, 4)},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int zero = ONE_OF_TWO(i); zero <= 3; zero += SANITIZED ? 2 : 1) {
            struct layout_row y = all[i];
            struct engine_config c = small(i % 2 ? MODEL_LLAMA : MODEL_GPT2, 4);
            y.zero = zero;
            c.model.tie_embeddings = zero % 2;
            c.model.dropout = i % 3 == 0 ? 0.1 : 0;
            c.recompute.again = i % 3 == 1 ? AGAIN_ALL : 0;
            compare(&c, &y);
        }
}

/* Stages with any number of layers, also none at the ends. */
static void test_uneven(void **state)
{
    (void)state;
    static const int64_t a[] = {0, 3, 2, 0}, b[] = {1, 1, 3}, d[] = {2, 1, 1, 1};
    const struct layout_row all[] = {{ROW("1f1b", 4, 1, 1, 0, 4), .layers = a, .n_layers = 4},
                                     {ROW("zbh1", 3, 1, 1, 0, 4), .layers = b, .n_layers = 3},
                                     {ROW("zbv", 2, 2, 1, 0, 4), .layers = d, .n_layers = 4},
                                     {ROW("1f1b", 3, 1, 1, 0, 3)},
                                     {ROW("dualpipe", 4, 1, 1, 0, 8), .layers = a, .n_layers = 4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int tie = ONE_OF_TWO(i); tie < 2; tie += CASE_STRIDE) {
            struct engine_config c = small(MODEL_LLAMA, 5);
            c.model.tie_embeddings = tie;
            compare(&c, &all[i]);
        }
}

/* As many stages as layers and two more: the first embeds, the last has the head, dealt so or said so. */
static void test_empty_ends(void **state)
{
    (void)state;
    static const int64_t by_hand[] = {0, 1, 1, 1, 0};
    const struct layout_row all[] = {{ROW("1f1b", 5, 1, 1, 0, 6), .exact = true},
                                     {ROW("1f1b", 5, 1, 1, 0, 6), .layers = by_hand, .n_layers = 5, .exact = true},
                                     {ROW("zbh2", 5, 1, 1, 0, 3), .exact = true},
                                     {ROW("1f1b", 4, 1, 1, 0, 5), .exact = true},
                                     {ROW("zbh1", 4, 1, 2, 3, 5)},
                                     {ROW("gpipe", 5, 1, 2, 1, 2)},
                                     {ROW("dualpipe", 4, 1, 1, 0, 8)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = ONE_OF_TWO(i); k < 2; k += CASE_STRIDE) {
            struct engine_config c = small(k ? MODEL_LLAMA : MODEL_GPT2, all[i].pp == 5 ? 3 : 2);
            c.recompute.again = i % 2 ? AGAIN_ALL : 0;
            c.model.tie_embeddings = !all[i].exact && k;
            compare(&c, &all[i]);
        }
    struct engine_config c = small(MODEL_LLAMA, 5);
    c.model.layers = 4; /* six stages: on the same rank one with a layer and one without */
    compare(&c, &(struct layout_row){ROW("zbv", 3, 2, 1, 0, 5), .exact = true});
    compare(&c, &(struct layout_row){ROW("interleaved", 2, 3, 1, 0, 4), .exact = true});
}

/* Interleaved with any number of microbatches in rounds of any length, a short one at the end. */
static void test_rounds(void **state)
{
    (void)state;
    static const int m[] = {1, 3, 4, 5, 7};
    for (int i = 0; i < 5; i += SANITIZED ? 2 : 1)
        for (int round = 0; round <= m[i]; round += round ? 2 : 1) {
            struct engine_config c = small(i % 2 ? MODEL_LLAMA : MODEL_GPT2, 6);
            c.recompute.again = round == 3 ? AGAIN_ALL : 0;
            compare(&c, &(struct layout_row){ROW("interleaved", 4, 2, 1, 0, m[i]), .round = round, .exact = true});
            if (round % 2)
                compare(&c, &(struct layout_row){ROW("interleaved", 2, 3, 2, round % 4, m[i]), .round = round});
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corridor),    cmocka_unit_test(test_schedules),
                                       cmocka_unit_test(test_zero_inside), cmocka_unit_test(test_uneven),
                                       cmocka_unit_test(test_empty_ends),  cmocka_unit_test(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
