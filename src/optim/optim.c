/* SPDX-License-Identifier: Apache-2.0 */
/* Updates run over the longest stretches of parameters that share a decay setting: one kernel call each, at memory
 * speed. AdamW: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", Algorithm 2; clipping by global norm:
 * Pascanu et al. 2013, with the 1e-6 that the field adds to the norm. */
#include "optim/optim.h"

#include <math.h>

#include "base/mem.h"

int optim_n_moments(const struct optim_config *c)
{
    return c->kind == OPTIM_ADAMW ? 2 : c->momentum != 0 ? 1 : 0;
}

double optim_sum_squares(const struct store *s, const struct kernel_table *k)
{
    double sum = 0;
    if (k->dry) return 0;
    for (int i = 0; i < s->table->n; i++) {
        int64_t n = s->table->p[i].counted ? s->units.piece[i].n : 0;
        const char *g = store_piece_grad(s, i);
        for (int64_t at = 0, m; at < n; at += m) { /* all at once where nothing has to be widened */
            const float *wide = optim_widen(s, k, g + to_size(at) * dtype_bytes(s->grad_dtype), n - at, &m);
            sum += k->flat->sum_squares(s->dev->team, wide, m);
        }
    }
    return sum;
}

const float *optim_widen(const struct store *s, const struct kernel_table *k, const void *grad, int64_t n, int64_t *m)
{
    *m = n;
    if (s->grad_dtype == DT_F32) return grad;
    if (*m > STORE_WIDEN) *m = STORE_WIDEN;
    k->flat->cast(s->dev->team, s->widen.p, DT_F32, grad, s->grad_dtype, *m);
    return s->widen.p;
}

double optim_grad_norm(const struct store *s, const struct kernel_table *k)
{
    CHECK(s->units.n_ranks == 1, "this rank has pieces only");
    return sqrt(optim_sum_squares(s, k));
}

/* Parameters, or pieces of them, that lie one after the other in all buffers and share a decay setting. */
struct stretch {
    float *master, *m, *v;
    const char *grad;
    char *param; /* NULL: the parameters are the master */
    int64_t n;
    bool decay;
};

static struct stretch stretch_of(const struct store *s, int i)
{
    bool whole = store_state_is_whole(s), own = !s->master.dev;
    int64_t off = s->table->p[i].offset;
    size_t width = dtype_bytes(s->dtype);
    struct stretch r = {.decay = s->table->p[i].decay};
    float *state[1 + STORE_MAX_MOMENTS] = {NULL};
    for (int what = 0; what <= s->n_moments; what++) {
        const struct buffer *b = what ? &s->moment[what - 1] : store_master(s);
        state[what] = whole ? (float *)b->p + off : store_piece_state(s, i, what);
    }
    r.master = state[0];
    r.m = state[1];
    r.v = state[2];
    r.grad = whole ? store_grad_ptr(s, i) : store_piece_grad(s, i);
    if (!own) r.param = whole ? (char *)s->param.p + (size_t)off * width : store_piece_param(s, i);
    r.n = store_held(s, i, NULL);
    return r;
}

static bool follows(const struct stretch *a, const struct stretch *b, size_t width, size_t grad_width)
{
    return a->decay == b->decay && b->master == a->master + a->n && (!a->m || b->m == a->m + a->n) &&
           (!a->v || b->v == a->v + a->n) && b->grad == a->grad + (size_t)a->n * grad_width &&
           (!a->param || b->param == a->param + (size_t)a->n * width);
}

static void update(const struct store *s, const struct kernel_table *k, const struct optim_config *c, double lr,
                   int64_t step, float scale, const struct stretch *r, const float *grad)
{
    if (c->kind == OPTIM_ADAMW)
        k->flat->adamw(s->dev->team, &(struct adamw_args){
                                         .n = r->n,
                                         .master = r->master,
                                         .m = r->m,
                                         .v = r->v,
                                         .grad = grad,
                                         .param = r->param,
                                         .param_dtype = s->dtype,
                                         .lr = (float)lr,
                                         .beta1 = (float)c->beta1,
                                         .beta2 = (float)c->beta2,
                                         .eps = (float)c->eps,
                                         .weight_decay = r->decay ? (float)c->weight_decay : 0,
                                         .grad_scale = scale,
                                         .bias1 = (float)(1 - pow(c->beta1, (double)(step + 1))),
                                         .bias2 = (float)(1 - pow(c->beta2, (double)(step + 1))),
                                     });
    else
        k->flat->sgd(s->dev->team, &(struct sgd_args){
                                       .n = r->n,
                                       .master = r->master,
                                       .m = r->m,
                                       .grad = grad,
                                       .param = r->param,
                                       .param_dtype = s->dtype,
                                       .lr = (float)lr,
                                       .momentum = (float)c->momentum,
                                       .weight_decay = r->decay ? (float)c->weight_decay : 0,
                                       .grad_scale = scale,
                                       .nesterov = c->nesterov,
                                   });
}

/* Elementwise: cutting a stretch changes no bits. */
static void update_stretch(const struct store *s, const struct kernel_table *k, const struct optim_config *c, double lr,
                           int64_t step, float scale, struct stretch r)
{
    for (int64_t left = r.n, m; left > 0; left -= m) {
        const float *grad = optim_widen(s, k, r.grad, left, &m);
        r.n = m;
        update(s, k, c, lr, step, scale, &r, grad);
        r.master += m;
        if (r.m) r.m += m;
        if (r.v) r.v += m;
        r.grad += to_size(m) * dtype_bytes(s->grad_dtype);
        if (r.param) r.param += to_size(m) * dtype_bytes(s->dtype);
    }
}

void optim_step(struct store *s, const struct kernel_table *k, const struct optim_config *c, double lr, int64_t step,
                double grad_norm)
{
    if (k->dry) return;
    double scale = c->clip > 0 ? fmin(1.0, c->clip / (grad_norm + 1e-6)) : 1.0;
    for (int i = 0; i < s->table->n;) {
        struct stretch r = stretch_of(s, i++);
        while (i < s->table->n) {
            struct stretch next = stretch_of(s, i);
            if (!follows(&r, &next, dtype_bytes(s->dtype), dtype_bytes(s->grad_dtype))) break;
            r.n += next.n;
            i++;
        }
        update_stretch(s, k, c, lr, step, (float)scale, r);
    }
}
