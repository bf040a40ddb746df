/* Updates run over the longest stretches of parameters that share a decay setting: one kernel call each, at memory
 * speed. AdamW: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", Algorithm 2; clipping by global norm:
 * Pascanu et al. 2013, with the 1e-6 that the field adds to the norm. */
#include "optim/optim.h"

#include <math.h>

int optim_n_moments(const struct optim_config *c)
{
    return c->kind == OPTIM_ADAMW ? 2 : c->momentum != 0 ? 1 : 0;
}

double optim_grad_norm(const struct store *s, const struct kernel_table *k)
{
    if (k->dry) return 0;
    double sum = 0;
    for (int i = 0; i < s->table->n; i++)
        sum += k->flat->sum_squares(s->dev->team, store_grad_ptr(s, i), s->table->p[i].numel);
    return sqrt(sum);
}

struct stretch {
    int64_t lo, n;
    bool decay;
};

static struct stretch next_stretch(const struct param_table *t, int *i)
{
    struct stretch r = {t->p[*i].offset, 0, t->p[*i].decay};
    while (*i < t->n && t->p[*i].decay == r.decay) r.n += t->p[(*i)++].numel;
    return r;
}

static float *f32_at(const struct buffer *b, int64_t i)
{
    return b->p ? (float *)b->p + i : NULL;
}

void optim_step(struct store *s, const struct kernel_table *k, const struct optim_config *c, double lr, int64_t step,
                double grad_norm)
{
    if (k->dry) return;
    double scale = c->clip > 0 ? fmin(1.0, c->clip / (grad_norm + 1e-6)) : 1.0;
    const struct buffer *master = store_master(s);
    for (int i = 0; i < s->table->n;) {
        struct stretch r = next_stretch(s->table, &i);
        void *param = s->master.p ? (char *)s->param.p + (size_t)r.lo * dtype_bytes(s->dtype) : NULL;
        if (c->kind == OPTIM_ADAMW)
            k->flat->adamw(s->dev->team, &(struct adamw_args){
                                             .n = r.n,
                                             .master = f32_at(master, r.lo),
                                             .m = f32_at(&s->moment[0], r.lo),
                                             .v = f32_at(&s->moment[1], r.lo),
                                             .grad = f32_at(&s->grad, r.lo),
                                             .param = param,
                                             .param_dtype = s->dtype,
                                             .lr = (float)lr,
                                             .beta1 = (float)c->beta1,
                                             .beta2 = (float)c->beta2,
                                             .eps = (float)c->eps,
                                             .weight_decay = r.decay ? (float)c->weight_decay : 0,
                                             .grad_scale = (float)scale,
                                             .bias1 = (float)(1 - pow(c->beta1, (double)(step + 1))),
                                             .bias2 = (float)(1 - pow(c->beta2, (double)(step + 1))),
                                         });
        else
            k->flat->sgd(s->dev->team, &(struct sgd_args){
                                           .n = r.n,
                                           .master = f32_at(master, r.lo),
                                           .m = s->n_moments ? f32_at(&s->moment[0], r.lo) : NULL,
                                           .grad = f32_at(&s->grad, r.lo),
                                           .param = param,
                                           .param_dtype = s->dtype,
                                           .lr = (float)lr,
                                           .momentum = (float)c->momentum,
                                           .weight_decay = r.decay ? (float)c->weight_decay : 0,
                                           .grad_scale = (float)scale,
                                           .nesterov = c->nesterov,
                                       });
    }
}
