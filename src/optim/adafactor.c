/* SPDX-License-Identifier: Apache-2.0 */
/* A unit at a time, in three passes over its gradients: sums by row and column, the size of what is stepped along, the
 * step; between them the ranks agree on the sums. What is stepped along is computed twice rather than kept. Rejected:
 * matrices owned whole as Muon's (its update would travel, and the factors with it whenever owners change). */
#include "optim/adafactor.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "state/param_group.h"

static const double eps_square = 1e-30, eps_size = 1e-3;

struct adafactor {
    struct store *s;
    struct stream *st;
    struct adafactor_groups group;
    int64_t *at;          /* by parameter: its sums in `sums`, from its unit's first on */
    struct buffer sums;   /* f64: rows and columns of every matrix of a unit */
    struct buffer sizes;  /* f64, two per parameter of a unit */
    struct buffer each;   /* f64, two per row of a piece; of a vector its squares */
    struct buffer mean;   /* f64 */
    struct buffer one;    /* f64 1, then f32 1: of a vector the mean and the column's factor */
    struct buffer column; /* f64: of a vector the column's sum, not read */
    int64_t most_sums, most_params;
};

static bool is_ours(const struct optim_config *c, const struct param *p)
{
    return p->stepped && optim_of(c, p->group) == &optim_rows[OPTIM_ADAFACTOR];
}

/* What second moments are kept by: a value per row and one per column of a matrix, and each number's own of others,
 * which are rows of one column here. The parameter's group says which, as the arrays do (rows.c). */
static bool is_matrix(const struct param *p) { return param_group_is_matrices(p->group); }

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- memory ---- */
static void lay_out(struct adafactor *x, const struct optim_config *c, int64_t *rows)
{
    const struct units *u = &x->s->units;
    for (int i = 0; i < u->n; i++) {
        int64_t sums = 0;
        for (int k = u->unit[i].first; k < u->unit[i].first + u->unit[i].n; k++) {
            const struct param *p = &u->table->p[k];
            x->at[k] = sums;
            if (!is_ours(c, p)) continue;
            int64_t n = store_held(x->s, k, STORE_MASTER).n;
            if (is_matrix(p)) sums += p->n[0] + p->n[1];
            *rows = max_i64(*rows, is_matrix(p) && n ? n / param_row_numel(p) : n);
        }
        x->most_sums = max_i64(x->most_sums, sums);
        x->most_params = max_i64(x->most_params, u->unit[i].n);
    }
}

int adafactor_new(struct adafactor **out, struct store *s, const struct optim_config *c, struct stream *st,
                  const struct adafactor_groups *g, struct err *e)
{
    bool any = false;
    int64_t rows = 0;
    *out = NULL;
    for (int k = 0; k < PARAM_GROUPS; k++) any |= optim_of(c, (enum param_group)k) == &optim_rows[OPTIM_ADAFACTOR];
    if (!any) return OK;
    struct adafactor *x = *out = xcalloc(1, sizeof *x);
    *x = (struct adafactor){.s = s, .st = st, .group = *g, .at = xcalloc(to_size(s->table->n) + 1, sizeof *x->at)};
    lay_out(x, c, &rows);
    const struct {
        struct buffer *b;
        enum mem_cat cat;
        int64_t n;
    } all[] = {{&x->sums, MEM_COMM, x->most_sums}, {&x->sizes, MEM_COMM, 2 * x->most_params},
               {&x->each, MEM_SCRATCH, 2 * rows},  {&x->mean, MEM_SCRATCH, 1},
               {&x->one, MEM_SCRATCH, 2},          {&x->column, MEM_SCRATCH, 1}};
    int rc = OK;
    for (size_t i = 0; !rc && i < sizeof all / sizeof *all; i++)
        rc = buffer_new(all[i].b, st->dev, all[i].cat, to_size(all[i].n) * sizeof(double), e);
    if (rc) {
        adafactor_free(x);
        *out = NULL;
        return rc;
    }
    double one[2] = {1, 0};
    float single = 1;
    memcpy(&one[1], &single, sizeof single);
    if (!st->dev->counts_only) {
        device_from_host(st, &x->one, 0, one, sizeof one);
        stream_sync(st);
    }
    return OK;
}

