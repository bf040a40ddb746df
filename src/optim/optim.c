/* SPDX-License-Identifier: Apache-2.0 */
/* Updates run over the longest stretches of parameters that share group and decay: one kernel call each, at memory
 * speed. */
#include "optim/optim.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/flat.h"
#include "optim/adafactor.h"
#include "optim/muon.h"
#include "optim/staging.h"

void optim_sum_squares(const struct store *s, struct stream *st, double *sum)
{
    const struct optim_call x = {.s = s, .stream = st};
    if (st->dev->counts_only) return;
    for (int i = 0; i < s->table->n; i++) {
        int64_t n = s->table->p[i].counted && !s->table->p[i].frozen ? s->units.piece[i].n : 0;
        const char *g = store_piece_grad(s, i);
        for (int64_t at = 0, m; at < n; at += m) { /* all at once where nothing has to be widened */
            const float *wide = optim_widen(&x, i, g + to_size(at) * dtype_bytes(s->grad_dtype), n - at, &m);
            flat_sum_squares(st, wide, m, sum);
        }
    }
}

void optim_exact_squares(const struct store *s, struct stream *st, int64_t *word)
{
    for (int i = 0; !st->dev->counts_only && i < s->table->n; i++)
        if (s->table->p[i].counted && !s->table->p[i].frozen)
            flat_squares(st, store_piece_grad(s, i), s->units.piece[i].n, word);
}

void optim_emit(const struct optim_call *x, int param, struct kernel_call c)
{
    if (x->emit) x->emit(x->emit_ctx, &x->s->table->p[param], &c);
    else kernel_enqueue(x->stream, &c);
}

const float *optim_widen(const struct optim_call *x, int param, const void *grad, int64_t n, int64_t *m)
{
    const struct store *s = x->s;
    *m = n;
    if (s->grad_dtype == DT_F32) return grad;
    if (*m > STORE_WIDEN) *m = STORE_WIDEN;
    optim_emit(x, param, cast_call(s->widen.p, DT_F32, grad, s->grad_dtype, *m));
    return s->widen.p;
}

static void find_arrays(struct optim_call *x)
{
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(x->c, (enum param_group)g);
        struct optim_array of[OPTIM_MAX_ARRAYS];
        x->n_arrays[g] = r->arrays(x->c, (enum param_group)g, of);
        for (int j = 0; j < x->n_arrays[g]; j++) {
            x->which[g][j] = store_find(x->s, of[j].name);
            CHECK(x->which[g][j] >= 0, "%s without its array %s", r->name, of[j].name);
        }
    }
}

struct optim_stretch optim_stretch_of(const struct optim_call *x, int i)
{
    const struct store *s = x->s;
    const struct param *p = &s->table->p[i];
    bool whole = store_state_is_whole(s), own = !array_is_here(&s->array[STORE_MASTER]);
    struct array_span held = store_held(s, i, STORE_MASTER);
    struct optim_stretch r = {.decay = p->decay, .group = p->group, .n = held.n, .param = i, .at = held.lo};
    r.master = array_at(store_array(s, STORE_MASTER), held.at);
    r.grad = whole ? store_grad_ptr(s, i) : store_piece_grad(s, i);
    if (!own) r.copy = whole ? store_param_ptr(s, i) : store_piece_param(s, i);
    if (store_rounds(s)) r.weights = (char *)r.master;
    if (optim_of(x->c, p->group) == &optim_rows[OPTIM_ADAMW] && optim_blocks(x->c, p->group))
        r.cols = p->ln[1], r.block = x->c->block;
    for (int j = 0; j < x->n_arrays[p->group]; j++) {
        int which = x->which[p->group][j];
        r.array[j] = array_at(&s->array[which], store_held(s, i, which).at);
        r.width[j] = (int)dtype_bytes(s->array[which].row.dtype);
        r.each[j] = s->array[which].row.block == ARRAY_ROW_BLOCK ? s->array[which].row.each : 0;
    }
    return r;
}

static bool follows(const struct optim_stretch *a, const struct optim_stretch *b, size_t width, size_t grad_width)
{
    bool next = a->decay == b->decay && a->group == b->group && b->master == a->master + a->n && !a->weights &&
                !a->block && b->grad == a->grad + (size_t)a->n * grad_width &&
                (!a->copy || b->copy == a->copy + (size_t)a->n * width);
    for (int j = 0; j < OPTIM_MAX_ARRAYS; j++)
        next &= !a->array[j] || b->array[j] == a->array[j] + (size_t)a->n * (size_t)a->width[j];
    return next;
}

/* ---- weights that are the master in 16 bits ---- */
void optim_master_begin(const struct optim_call *x, struct optim_stretch *r)
{
    const struct store *s = x->s;
    if (!r->weights) return;
    r->master = s->wide_master.p;
    optim_emit(x, r->param, cast_call(r->master, DT_F32, r->weights, s->dtype, r->n));
}

/* Past m elements. */
void optim_advance(const struct optim_call *x, struct optim_stretch *r, int64_t m)
{
    r->master += m;
    r->at += m;
    if (r->weights) r->weights += to_size(m) * dtype_bytes(x->s->dtype);
    for (int j = 0; j < OPTIM_MAX_ARRAYS; j++)
        if (r->array[j])
            r->array[j] += to_size(r->each[j] ? m / r->cols * ((r->cols + r->each[j] - 1) / r->each[j]) : m) *
                           to_size(r->width[j]);
    r->grad += to_size(m) * dtype_bytes(x->s->grad_dtype);
    if (r->copy) r->copy += to_size(m) * dtype_bytes(x->s->dtype);
}

