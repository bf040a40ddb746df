/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late */
/* suite: long threads late */
/* State that is not stepped, of two made-up rows of the store's table: a history of the largest values of each matrix,
 * as delayed scaling keeps it, and what rounding left over of each element of a vector. Nothing else is said of them
 * anywhere: they are planned to the byte, zeroed, left alone by steps, saved by every layout, loaded by every other,
 * and compared between replicas. */
#include "toy.h"

#include "base/hash.h"
#include "config/config.h"
#include "config/ranks.h"
#include "engine/replicas.h"
#include "engine/loading.h"
#include "keep/run_checkpoint.h"
#include "verify/shelf.h"
#include "machine.h"

enum { HISTORY = 7, AMAX = 0, LEFT = 1, N_STATE };
/* clang-format off */
static const struct array_row state_rows[N_STATE] = {
    [AMAX] = {.name = "amax", .title = "largest values", .cat = MEM_DATA, .dtype = DT_F32, .block = ARRAY_TENSOR, .each = HISTORY, .saved = true,
              .shared_from = ARRAY_NEVER_SHARED, .groups = 1u << PARAM_MATRICES | 1u << PARAM_EMBEDDINGS},
    [LEFT] = {.name = "left", .title = "what rounding left", .cat = MEM_OPTIMIZER, .dtype = DT_F32, .shared_from = 2, .saved = true,
              .groups = 1u << PARAM_VECTORS},
};
/* clang-format on */

#define DEEPSEEK                                                                                                       \
    "model.family=deepseek model.moe.experts=4 model.moe.bias=true model.mla.kv_rank=4 model.mla.nope_dim=4 "          \
    "model.mla.rope_dim=2 "                                                                                            \
    "model.mla.value_dim=4 "
static const struct way {
    const char *keys;
    int ranks, family;
} layouts[] = {
    {"", 1, 0},
    {"parallel.zero=1", 2, 0},
    {"parallel.zero=2 precision.recipe=bf16", 3, 0},
    {"parallel.zero=3 parallel.dp_replicate=2", 4, 0},
    {"parallel.tp=2", 2, 0},
    {"parallel.tp=3 parallel.sequence_parallel=true precision.recipe=bf16 precision.grad=bf16", 3, 0},
    {"parallel.tp=2 parallel.zero=3", 4, 0},
    {"parallel.pp=2", 2, 0},
    {"parallel.pp=2 parallel.schedule=dualpipe batch.micro=1", 2, 0},
    {"parallel.cp=2 parallel.zero=1", 2, 0},
    {"parallel.servers=1", 3, 0},
    {"parallel.servers=2", 4, 0},
    {DEEPSEEK, 1, 1},
    {DEEPSEEK "parallel.ep=2 parallel.zero=1", 2, 1},
    {DEEPSEEK "parallel.ep=2 parallel.tp=2 parallel.zero=3", 4, 1},
    {DEEPSEEK "parallel.ep=2 parallel.tp=2 parallel.etp=1", 2, 1},
};
enum { N_LAYOUTS = (int)(sizeof layouts / sizeof layouts[0]) };

struct job {
    const struct way *l;
    struct config c;
    const char *save_to, *load_from;
    bool beside; /* one of the arrays is on another device */
    int32_t *tokens;
};

/* What value number i of what is held here is in the whole tensor. */
static int64_t global_of(const struct param *p, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = p->nd - 1; d >= 0; d--) {
        at += (p->lo[d] + i % p->ln[d]) * stride;
        i /= p->ln[d];
        stride *= p->n[d];
    }
    return at;
}

static float want(const struct param *p, int state, int64_t value)
{
    return (float)(hash64(p->name, strlen(p->name)) % 1000) + 0.5f * (float)state + (float)value / 1024;
}