void adafactor_free(struct adafactor *x)
{
    if (!x) return;
    struct buffer *const all[] = {&x->sums, &x->sizes, &x->each, &x->mean, &x->one, &x->column};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_free(all[i]);
    xfree(x->at);
    xfree(x);
}

/* ---- where things are ---- */
static double *sums_of(const struct adafactor *x, int i) { return (double *)x->sums.p + x->at[i]; }
static double *sizes_of(const struct adafactor *x, int first, int i) { return (double *)x->sizes.p + 2 * (i - first); }

/* A stretch of whole rows of a matrix, or of a vector as rows of one column. */
struct part {
    struct optim_stretch r;
    const float *grad;
    int64_t row, col; /* of its first element in the whole */
    int64_t cols;
};

/* Calls f for stretches of a parameter that fit the room for what has to be widened. */
typedef void part_fn(struct adafactor *x, const struct optim_call *call, const struct part *q, int first, int i);
static void each_part(struct adafactor *x, const struct optim_call *call, int first, int i, part_fn *f)
{
    const struct param *p = &x->s->table->p[i];
    struct part q = {.r = optim_stretch_of(call, i), .cols = is_matrix(p) && p->held ? p->ln[1] : 1};
    bool widens = q.r.weights || x->s->grad_dtype != DT_F32;
    int64_t most = widens ? max_i64(STORE_WIDEN / q.cols, 1) * q.cols : q.r.n, m;
    CHECK(!widens || most <= STORE_WIDEN, "%s has rows of %lld", p->name, (long long)q.cols);
    for (int64_t left = q.r.n; left > 0; left -= q.r.n) {
        q.r.n = left < most ? left : most;
        q.row = p->lo[0] + q.r.at / q.cols;
        q.col = is_matrix(p) ? p->lo[1] : 0;
        q.grad = optim_widen(call, i, q.r.grad, q.r.n, &m);
        optim_master_begin(call, &q.r);
        f(x, call, &q, first, i);
        optim_advance(call, &q.r, q.r.n);
    }
}

/* The factors of its rows and columns, and the mean of rows. */
struct factors {
    void *row, *col, *mean;
};
static struct factors factors_of(const struct adafactor *x, const struct optim_call *call, const struct part *q, int i)
{
    const struct param *p = &x->s->table->p[i];
    float *f = (float *)(void *)q->r.array[0];
    if (is_matrix(p)) {
        const struct array *a = &x->s->array[call->which[p->group][0]];
        f = array_at(a, store_held(x->s, i, call->which[p->group][0]).at);
        return (struct factors){f + q->row, f + p->n[0] + q->col, x->mean.p};
    }
    return (struct factors){f, (char *)x->one.p + sizeof(double), x->one.p};
}

/* ---- passes ---- */
static void enqueue_sums(struct adafactor *x, const struct part *q, double *rows, double *cols)
{
    flat_update(x->st, &(struct update_args){.kind = UPDATE_FACTOR_SUMS,
                                             .n = q->r.n,
                                             .at = {[FACTOR_SUMS_ROWS] = {rows, DT_F64},
                                                    [FACTOR_SUMS_COLS] = {cols, DT_F64},
                                                    [FACTOR_SUMS_GRAD] = {(void *)(uintptr_t)q->grad, DT_F32}},
                                             .blocks = {.cols = q->cols}});
}

static void enqueue_keep(const struct optim_call *call, int i, float *f, double *sums, int64_t n, int64_t of)
{
    optim_update(call, i,
                 (struct update_args){.kind = UPDATE_FACTOR_KEEP,
                                      .n = n,
                                      .at = {[FACTOR_KEEP_TO] = {f, DT_F32}, [FACTOR_KEEP_SUMS] = {sums, DT_F64}},
                                      .f = {[FACTOR_KEEP_EPS] = (float)eps_square},
                                      .g = {[BY_DECAY_RATE] = call->c->decay_rate},
                                      .blocks = {.whole = of}});
}

