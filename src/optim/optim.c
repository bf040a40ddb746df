/* SPDX-License-Identifier: Apache-2.0 */
/* Updates run over the longest stretches of parameters that share group and decay: one kernel call each, at memory
 * speed. Clipping by global norm: Pascanu et al. 2013, with the 1e-6 that the field adds to the norm. */
#include "optim/optim.h"

#include <math.h>

#include "base/mem.h"
#include "optim/muon.h"

void optim_sum_squares(const struct store *s, struct stream *st, double *sum)
{
    if (st->dev->counts_only) return;
    for (int i = 0; i < s->table->n; i++) {
        int64_t n = s->table->p[i].counted ? s->units.piece[i].n : 0;
        const char *g = store_piece_grad(s, i);
        for (int64_t at = 0, m; at < n; at += m) { /* all at once where nothing has to be widened */
            const float *wide = optim_widen(s, st, g + to_size(at) * dtype_bytes(s->grad_dtype), n - at, &m);
            flat_sum_squares(st, wide, m, sum);
        }
    }
}

void optim_exact_squares(const struct store *s, struct stream *st, int64_t *word)
{
    for (int i = 0; !st->dev->counts_only && i < s->table->n; i++)
        if (s->table->p[i].counted) flat_squares(st, store_piece_grad(s, i), s->units.piece[i].n, word);
}

const float *optim_widen(const struct store *s, struct stream *st, const void *grad, int64_t n, int64_t *m)
{
    *m = n;
    if (s->grad_dtype == DT_F32) return grad;
    if (*m > STORE_WIDEN) *m = STORE_WIDEN;
    flat_cast(st, s->widen.p, DT_F32, grad, s->grad_dtype, *m);
    return s->widen.p;
}

static void find_arrays(struct optim_call *x)
{
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(x->c, (enum param_group)g);
        for (int j = 0; j < r->n_arrays(x->c); j++) {
            x->which[g][j] = store_find(x->s, r->array[j].name);
            CHECK(x->which[g][j] >= 0, "%s without its array %s", r->name, r->array[j].name);
        }
    }
}

struct optim_stretch optim_stretch_of(const struct optim_call *x, int i)
{
    const struct store *s = x->s;
    const struct param *p = &s->table->p[i];
    bool whole = store_state_is_whole(s), own = !array_is_here(&s->array[STORE_MASTER]);
    struct array_span held = store_held(s, i, STORE_MASTER);
    struct optim_stretch r = {.decay = p->decay, .group = p->group, .n = held.n};
    r.master = array_at(store_array(s, STORE_MASTER), held.at);
    r.grad = whole ? store_grad_ptr(s, i) : store_piece_grad(s, i);
    if (!own) r.param = whole ? store_param_ptr(s, i) : store_piece_param(s, i);
    for (int j = 0; j < optim_of(x->c, p->group)->n_arrays(x->c); j++) {
        int which = x->which[p->group][j];
        r.array[j] = array_at(&s->array[which], store_held(s, i, which).at);
    }
    return r;
}

static bool follows(const struct optim_stretch *a, const struct optim_stretch *b, size_t width, size_t grad_width,
                    size_t array_width)
{
    bool next = a->decay == b->decay && a->group == b->group && b->master == a->master + a->n &&
                b->grad == a->grad + (size_t)a->n * grad_width &&
                (!a->param || b->param == a->param + (size_t)a->n * width);
    for (int j = 0; j < OPTIM_MAX_ARRAYS; j++)
        next &= !a->array[j] || b->array[j] == a->array[j] + (size_t)a->n * array_width;
    return next;
}

static void update_stretch(const struct optim_call *x, struct optim_stretch r)
{
    const struct store *s = x->s;
    const struct optim_row *row = optim_of(x->c, r.group);
    for (int64_t left = r.n, m; left > 0; left -= m) {
        const float *grad = optim_widen(s, x->stream, r.grad, left, &m);
        r.n = m;
        row->step(x, &r, grad);
        r.master += m;
        for (int j = 0; j < OPTIM_MAX_ARRAYS; j++)
            if (r.array[j]) r.array[j] += to_size(m) * dtype_bytes(optim_dtype(x->c));
        r.grad += to_size(m) * dtype_bytes(s->grad_dtype);
        if (r.param) r.param += to_size(m) * dtype_bytes(s->dtype);
    }
}

static bool by_element(const struct optim_call *x, int i)
{
    const struct param *p = &x->s->table->p[i];
    return p->stepped && !optim_of(x->c, p->group)->whole;
}

void optim_step_some(struct store *s, struct stream *st, const struct optim_config *c, struct muon *muon, double lr,
                     int64_t step, double grad_norm, int first, int n)
{
    double scale = c->clip > 0 ? fmin(1.0, c->clip / (grad_norm + 1e-6)) : 1.0;
    struct optim_call x =
        {.s = s, .stream = st, .c = c, .lr = lr, .step = step, .scale = (float)(scale / s->grad_times)};
    find_arrays(&x);
    if (muon) muon_step(muon, &x, first, n); /* its routes are counted where nothing runs */
    if (st->dev->counts_only) return;
    for (int i = first; i < first + n;) {
        if (!by_element(&x, i++)) continue;
        struct optim_stretch r = optim_stretch_of(&x, i - 1);
        while (i < first + n && by_element(&x, i)) {
            struct optim_stretch next = optim_stretch_of(&x, i);
            if (!follows(&r, &next, dtype_bytes(s->dtype), dtype_bytes(s->grad_dtype), dtype_bytes(optim_dtype(c))))
                break;
            r.n += next.n;
            i++;
        }
        update_stretch(&x, r);
    }
}

void optim_step(struct store *s, struct stream *st, const struct optim_config *c, struct muon *muon, double lr,
                int64_t step, double grad_norm)
{
    optim_step_some(s, st, c, muon, lr, step, grad_norm, 0, s->table->n);
}