void optim_master_end(const struct optim_call *x, const struct optim_stretch *r)
{
    const struct store *s = x->s;
    const struct param *p = &s->table->p[r->param];
    if (!r->weights) return;
    if (x->c->nearest) { /* where nothing changed: what it was */
        optim_emit(x, r->param, cast_call(r->weights, s->dtype, r->master, DT_F32, r->n));
        return;
    }
    int64_t inner = p->nd > 1 ? p->numel / p->n[0] : 1; /* of a row of the whole */
    int64_t cols = p->nd > 1 ? param_row_numel(p) : p->ln[0];
    CHECK(p->nd <= 2 || cols == inner, "%s has more than two dims and is cut", p->name);
    struct update_args a = {.kind = UPDATE_ROUND,
                            .n = r->n,
                            .at = {[ROUND_TO] = {r->weights, s->dtype}, [ROUND_FROM] = {r->master, DT_F32}},
                            .chance = {.seed = x->c->seed,
                                       .stream = rng_stream(p->name) ^ rng_stream("round"),
                                       .at = r->at,
                                       .cols = cols,
                                       .first = p->lo[0] * inner + (p->nd > 1 && cols != inner ? p->lo[1] : 0),
                                       .wide = p->nd > 1 ? inner : cols}};
    optim_update(x, r->param, a);
}

static void update_stretch(const struct optim_call *x, struct optim_stretch r)
{
    const struct store *s = x->s;
    const struct optim_row *row = optim_of(x->c, r.group);
    for (int64_t left = r.n, m; left > 0; left -= m) {
        int64_t most = r.weights && left > STORE_WIDEN ? STORE_WIDEN : left;
        if (r.block && (r.weights || s->grad_dtype != DT_F32) && left > STORE_WIDEN)
            most = STORE_WIDEN / r.cols * r.cols;
        const float *grad = optim_widen(x, r.param, r.grad, most, &m);
        r.n = m;
        optim_master_begin(x, &r);
        row->step(x, &r, grad);
        optim_master_end(x, &r);
        optim_advance(x, &r, m);
    }
}

/* Averages, and what is averaged, lie alike. */
static void update_average(const struct optim_call *x, int which, int i)
{
    const struct array *ema = &x->s->array[which], *master = store_array(x->s, STORE_MASTER);
    struct array_span to = store_held(x->s, i, which), of = store_held(x->s, i, STORE_MASTER);
    if (!to.n) return;
    const struct update_args a = {.kind = UPDATE_AVERAGE,
                                  .n = to.n,
                                  .at = {[AVERAGE_TO] = {array_at(ema, to.at), DT_F32},
                                         [AVERAGE_OF] = {array_at(master, of.at), master->row.dtype}},
                                  .f = {[AVERAGE_KEEP] = (float)x->c->ema}};
    optim_update(x, i, a);
}

static bool by_element(const struct optim_call *x, int i)
{
    const struct param *p = &x->s->table->p[i];
    return p->stepped && optim_of(x->c, p->group)->step != NULL;
}

static void step_elements(const struct optim_call *x, struct staging *staging, int first, int n)
{
    const struct store *s = x->s;
    for (int i = first; i < first + n;) {
        if (!by_element(x, i++)) continue;
        struct optim_stretch r = optim_stretch_of(x, i - 1);
        while (i < first + n && by_element(x, i)) {
            struct optim_stretch next = optim_stretch_of(x, i);
            if (!follows(&r, &next, dtype_bytes(s->dtype), dtype_bytes(s->grad_dtype))) break;
            r.n += next.n;
            i++;
        }
        if (staging) staging_stretch(staging, x, r, update_stretch);
        else update_stretch(x, r);
    }
    if (staging) staging_finish(staging, x, update_stretch);
}

void optim_step_elements(struct optim_call *x, struct staging *staging, int first, int n)
{
    find_arrays(x);
    step_elements(x, staging, first, n);
    for (int i = first; x->c->ema > 0 && i < first + n; i++) update_average(x, store_find(x->s, "ema"), i);
}

static void step_tools(struct optim_call *x, const struct optim_tools *tools, int first, int n)
{
    find_arrays(x);
    if (tools && tools->muon) muon_step(tools->muon, x, first, n); /* what travels is counted where nothing runs */
    if (tools && tools->adafactor) adafactor_step(tools->adafactor, x, first, n);
}

static void step_all(struct optim_call *x, const struct optim_tools *tools, int first, int n)
{
    step_tools(x, tools, first, n);
    if (!x->stream->dev->counts_only) optim_step_elements(x, tools ? tools->staging : NULL, first, n);
}

void optim_update(const struct optim_call *x, int param, struct update_args a)
{
    a.by_words = true;
    a.words = x->words;
    if (!x->words) update_by(&a, x->own);
    optim_emit(x, param, update_call(&a));
}

void optim_step_tools(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                      const double *words, int first, int n)
{
    struct optim_call x = {.s = s, .stream = st, .c = c, .words = words};
    step_tools(&x, tools, first, n);
}

void optim_step_some(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                     const double *words, int first, int n)
{
    struct optim_call x = {.s = s, .stream = st, .c = c, .words = words};
    step_all(&x, tools, first, n);
}

void optim_step(struct store *s, struct stream *st, const struct optim_config *c, const struct optim_tools *tools,
                double lr, int64_t step, double grad_norm)
{
    struct optim_call x = {.s = s,
                           .stream = st,
                           .c = c,
                           .own = {[WORD_LR] = lr, [WORD_MADE] = (double)step, [WORD_GOES] = 1}};
    x.own[WORD_SCALE] = (double)step_scale(grad_norm, c->clip, s->grad_times);
    step_all(&x, tools, 0, s->table->n);
}