/* Of a matrix the sums, of a vector its second moments at once. */
static void take_sums(struct adafactor *x, const struct optim_call *call, const struct part *q, int first, int i)
{
    const struct param *p = &x->s->table->p[i];
    double *to = sums_of(x, i);
    (void)first;
    if (is_matrix(p)) {
        enqueue_sums(x, q, to + q->row, to + p->n[0] + q->col);
        return;
    }
    stream_zero(x->st, x->each.p, to_size(q->r.n) * sizeof(double));
    enqueue_sums(x, q, x->each.p, x->column.p);
    enqueue_keep(call, i, (float *)(void *)q->r.array[0], x->each.p, q->r.n, 1);
}

static void keep_factors(struct adafactor *x, const struct optim_call *call, int i)
{
    const struct param *p = &x->s->table->p[i];
    int which = call->which[p->group][0];
    float *f = array_at(&x->s->array[which], store_held(x->s, i, which).at);
    double *sums = sums_of(x, i);
    enqueue_keep(call, i, f, sums, p->n[0], p->n[1]);
    enqueue_keep(call, i, f + p->n[0], sums + p->n[0], p->n[1], p->n[0]);
}

static void take_mean(struct adafactor *x, const struct optim_call *call, int i)
{
    const struct param *p = &x->s->table->p[i];
    int which = call->which[p->group][0];
    if (!is_matrix(p)) return;
    flat_update(x->st, &(struct update_args){.kind = UPDATE_FACTOR_MEAN,
                                             .n = p->n[0],
                                             .at = {[FACTOR_MEAN_TO] = {x->mean.p, DT_F64},
                                                    [FACTOR_MEAN_ROWS] = {array_at(&x->s->array[which],
                                                                                   store_held(x->s, i, which).at),
                                                                          DT_F32}}});
}

static void take_size(struct adafactor *x, const struct optim_call *call, const struct part *q, int first, int i)
{
    struct factors f = factors_of(x, call, q, i);
    optim_update(call, i,
                 (struct update_args){.kind = UPDATE_FACTOR_SIZE,
                                      .n = q->r.n,
                                      .at = {[FACTOR_SIZE_TO] = {sizes_of(x, first, i), DT_F64},
                                             [FACTOR_SIZE_EACH] = {x->each.p, DT_F64},
                                             [FACTOR_SIZE_ROWS] = {f.row, DT_F32},
                                             [FACTOR_SIZE_COLS] = {f.col, DT_F32},
                                             [FACTOR_SIZE_MEAN] = {f.mean, DT_F64},
                                             [FACTOR_SIZE_GRAD] = {(void *)(uintptr_t)q->grad, DT_F32},
                                             [FACTOR_SIZE_MASTER] = {q->r.master, DT_F32}},
                                      .blocks = {.cols = q->cols}});
}

static void apply(struct adafactor *x, const struct optim_call *call, const struct part *q, int first, int i)
{
    const struct param *p = &x->s->table->p[i];
    const struct optim_config *c = call->c;
    struct factors f = factors_of(x, call, q, i);
    optim_update(call, i,
                 (struct update_args){.kind = UPDATE_FACTOR_APPLY,
                                      .n = q->r.n,
                                      .at = {[FACTOR_APPLY_MASTER] = {q->r.master, DT_F32},
                                             [FACTOR_APPLY_ROWS] = {f.row, DT_F32},
                                             [FACTOR_APPLY_COLS] = {f.col, DT_F32},
                                             [FACTOR_APPLY_MEAN] = {f.mean, DT_F64},
                                             [FACTOR_APPLY_SIZE] = {sizes_of(x, first, i), DT_F64},
                                             [FACTOR_APPLY_GRAD] = {(void *)(uintptr_t)q->grad, DT_F32},
                                             [FACTOR_APPLY_PARAM] = {q->r.copy, x->s->dtype}},
                                      .g = {[BY_RATE] = optim_rate(call, p->group)},
                                      .f = {[FACTOR_APPLY_DECAY] = p->decay ? (float)c->weight_decay : 0,
                                            [FACTOR_APPLY_CLIP] = (float)c->update_clip,
                                            [FACTOR_APPLY_LEAST] = (float)eps_size},
                                      .blocks = {.cols = q->cols, .whole = p->numel},
                                      .flag = c->relative});
    optim_master_end(call, &q->r);
}

