/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Experts that are shared out over the ranks of tp have the scales and codes of experts that are cut over them, to the
 * bit: etp less than tp against etp = tp, where all operands of a layer's forward products are made from the same
 * numbers. Each expert's codes of a microbatch, of both products and of their weights, are kept in the layout whose
 * parts are an expert's rows (etp = tp) and compared, column by column, where tp shares out the tokens and a part is
 * what several ranks have sent. Where cp shares tokens out, scales that ranks with all experts agree on are those of
 * ranks that are sent all of an expert's rows. */
#include <pthread.h>

#include "toy.h"

#include "config/config.h"
#include "kernel/kernel.h"
#include "machine.h"
#include "site/site.h"
#include "sanitized.h"

enum { MOST = 512, EXPERTS = 4 };
struct kept { /* columns of an expert's codes, from one or several ranks */
    char key[96];
    int64_t rows, cols;
    float *v;
    float descale;
    bool has_descale;
};
struct job {
    struct config c;
    int32_t *tokens;
    struct kept k[MOST];
    int n;
    bool record, only_scales; /* rows lie on other ranks, in another order */
    pthread_mutex_t lock;
    char why[256];
    int compared;
};
struct looker {
    struct job *j;
    struct engine *g;
};

static struct kept *find(struct job *j, const char *key, int64_t rows, int64_t cols)
{
    for (int i = 0; i < j->n; i++)
        if (!strcmp(j->k[i].key, key)) return &j->k[i];
    if (!j->record) return NULL;
    assert_true(j->n < MOST);
    struct kept *k = &j->k[j->n++];
    *k = (struct kept){.rows = rows, .cols = cols, .v = xcalloc(to_size(rows * cols) + 1, sizeof(float))};
    snprintf(k->key, sizeof k->key, "%s", key);
    return k;
}

static void differs(struct job *j, const char *key, const char *what, double got, double want)
{
    if (!j->why[0]) snprintf(j->why, sizeof j->why, "%s: %s %g, wanted %g", key, what, got, want);
}

/* A block of an expert: `rows` rows of q from `first` on are rows [row_at, ...) and columns [col_at, ...) of so many.
 */
static void block(struct looker *l, const char *key, const struct view *q, int64_t first, int64_t rows, int64_t row_at,
                  int64_t all_rows, int64_t col_at, int64_t all_cols, const float *descale)
{
    struct job *j = l->j;
    pthread_mutex_lock(&j->lock);
    struct kept *k = find(j, key, all_rows, all_cols);
    if (!k || (!j->only_scales && (k->rows != all_rows || k->cols != all_cols)))
        differs(j, key, "rows", (double)all_rows, k ? (double)k->rows : -1);
    if (k && descale && rows) {
        if (j->record && !k->has_descale) k->descale = *descale, k->has_descale = true;
        if (k->descale != *descale) differs(j, key, "a descale is", (double)*descale, (double)k->descale);
    }
    for (int64_t r = 0; k && !j->only_scales && !j->why[0] && r < rows; r++)
        for (int64_t c = 0; c < q->n[1]; c++) {
            const bf16 *from = (const bf16 *)device_here((void *)(uintptr_t)q->p) + (first + r) * q->stride + c;
            float got = bf16_to_f32(*from), *want = &k->v[(row_at + r) * k->cols + col_at + c];
            if (j->record) *want = got;
            else if (memcmp(want, &got, sizeof got)) differs(j, key, "a code is", (double)got, (double)*want);
        }
    j->compared += !j->record;
    pthread_mutex_unlock(&j->lock);
}

/* Forward of the first step only: what is quantised there is the same in both layouts. */
static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct looker *l = ctx;
    const struct tape *t = p->tape;
    if (c->op != OP_QUANTISE_PARTS || c->step->step || (int)(i - p->code) >= p->begin[PHASE_B]) return;
    const struct parts_attrs *at = &at_quantise_parts(&c->at)->parts;
    const struct engine *g = l->g;
    const struct par *par = &g->cfg.par;

    const char *product = tape_tensor(t, t->nodes[i->node].out[0])->name;
    bool down = strstr(product, "down") != NULL, weight = at->each > 0;
    int64_t ffn = g->cfg.model.moe.ffn, cut = par->size[AXIS_ETP], part = ffn / cut, from = par->rank[AXIS_ETP] * part;
    int64_t here = EXPERTS / par->size[AXIS_EP], first_expert = here * par->rank[AXIS_EP], first = 0;
    const struct view *d = &c->out[1], *rows = &c->in[2];
    const int32_t *counts = weight ? NULL : device_here((void *)(uintptr_t)rows->p);
    int64_t n = at->sources ? at->sources : 1, group = at->sources && at->together ? at->together : 1;

    for (int64_t e = 0; e < here; e++)
        for (int64_t b = 0; b < (weight ? 1 : n / group); b++) {
            char key[96];
            int64_t count = at->each;
            const int64_t index = weight ? e : e * (n / group) + b;
            for (int64_t s = 0; counts && s < group; s++)
                count = (s ? count : 0) + counts[at->sources ? (b * group + s) * rows->stride + e : e];
            snprintf(key, sizeof key, "token %lld layer %d %s expert %lld %s",
                     (long long)(weight
                                     ? 0
                                     : (int64_t)c->step->first_token + (at->sources ? b - at->source : 0) * at->apart),
                     t->nodes[i->node].layer, product, (long long)(first_expert + e), weight ? "w" : "x");
            const float *scale =
                d->nd && d->n[1] == 1 ? (const float *)device_here((void *)(uintptr_t)d->p) + index * d->stride : NULL;
            if (weight && !down) /* gate, then up: rows are cut over etp */
                for (int half = 0; half < 2; half++)
                    block(l, key, &c->out[0], first + half * part, part, half * ffn + from, 2 * ffn, 0, c->out[0].n[1],
                          scale);
            else block(l, key, &c->out[0], first, count, 0, count, down ? from : 0, down ? ffn : c->out[0].n[1], scale);
            first += count;
        }
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct looker l = {j, at.engine};
    engine_init(at.engine);
    at.engine->watch = look;
    at.engine->watch_ctx = &l;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    engine_step(at.engine, &b, 0, 1e-2, &report);
    rc = engine_status(at.engine, e);
    rc = comm_agree(world, rc, e);
    site_close(&at);
    return rc;
}

