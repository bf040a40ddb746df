/* SPDX-License-Identifier: Apache-2.0 */
/* suite: whole untouchable */
/* suite: devices untouchable */
/* suite: long sanitizers */
/* With the same originals every layout has the same scales and the same codes, to the bit.
 *
 * What a product's operands are made from differs between layouts by the order of sums before it, so scales alone say
 * little about how a layout agrees and cuts. Here one rank's originals are kept, by step, microbatch, product and
 * operand. In every other layout each rank's part of an original is overwritten by one rank's numbers before it is
 * rounded (weights are only compared in the first step, where they are equal by themselves), and at each product, in
 * all three directions, codes and descales are compared element by element with one rank's. In the second step scales
 * of fp8-delayed follow from the histories of the first. */
#include <pthread.h>

#include "toy.h"

#include "config/config.h"
#include "drawn.h"
#include "kernel/kernel.h"
#include "layout/region.h"
#include "layout/sequence.h"
#include "machine.h"
#include "site/site.h"
#include "sanitized.h"

enum { STEPS = 2, MOST = 1024, MOST_NODES = 512, MOST_SUMS = 512 };
struct kept { /* a matrix of one rank */
    char key[80];
    int64_t rows, cols;
    float *v, *scale; /* scale: of each element, of codes */
};
struct book {
    struct kept k[MOST];
    int n;
};
struct job {
    struct config c;
    int32_t *tokens;
    struct book *book;
    bool record;
    pthread_mutex_t lock;
    char why[256]; /* the first difference */
    int products;
};
struct looker {
    struct job *j;
    struct engine *g;
    int64_t step;
    struct {
        bool known;
        struct operand o;
    } x[MOST_NODES]; /* by node: what its forward product reads; of one that shares it, by the first one's parameter */
    struct {
        void *at;
        float value; /* what AMAX added to, last time */
    } sum[MOST_SUMS];
    int n_sums;
};

static void differs(struct job *j, const char *key, const char *what, double got, double want)
{
    pthread_mutex_lock(&j->lock);
    if (!j->why[0]) snprintf(j->why, sizeof j->why, "%s: %s %.9g, one rank has %.9g", key, what, got, want);
    pthread_mutex_unlock(&j->lock);
}

static struct kept *find(struct book *b, const char *key)
{
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->k[i].key, key)) return &b->k[i];
    return NULL;
}

/* ---- where a part lies in the whole ---- */
struct part {
    const struct engine *g;
    int first, n, whole; /* parameters of the product; the first of those that make one on one rank */
    char operand;        /* x, w, d */
};

static int64_t out_feature(const struct part *p, int64_t i)
{
    int64_t whole = 0;
    for (int k = p->whole; k < p->first; k++) whole += p->g->params.p[k].n[0];
    for (int k = 0; k < p->n; k++) {
        const struct param *q = &p->g->params.p[p->first + k];
        if (i < q->ln[0]) return whole + q->lo[0] + i;
        i -= q->ln[0];
        whole += q->n[0];
    }
    return -1;
}

/* Row r of so many. */
static int64_t token(const struct part *p, int64_t r, int64_t rows)
{
    const struct engine_config *c = &p->g->cfg;
    int n = c->par.size[AXIS_CP], at = c->par.rank[AXIS_CP];
    int64_t each = context_rows(c->seq, n, at, 1), first = 0, end;
    if (rows < c->micro * each) region_split(c->micro * each, c->par.rank[AXIS_TP], c->par.size[AXIS_TP], &first, &end);
    r += first;
    return r / each * c->seq + context_place(c->seq, n, at, r % each);
}

/* Of a part of so many rows and columns: which of the whole each is. */
struct places {
    int64_t *row, *col;
};

static struct places places_of(const struct part *p, const struct view *v)
{
    struct places x = {xcalloc(to_size(v->n[0]) + 1, sizeof *x.row), xcalloc(to_size(v->n[1]) + 1, sizeof *x.col)};
    for (int64_t r = 0; r < v->n[0]; r++) x.row[r] = p->operand == 'w' ? out_feature(p, r) : token(p, r, v->n[0]);
    for (int64_t c = 0; c < v->n[1]; c++)
        x.col[c] = p->operand == 'd' ? out_feature(p, c) : p->g->params.p[p->first].lo[1] + c;
    return x;
}

static void places_free(struct places *x)
{
    xfree(x->row);
    xfree(x->col);
}