/* ---- what the ranks agree on ---- */
/* Another rank of tp, of a lower coordinate, holds the same box: what both count is counted once. */
static bool counted_before(const struct adafactor *x, const struct param *p)
{
    const struct param_table *t = x->s->table;
    int me = x->group.tp ? comm_rank(x->group.tp) : 0;
    struct region mine = layout_box(&p->layout, t->rank);
    for (int k = 0; k < me; k++) {
        int rank = t->rank + (k - me) * t->mesh.stride[AXIS_TP];
        if (!layout_holds(&p->layout, rank)) continue;
        struct region box = layout_box(&p->layout, rank);
        bool same = true;
        for (int d = 0; d < p->nd; d++) same &= box.lo[d] == mine.lo[d] && box.hi[d] == mine.hi[d];
        if (same) return true;
    }
    return false;
}

/* A sum over all that hold a part of what the numbers are of. `each`: how many numbers parameter i has, from where. */
static void agree(struct adafactor *x, const struct optim_call *call, int first, int n, struct buffer *b, int64_t all,
                  bool sizes)
{
    struct comm *among = x->s->table->p[first].expert ? x->group.expert : x->group.shard;
    bool runs = !x->st->dev->counts_only;
    const char *what = sizes ? "sizes of adafactor" : "sums of adafactor";
    if (!all) return;
    if (among && comm_size(among) > 1 && !store_state_is_whole(x->s))
        comm_wait(among, comm_all_reduce(among, b->p, b->p, all, DT_F64, COMM_SUM, what));
    if (!x->group.tp || comm_size(x->group.tp) == 1) return;
    for (int i = first; runs && i < first + n; i++) {
        const struct param *p = &x->s->table->p[i];
        if (!is_ours(call->c, p) || (!sizes && !is_matrix(p))) continue;
        if (p->held && !counted_before(x, p)) continue;
        if (sizes) stream_zero(x->st, sizes_of(x, first, i), 2 * sizeof(double));
        else stream_zero(x->st, sums_of(x, i), to_size(p->n[0] + p->n[1]) * sizeof(double));
    }
    comm_wait(x->group.tp, comm_all_reduce(x->group.tp, b->p, b->p, all, DT_F64, COMM_SUM, what));
}

static void step_unit(struct adafactor *x, const struct optim_call *call, int first, int n)
{
    bool runs = !x->st->dev->counts_only;
    int64_t sums = 0, any = 0;
    for (int i = first; i < first + n; i++) {
        const struct param *p = &x->s->table->p[i];
        if (!is_ours(call->c, p)) continue;
        any = n;
        if (is_matrix(p)) sums = x->at[i] + p->n[0] + p->n[1];
    }
    if (!any) return;
    if (runs && sums) stream_zero(x->st, x->sums.p, to_size(sums) * sizeof(double));
    if (runs) stream_zero(x->st, x->sizes.p, to_size(2 * n) * sizeof(double));
    for (int i = first; runs && i < first + n; i++)
        if (is_ours(call->c, &x->s->table->p[i])) each_part(x, call, first, i, take_sums);
    agree(x, call, first, n, &x->sums, sums, false);
    for (int i = first; runs && i < first + n; i++) {
        const struct param *p = &x->s->table->p[i];
        if (!is_ours(call->c, p) || !p->held) continue;
        if (is_matrix(p)) keep_factors(x, call, i);
        take_mean(x, call, i);
        each_part(x, call, first, i, take_size);
    }
    agree(x, call, first, n, &x->sizes, 2 * any, true);
    for (int i = first; runs && i < first + n; i++) {
        if (!is_ours(call->c, &x->s->table->p[i]) || !x->s->table->p[i].held) continue;
        take_mean(x, call, i);
        each_part(x, call, first, i, apply);
    }
}

void adafactor_step(struct adafactor *x, const struct optim_call *call, int first, int n)
{
    const struct units *u = &x->s->units;
    for (int k = 0; k < u->n; k++)
        if (u->unit[k].first >= first && u->unit[k].first < first + n)
            step_unit(x, call, u->unit[k].first, u->unit[k].n);
}