static void run(struct job *j, struct arena *a, const char *recipe, const char *layout, int ranks)
{
    struct err e = {0};
    j->tokens = machine_toy(&j->c, a,
                            arena_printf(a,
                                         "model.family=mixtral model.layers=1 model.moe.experts=4 model.moe.top_k=2 "
                                         "model.moe.ffn=128 model.hidden=64 model.heads=4 model.kv_heads=4 "
                                         "batch.global=4 batch.micro=2 precision.recipe=bf16 "
                                         "precision.layers={\"*.experts.*\":%s} %s",
                                         recipe, layout),
                            ranks);
    struct comm_config cc = config_comm(&j->c);
    if (comm_run_local(ranks, &cc, rank_main, j, &e)) fail_msg("%s, %s: %s", recipe, layout, e.text);
    if (j->why[0]) fail_msg("%s, %s: %s", recipe, layout, j->why);
    xfree(j->tokens);
}

static void test_parts_of_tp(void **state)
{
    (void)state;
    static const char *const recipes[] = {"fp8-current", "nvfp4", "mxfp8", "fp8-block"};
    static const struct {
        const char *whole, *apart;
        int ranks;
    } layouts[] = {
        {"parallel.tp=2 parallel.etp=2", "parallel.tp=2 parallel.etp=1 parallel.ep=2", 2},
        {"parallel.tp=2 parallel.etp=2 parallel.ep=2", "parallel.tp=2 parallel.etp=1 parallel.ep=4", 4},
        {"parallel.tp=4 parallel.etp=4", "parallel.tp=4 parallel.etp=2 parallel.ep=2", 4},
        {"parallel.cp=2 parallel.tp=2 parallel.ep=2", "parallel.cp=2 parallel.tp=2 parallel.etp=1 parallel.ep=4", 4},
    };
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r += CASE_STRIDE)
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            struct arena *a = arena_new();
            struct job *j = xcalloc(1, sizeof *j);
            /* blocks of 128 columns are cut by neither */
            bool block = !strcmp(recipes[r], "fp8-block");
            const char *sizes = block ? "model.hidden=128 model.moe.ffn=512" : "";
            pthread_mutex_init(&j->lock, NULL);
            j->record = true;
            run(j, a, recipes[r], arena_printf(a, "%s %s", layouts[k].whole, sizes), layouts[k].ranks);
            j->record = false;
            run(j, a, recipes[r], arena_printf(a, "%s %s", layouts[k].apart, sizes), layouts[k].ranks);
            assert_true(j->n > 0 && j->compared > 0);
            for (int i = 0; i < j->n; i++) xfree(j->k[i].v);
            pthread_mutex_destroy(&j->lock);
            xfree(j);
            arena_free(a);
        }
}

static void test_parts_of_cp(void **state)
{
    (void)state;
    static const struct {
        const char *whole, *apart;
        int ranks;
    } layouts[] = {
        {"parallel.cp=2", "parallel.cp=2 parallel.ep=2", 2},
        {"parallel.cp=4", "parallel.cp=4 parallel.ep=4", 4},
        {"parallel.cp=2 parallel.tp=2 parallel.etp=1", "parallel.cp=2 parallel.tp=2 parallel.etp=1 parallel.ep=4", 4},
        {"parallel.cp=2", "parallel.cp=2 parallel.dp_shard=2 parallel.ep=4", 4},
    };
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct job *j = xcalloc(1, sizeof *j);
        pthread_mutex_init(&j->lock, NULL);
        j->only_scales = j->record = true;
        run(j, a, "fp8-current", layouts[k].whole, k == 3 ? 2 : layouts[k].ranks);
        int scales = 0;
        for (int i = 0; i < j->n; i++) scales += j->k[i].has_descale;
        j->record = false;
        run(j, a, "fp8-current", layouts[k].apart, layouts[k].ranks);
        assert_true(scales > 0 && j->compared > 0);
        for (int i = 0; i < j->n; i++) xfree(j->k[i].v);
        pthread_mutex_destroy(&j->lock);
        xfree(j);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts_of_tp), cmocka_unit_test(test_parts_of_cp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