static struct part part_of(const struct looker *l, const struct program *p, const struct instr *i, char operand)
{
    const struct tape *t = p->tape;
    int slot = tape_tensor(t, tape_tensor(t, t->nodes[i->node].in[1])->root)->slot, first = (slot - SLOT_PARAM) / 2;
    return (struct part){l->g, first, l->g->recipes.together[first], l->g->recipes.whole[first], operand};
}

static void key_of(char *key, size_t n, const struct looker *l, const struct program *p, const struct kernel_call *c,
                   const struct instr *i, char operand, char direction)
{
    const struct node *d = &p->tape->nodes[i->node];
    const struct part part = part_of(l, p, i, operand);
    bool some = part.n < l->g->recipes.n_whole[part.first]; /* q, or k and v, of what is one product on one rank */
    snprintf(key, n, "step %lld token %lld layer %d %s %c%c", (long long)l->step, (long long)c->step->first_token,
             d->layer, some ? "qkv" : tape_tensor(p->tape, d->out[0])->name, operand, direction);
}

/* ---- originals ---- */
static bf16 *row_of(const struct view *v, int64_t r)
{
    return (bf16 *)device_here((void *)(uintptr_t)v->p) + r * v->stride;
}

static void keep_original(struct job *j, const char *key, const struct view *v)
{
    struct kept *k = find(j->book, key);
    if (k) return;
    assert_true(j->book->n < MOST);
    k = &j->book->k[j->book->n++];
    *k = (struct kept){.rows = v->n[0], .cols = v->n[1]};
    snprintf(k->key, sizeof k->key, "%s", key);
    k->v = xmalloc(to_size(k->rows * k->cols) * sizeof *k->v);
    for (int64_t r = 0; r < k->rows; r++) {
        const bf16 *from = row_of(v, r);
        for (int64_t c = 0; c < k->cols; c++) k->v[r * k->cols + c] = bf16_to_f32(from[c]);
    }
}

/* One rank's numbers, or only compared with them. */
static void take_original(struct job *j, const char *key, const struct view *v, const struct part *p, bool only_compare)
{
    const struct kept *k = find(j->book, key);
    if (!k) {
        differs(j, key, "not on one rank", 0, 0);
        return;
    }
    struct places x = places_of(p, v);
    for (int64_t r = 0; r < v->n[0]; r++) {
        bf16 *to = row_of(v, r);
        for (int64_t c = 0; c < v->n[1]; c++) {
            float want = k->v[x.row[r] * k->cols + x.col[c]];
            if (!only_compare) to[c] = bf16_from_f32(want);
            else if (bf16_to_f32(to[c]) != want)
                differs(j, key, "a weight is", (double)bf16_to_f32(to[c]), (double)want);
        }
    }
    places_free(&x);
}

/* What AMAX found before, which it is to begin with again; then what it has found. */
static float *sum_at(struct looker *l, void *at)
{
    int i = 0;
    while (i < l->n_sums && l->sum[i].at != at) i++;
    assert_true(i < MOST_SUMS);
    if (i == l->n_sums) l->sum[l->n_sums++].value = 0;
    l->sum[i].at = at;
    return &l->sum[i].value;
}

static void once_more(struct looker *l, const struct kernel_call *c)
{
    struct kernel_call again = *c;
    bool more = c->op == OP_AMAX && at_amax(&c->at)->more;
    if (more) *(float *)device_here(c->out[0].p) = *sum_at(l, c->out[0].p);
    kernel_enqueue(l->g->stream, &again);
    stream_sync(l->g->stream);
    if (c->op == OP_AMAX) *sum_at(l, c->out[0].p) = *(float *)device_here(c->out[0].p);
}

static bool same_place(const struct operand *a, const struct operand *b)
{
    return a->place == b->place && a->slot == b->slot && a->offset == b->offset;
}

static char operand_of(struct looker *l, const struct program *p, const struct instr *i)
{
    const struct tape *t = p->tape;
    const struct operand *o = &i->in[0];
    int slot = tape_tensor(t, tape_tensor(t, t->nodes[i->node].in[1])->root)->slot;
    int shared = MOST_NODES / 2 + l->g->recipes.whole[(slot - SLOT_PARAM) / 2];
    assert_true(i->node < MOST_NODES / 2 && shared < MOST_NODES);
    if (o->place == OPERAND_SLOT && o->slot == slot) return 'w';
    if ((int)(i - p->code) < p->begin[PHASE_B]) {
        l->x[i->node].o = l->x[shared].o = *o;
        l->x[i->node].known = l->x[shared].known = true;
        return 'x';
    }
    int at = l->x[i->node].known ? i->node : shared;
    return same_place(o, &l->x[at].o) ? 'x' : 'd';
}