/* Writes what must be there, or compares what is (zeros: with those). */
static int each(struct engine *g, bool write, bool zeros, struct err *e)
{
    struct store *s = &g->store;
    for (int k = 0; k < N_STATE; k++)
        for (int i = 0; i < g->params.n; i++) {
            const struct param *p = &g->params.p[i];
            int which = store_find(s, state_rows[k].name);
            assert_true(which >= STORE_ROWS);
            struct array_span x = store_held(s, i, which);
            bool tensor = state_rows[k].block == ARRAY_TENSOR;
            if (!array_covers(&state_rows[k], p)) assert_int_equal(x.n, 0);
            else if (tensor) assert_int_equal(x.n, p->held ? HISTORY : 0);
            float *v = xcalloc(to_size(x.n) + 1, sizeof *v);
            if (!write) store_read(s, g->stream, i, which, v);
            int rc = OK;
            for (int64_t j = 0; j < x.n && !rc; j++) {
                float w = zeros ? 0 : want(p, k, tensor ? j : global_of(p, x.lo + j));
                if (write) v[j] = w;
                else if (v[j] != w)
                    rc = err_set(e, ERR_NUMERIC, "%s of %s, %lld: %g is not %g", state_rows[k].name, p->name,
                                 (long long)j, (double)v[j], (double)w);
            }
            if (write && x.n) store_write(s, &g->kernels, g->stream, i, which, v);
            xfree(v);
            if (rc) return rc;
        }
    return OK;
}

/* What the null device counted is what there is, and without the rows it is less by their values. */
static int planned(const struct job *j, const struct engine *g, const struct device *d, const struct device *beside,
                   const struct engine_config *ec, struct err *e)
{
    struct device *none;
    struct engine *paper;
    size_t bytes[N_STATE] = {0}, now[2][MEM_N], got[MEM_N];
    for (int with = 0; with < 2; with++) {
        struct engine_config c = *ec;
        struct array_row rows[N_STATE];
        struct comm *world = NULL;
        struct ranks r;
        memcpy(rows, state_rows, sizeof rows); /* all on the one device */
        c.state = rows;
        if (!with) c.n_state = 0;
        int rc = device_null_new(&none, e);
        if (!rc && j->l->ranks > 1) rc = comm_world_null(&world, ec->rank, j->l->ranks, NULL, e);
        if (!rc) rc = ranks_init(&r, world, &j->c, e);
        if (rc) return rc;
        ranks_engine(&r, &c);
        rc = engine_new(&paper, &c, none, e);
        if (rc) return rc;
        memcpy(now[with], none->ledger.now, sizeof none->ledger.now);
        engine_free(paper);
        ranks_fini(&r);
        comm_free(world);
        device_free(none);
    }
    for (int k = 0; k < N_STATE; k++) bytes[k] = g->store.array[store_find(&g->store, state_rows[k].name)].buf.bytes;
    for (int k = 0; k < N_STATE; k++) now[0][state_rows[k].cat] += bytes[k];
    memcpy(got, d->ledger.now, sizeof got);
    for (int c = 0; c < MEM_N; c++) got[c] += beside ? beside->ledger.now[c] : 0;
    if (!bytes[AMAX] || memcmp(now[0], now[1], sizeof now[0]) || memcmp(now[1], got, sizeof got))
        return err_set(e, ERR_NUMERIC, "%s: bytes planned are not those allocated", j->l->keys);
    return OK;
}

static void step(const struct job *j, struct engine *g, const struct ranks *r)
{
    struct engine_report report;
    struct engine_batch b = machine_part(&j->c, j->tokens, r->part);
    engine_step(g, &b, 0, 1e-2, &report);
}

static int same_everywhere(struct engine *g, struct err *e)
{
    struct replicas_report report;
    int rc = replicas_compare(g, &report, e);
    return rc || !report.differ ? rc : err_set(e, ERR_NUMERIC, "%s", report.text);
}

/* The last rank's history of the first parameter that it holds gets another value: seen by all, where somebody has it
 * too. */
static int flipped(struct engine *g, const struct ranks *r, struct err *e)
{
    struct replicas_report report;
    int which = store_find(&g->store, "amax");
    float v[HISTORY] = {0};
    for (int i = 0; i < g->params.n && r->rank == r->n - 1; i++) {
        if (!store_held(&g->store, i, which).n || g->params.p[i].layer < 0) continue;
        store_write(&g->store, &g->kernels, g->stream, i, which, v);
        break;
    }
    int rc = replicas_compare(g, &report, e);
    bool copies = r->par.size[AXIS_TP] > 1 || r->par.size[AXIS_CP] > 1 || r->par.size[AXIS_DP_SHARD] > 1;
    if (rc || (report.differ && report.array && !strcmp(report.array, "amax")) || !copies) return rc;
    return err_set(e, ERR_NUMERIC, "a history that differs is not seen: %s", report.differ ? report.text : "same");
}

