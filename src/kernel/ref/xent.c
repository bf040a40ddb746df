/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy, plainly: nats = log(sum exp(logits)) - logits[target], tokens with target -1 left out.
 * Per-token losses go to scratch and are added in token order, so the sum does not depend on the team. Backward
 * forms the softmax again from the logits (two passes over a row) instead of keeping it, which would be the
 * largest tensor of the model a second time. */
#include <math.h>

#include "kernel/ref/ref.h"
#include "kernel/xent_parts.h"

/* Of the columns that are here. */
static struct xent_row row_here(const struct kernel_call *c, int64_t t)
{
    const struct view *logits = &c->in[XENT_LOGITS];
    int64_t target = xent_column(c, t);
    struct xent_row x = {-INFINITY, 0, target < 0 ? 0 : ref_get(logits, t, target)};
    if (at_vocab(&c->at)->plain) return (struct xent_row){0, 1, x.logit};
    for (int64_t v = 0; v < logits->n[1]; v++) x.max = fmax(x.max, ref_get(logits, t, v));
    for (int64_t v = 0; v < logits->n[1]; v++) x.sum += exp(ref_get(logits, t, v) - x.max);
    return x;
}

static struct xent_row row_whole(const struct kernel_call *c, int64_t t)
{
    return xent_has_parts(c) ? xent_combine(c, t) : row_here(c, t);
}

static void xent_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    double *nats_T = c->scratch;
    struct xent_row x = row_whole(c, t);
    nats_T[t] = xent_column(c, t) == -1 ? 0 : x.max + log(x.sum) - x.logit;
}

static double get(const struct view *v, int64_t r, int64_t c) { return ref_get(v, r, c); }

void xent_fwd_ref(const struct kernel_call *c)
{
    int64_t n_t = c->in[0].n[0], trained = 0;
    const double *nats_T = c->scratch;
    double nats = 0;
    ref_each_row(c, n_t, 0, xent_row);
    double *each = xent_each(c);
    for (int64_t t = 0; t < n_t; t++) {
        if (each) each[t] = nats_T[t];
        nats += nats_T[t];
        trained += xent_column(c, t) != -1;
    }
    ref_set(&c->out[0], 0, 0, ref_get(&c->out[0], 0, 0) + nats);
    ref_set(&c->out[0], 0, 1, ref_get(&c->out[0], 0, 1) + (double)trained);
    int64_t right = 0;
    for (int64_t t = 0; at_vocab(&c->at)->right && t < n_t; t++) right += xent_right(c, t, get);
    if (at_vocab(&c->at)->right) ref_set(&c->out[0], 0, 2, ref_get(&c->out[0], 0, 2) + (double)right);
}

static void xent_part_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    struct xent_row x = row_here(c, t);
    ref_set(&c->out[0], t, 0, x.max);
    ref_set(&c->out[0], t, 1, x.sum);
    ref_set(&c->out[0], t, 2, x.logit);
}

void xent_part_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, xent_part_row); }

static void xent_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    const struct view *logits = &c->in[0];
    int64_t target = xent_column(c, t);
    struct xent_row x = {0, 1, 0};
    if (target != -1) x = row_whole(c, t);
    for (int64_t v = 0; v < logits->n[1]; v++) {
        double share = at_vocab(&c->at)->plain ? 0 : exp(ref_get(logits, t, v) - x.max) / x.sum;
        double g = target == -1 ? 0 : share - (v == target);
        ref_put_grad(c, 0, t, v, g * (double)xent_scale(c, t));
    }
}

void xent_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, xent_dx_row); }

size_t xent_scratch_ref(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)c->in[0].n[0] * sizeof(double);
}