static void original(struct looker *l, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    char key[80], operand = operand_of(l, p, i);
    const struct part part = part_of(l, p, i, operand);
    if (c->op == OP_QUANTISE) { /* rounded by an amax, it has been here */
        enum scaling s = at_quantise(&c->at)->scaling;
        if (s == SCALING_TENSOR || s == SCALING_NV) return;
    }
    key_of(key, sizeof key, l, p, c, i, operand, ' ');
    if (l->j->record) keep_original(l->j, key, &c->in[0]);
    else {
        take_original(l->j, key, &c->in[0], &part, operand == 'w' && l->step == 0);
        once_more(l, c);
    }
}

/* ---- codes and descales ---- */
static float scale_at(const struct view *s, const struct scale_blocks *b, int64_t r, int64_t c)
{
    const float *p = s->nd ? device_here((void *)(uintptr_t)s->p) : NULL;
    if (!p) return 1;
    return s->nd == 1 ? *p : p[(b->row_at + r) / b->rows * s->stride + (b->col_at + c) / b->cols];
}

static void rounded(struct looker *l, const struct program *p, const struct kernel_call *c, const struct instr *i,
                    char operand, const struct view *q, const struct view *s, const struct scale_blocks *b)
{
    char key[80];
    const struct part part = part_of(l, p, i, operand);
    key_of(key, sizeof key, l, p, c, i, operand, "FBW"[c->phase]);
    struct kept *k = find(l->j->book, key);
    if (l->j->record) {
        assert_true(!k);
        keep_original(l->j, key, q);
        k = find(l->j->book, key);
        k->scale = xmalloc(to_size(k->rows * k->cols) * sizeof *k->scale);
        for (int64_t n = 0; n < k->rows * k->cols; n++) k->scale[n] = scale_at(s, b, n / k->cols, n % k->cols);
        return;
    }
    if (!k) {
        differs(l->j, key, "not on one rank", 0, 0);
        return;
    }
    struct places x = places_of(&part, q);
    for (int64_t r = 0; r < q->n[0]; r++) {
        const bf16 *from = row_of(q, r);
        for (int64_t n = 0; n < q->n[1]; n++) {
            int64_t at = x.row[r] * k->cols + x.col[n];
            float got = bf16_to_f32(from[n]), scale = scale_at(s, b, r, n);
            if (memcmp(&scale, &k->scale[at], sizeof scale))
                differs(l->j, key, "a descale is", (double)scale, (double)k->scale[at]);
            if (memcmp(&got, &k->v[at], sizeof got)) differs(l->j, key, "a code is", (double)got, (double)k->v[at]);
        }
    }
    places_free(&x);
}

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct looker *l = ctx;
    if (c->step->step != (uint64_t)l->step) l->n_sums = 0;
    l->step = (int64_t)c->step->step;
    if (c->op == OP_AMAX || c->op == OP_QUANTISE) original(l, p, c, i);
    if (c->op != OP_LINEAR_SCALED) return;
    const struct linear_scaled_attrs *at = at_linear_scaled(&c->at);
    if (c->phase != KERNEL_BWD_IN) rounded(l, p, c, i, 'x', &c->in[0], &c->in[3], &at->x);
    if (c->phase != KERNEL_BWD_W) rounded(l, p, c, i, 'w', &c->in[1], &c->in[4], &at->w);
    if (c->phase != KERNEL_FWD) rounded(l, p, c, i, 'd', &c->dout[0], &c->in[5], &at->dy);
    pthread_mutex_lock(&l->j->lock);
    l->j->products++;
    pthread_mutex_unlock(&l->j->lock);
}

/* ---- layouts ---- */
static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    engine_init(g);
    struct looker *l = xcalloc(1, sizeof *l);
    l->j = j;
    l->g = g;
    g->watch = look;
    g->watch_ctx = l;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    for (int s = 0; s < STEPS; s++) engine_step(g, &b, s, 1e-2, &report);
    rc = engine_status(g, e);
    if (world) rc = comm_agree(world, rc, e);
    xfree(l);
    site_close(&at);
    return rc;
}