static int read_stretch(void *ctx, const struct reading *r, enum dtype as, void *dst, struct err *e)
{
    return ckpt_read_stretch(ctx, r->tensor, r->box, r->lo, r->n, as, dst, e);
}

/* In rounds that hold next to nothing: the same values, and the memory that was promised (engine/loading.h). */
static int tiny_rounds(const struct job *j, struct engine *g, const struct ranks *r, struct ckpt *c, struct err *e)
{
    enum { ROUND = 512 };
    struct readers plan = {0};
    bool holds = !r->n_servers || r->server >= 0;
    int64_t most = ROUND, read = 0;
    if (holds) readers_plan(&plan, g, c, ROUND);
    for (int64_t i = 0; i < plan.n; i++) {
        const struct reading *x = &plan.p[i];
        int64_t bytes = x->n * (int64_t)dtype_bytes(store_array(&g->store, x->which)->row.dtype);
        most = bytes > most ? bytes : most;
        read += bytes;
    }
    struct ledger *l = &g->dev->ledger;
    size_t before = l->peak[MEM_COMM] = l->now[MEM_COMM];
    int rc = loading_run(g, &plan, c, read_stretch, c, OK, e);
    int64_t took = (int64_t)(l->peak[MEM_COMM] - before);
    if (!rc && l->now[MEM_COMM] != before) rc = err_set(e, ERR_NUMERIC, "loading keeps memory");
    if (!rc && took > 6 * (most + 4096))
        rc = err_set(e, ERR_NUMERIC, "loading took %lld bytes in rounds of %lld", (long long)took, (long long)most);
    if (!rc && holds && (plan.n_rounds < 3 || read != plan.bytes || (plan.n_holders == 1 && plan.sent)))
        rc = err_set(e, ERR_NUMERIC, "%d rounds, %lld bytes", plan.n_rounds, (long long)read);
    readers_free(&plan);
    if (!rc && holds && !j->beside) rc = each(g, false, false, e);
    return r->world ? comm_agree(r->world, rc, e) : rc;
}

/* Rounds are what fits below the limit on every rank, the same for all, and not less than the least. */
static int rounds_below_limit(struct engine *g, const struct ranks *r, struct err *e)
{
    enum { TIMES = 3 };
    double now = (double)g->dev->ledger.now_total;
    int64_t whole = loading_round(g), some, least;
    g->cfg.limit_bytes =
        now + (r->rank == r->n - 1 ? 6.0 * TIMES * READERS_LEAST : 0x1p40); /* the last has least room */
    some = loading_round(g);
    g->cfg.limit_bytes = now + 1;
    least = loading_round(g);
    g->cfg.limit_bytes = 0;
    if (whole == READERS_ROUND && some == TIMES * READERS_LEAST && least == READERS_LEAST) return OK;
    return err_set(e, ERR_NUMERIC, "rounds of %lld, %lld, %lld bytes", (long long)whole, (long long)some,
                   (long long)least);
}