static const struct recipe_case {
    const char *keys;
} cases[] = {
    {"precision.recipe=fp8-delayed"},
    {"precision.recipe=fp8-current precision.layers={\"layers.*\":fp8-current}"},
    {"precision.recipe=mxfp8 model.hidden=128 model.heads=4 model.kv_heads=2 model.ffn=64 model.seq_len=128 "
     "batch.global=2 batch.micro=1"},
    {"precision.recipe=nvfp4 precision.layers={\"layers.*\":nvfp4} model.hidden=128 model.heads=4 model.kv_heads=2 "
     "model.ffn=64 model.seq_len=64"},
    {"precision.recipe=fp8-block model.hidden=256 model.heads=2 model.ffn=256 model.seq_len=512 model.layers=1 "
     "batch.global=2 batch.micro=1"},
    {"precision.recipe=fp8-block precision.block_scale=fp32 model.hidden=256 model.heads=2 model.ffn=256 "
     "model.seq_len=512 model.layers=1 batch.global=2 batch.micro=1"},
    /* fewer key heads than ranks of tp, where k and v are a product of their own */
    {"precision.recipe=fp8-delayed model.kv_heads=1"},
    {"precision.recipe=fp8-current precision.layers={\"layers.*\":fp8-current} model.kv_heads=1"},
    {"precision.recipe=mxfp8 model.hidden=128 model.heads=4 model.kv_heads=1 model.ffn=64 model.seq_len=128 "
     "batch.global=2 batch.micro=1"},
    {"precision.recipe=nvfp4 precision.layers={\"layers.*\":nvfp4} model.hidden=128 model.heads=4 model.kv_heads=1 "
     "model.ffn=64 model.seq_len=64"},
    {"precision.recipe=fp8-block model.hidden=256 model.heads=2 model.kv_heads=1 model.ffn=256 model.seq_len=512 "
     "model.layers=1 batch.global=2 batch.micro=1"},
};
enum { FEW_HEADS = 6 }; /* the first of those */

static const struct way {
    const char *keys;
    int ranks;
} ways[] = {
    {"", 1},
    {"parallel.dp_shard=2 parallel.zero=3", 2},
    {"parallel.tp=2 parallel.dp_shard=1", 2},
    {"parallel.tp=2 parallel.dp_shard=1 parallel.sequence_parallel=true", 2},
    {"parallel.cp=2 parallel.dp_shard=1", 2},
    {"parallel.tp=2 parallel.cp=2 parallel.dp_shard=1 parallel.sequence_parallel=true", 4},
    {"parallel.pp=2 parallel.dp_shard=1 parallel.schedule=1f1b", 2},
};

static int run(struct arena *a, const struct recipe_case *x, const struct way *w, struct book *book, bool record)
{
    struct err e = {0};
    struct job *j = xcalloc(1, sizeof *j);
    j->tokens = machine_toy(&j->c, a,
                            arena_printf(a, "model.heads=2 batch.global=4 batch.micro=2 precision.history=4 %s %s",
                                         x->keys, w->keys),
                            w->ranks);
    j->book = book;
    j->record = record;
    pthread_mutex_init(&j->lock, NULL);
    struct comm_config cc = config_comm(&j->c);
    int rc = w->ranks > 1 ? comm_run_local(w->ranks, &cc, rank_main, j, &e) : rank_main(NULL, j, &e);
    if (rc) fail_msg("'%s' '%s': %s", x->keys, w->keys, e.text);
    if (j->why[0]) fail_msg("'%s' '%s': %s", x->keys, w->keys, j->why);
    int products = j->products;
    pthread_mutex_destroy(&j->lock);
    xfree(j->tokens);
    xfree(j);
    return products;
}

static void test_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct book *book = xcalloc(1, sizeof *book);
        int products = run(a, &cases[i], &ways[0], book, true);
        assert_true(products >= 4 /* of a layer */ * 3 * 2 /* microbatches */ * STEPS);
        for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
            if ((i + w) % CASE_STRIDE) continue; /* under sanitizers some ways of every recipe */
            if (!drawn_here((int64_t)((i + w) / CASE_STRIDE), 2)) continue; /* of which every day half */
            bool stages = strstr(ways[w].keys, "pp=2");
            if (stages && strstr(cases[i].keys, "layers=1")) continue;
            int ranks = stages ? 1 : ways[w].ranks / (strstr(ways[w].keys, "dp_shard=2") ? 2 : 1);
            int here = run(a, &cases[i], &ways[w], book, false);
            if (i >= FEW_HEADS && strstr(ways[w].keys, "tp=2")) assert_true(here > products * ranks);
            else assert_int_equal(here, products * ranks);
        }
        for (int k = 0; k < book->n; k++) {
            xfree(book->k[k].v);
            xfree(book->k[k].scale);
        }
        xfree(book);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