static int walk(struct job *j, struct engine *g, const struct ranks *r, struct err *e)
{
    bool worker = r->n_servers && r->server < 0;
    struct save_info info = {.root = j->save_to, .step = 1, .tokens = 1, .config_text = ""};
    struct ckpt *c = NULL;
    int rc = each(g, false, true, e); /* zeros at the start */
    if (!rc) rc = each(g, true, false, e);
    if (!rc && !r->n_servers) step(j, g, r);
    if (!rc) rc = each(g, false, false, e);
    if (!rc && !r->n_servers) rc = same_everywhere(g, e);
    if (r->world) rc = comm_agree(r->world, rc, e);
    if (!rc) rc = save_checkpoint(g, r, &info, e);
    if (!rc && j->load_from) {
        engine_init(g);
        rc = ckpt_open(&c, j->load_from, e);
        if (!rc) rc = save_check(g, c, NULL, e);
        if (r->world) rc = comm_agree(r->world, rc, e);
        if (!rc) rc = tiny_rounds(j, g, r, c, e);
        if (!rc) rc = rounds_below_limit(g, r, e);
        engine_init(g);
        rc = save_resume(g, c, NULL, rc, NULL, e);
        ckpt_close(c);
        if (!rc && !worker) rc = each(g, false, false, e);
        if (r->world) rc = comm_agree(r->world, rc, e);
    }
    return rc || r->n_servers ? rc : flipped(g, r, e);
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct ranks r;
    struct device *d = NULL, *beside = NULL;
    struct engine *g = NULL;
    struct engine_config ec = config_engine(&j->c);
    struct array_row rows[N_STATE];
    memcpy(rows, state_rows, sizeof rows);
    ec.state = rows;
    ec.n_state = N_STATE;
    int rc = ranks_init(&r, world, &j->c, e);
    if (rc) return rc;
    ranks_engine(&r, &ec);
    rc = device_cpu_new(&d, ec.threads, e);
    if (!rc && j->beside) rc = device_untouchable_new(&beside, 1, e);
    rows[LEFT].dev = beside;
    if (!rc) rc = engine_new(&g, &ec, d, e);
    if (!rc) rc = planned(j, g, d, beside, &ec, e);
    if (!rc) engine_init(g);
    if (world) rc = comm_agree(world, rc, e);
    if (!rc) rc = walk(j, g, &r, e);
    if (world) rc = comm_agree(world, rc, e);
    engine_free(g);
    ranks_fini(&r);
    device_free(d);
    if (beside) device_free(beside);
    return rc;
}

/* One tensor per parameter that has the array, of the parameter's shape or of the history's, and no other. */
static void check_listed(const char *path)
{
    struct ckpt *c;
    struct err e = {0};
    int amax = 0, left = 0, matrices = 0, vectors = 0;
    if (ckpt_open(&c, path, &e)) fail_msg("%s", e.text);
    for (int64_t i = 0; i < ckpt_count(c); i++) {
        struct ckpt_entry x = ckpt_at(c, i);
        matrices += !strcmp(x.group, "master") && x.shape.nd == 2;
        vectors += !strcmp(x.group, "master") && x.shape.nd == 1;
        left += !strcmp(x.group, "left") && x.shape.nd == 1;
        if (strcmp(x.group, "amax")) continue;
        amax++;
        assert_true(x.shape.nd == 1 && x.shape.n[0] == HISTORY && x.n_boxes == 1);
    }
    assert_int_equal(ckpt_verify(c, NULL, NULL), 0);
    assert_int_equal(amax, matrices);
    assert_int_equal(left, vectors);
    assert_true(amax > 0 && left > 0);
    ckpt_close(c);
}

static void test_every_layout_to_every_other(void **state)
{
    (void)state;
    struct shelf shelf[2] = {0}; /* by family */
    struct err e = {0};
    for (int k = 0; k < 2; k++) assert_int_equal(shelf_open(&shelf[k], 1 << 20, &e), OK);
    for (int again = 0; again < 2; again++) /* the first has something to load, too */
        for (int i = 0; i < N_LAYOUTS; i++) {
            if (again && i > 2 && i != N_LAYOUTS - 3) continue;
            struct arena *a = arena_new();
            struct job j = {.l = &layouts[i], .beside = i % 3 == 1};
            struct shelf_place *place;
            j.tokens = machine_toy(&j.c, a, arena_printf(a, "batch.global=6 batch.micro=2 %s", j.l->keys), j.l->ranks);
            assert_int_equal(shelf_next(&shelf[j.l->family], 1, &place, &e), OK);
            snprintf(place->layout, sizeof place->layout, "%d", i);
            const struct shelf_place *from = shelf_pick(&shelf[j.l->family], place);
            j.save_to = place->root;
            j.load_from = from ? from->path : NULL;
            struct comm_config cc = config_comm(&j.c);
            int rc = j.l->ranks > 1 ? comm_run_local(j.l->ranks, &cc, rank_main, &j, &e) : rank_main(NULL, &j, &e);
            if (rc)
                fail_msg("'%s' on %d ranks, from layout %s: %s", j.l->keys, j.l->ranks, from ? from->layout : "-",
                         e.text);
            check_listed(place->path);
            xfree(j.tokens);
            arena_free(a);
        }
    for (int k = 0; k < 2; k++) shelf_close(&shelf[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout_to_every_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
