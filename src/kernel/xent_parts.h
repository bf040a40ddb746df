/* SPDX-License-Identifier: Apache-2.0 */
/* xent_parts.h: cross-entropy over a vocabulary that several ranks share, for every kernel family: where a target
 * stands in a part, and how the parts' statistics become the whole row's. Floors 0-1 and kernel.h only. Order: Local.
 *
 *   max = max_p m_p     sum = sum_p s_p exp(m_p - max)     nats = max + log(sum) - target's logit (0 but in one part)
 *
 * Parts are combined in rank order, in double: every rank finds the same bits. (Shoeybi et al. 2019, section 3.)
 */
#ifndef TUTTI_KERNEL_XENT_PARTS_H
#define TUTTI_KERNEL_XENT_PARTS_H

#include <math.h>

#include "kernel/kernel.h"

enum { XENT_LOGITS, XENT_TARGET, XENT_STATS, XENT_STATS_N = 3, XENT_EACH = 2 };

/* -1: not trained; -2: in another part; else the column. */
static inline int64_t xent_column(const struct kernel_call *c, int64_t r)
{
    int32_t target = ((const int32_t *)c->in[XENT_TARGET].p)[r];
    const struct vocab_attrs *v = at_vocab(&c->at);
    int64_t n = c->in[XENT_LOGITS].n[1], whole = v->whole ? v->whole : n, at = target - v->first;
    CHECK(target >= -1 && target < whole, "token %lld has target %d, the vocabulary has %lld", (long long)r,
          (int)target, (long long)whole);
    return target < 0 ? -1 : at >= 0 && at < n ? at : -2;
}

struct xent_row {
    double max, sum, logit; /* of the whole row */
};

static inline struct xent_row xent_combine(const struct kernel_call *c, int64_t r)
{
    const struct view *s = &c->in[XENT_STATS];
    int64_t rows = c->in[XENT_LOGITS].n[0];
    int parts = at_vocab(&c->at)->n_parts;
    struct xent_row x = {-INFINITY, 0, 0};
    for (int p = 0; p < parts; p++) {
        const float *v = (const float *)s->p + (p * rows + r) * s->stride;
        x.max =
            (double)v[0] > x.max ? (double)v[0] : x.max; /* as fmax; with it gcc 12 for Arm ends in an internal error */
        x.logit += (double)v[2];
    }
    for (int p = 0; p < parts; p++) {
        const float *v = (const float *)s->p + (p * rows + r) * s->stride;
        if (v[1] > 0) x.sum += (double)v[1] * exp((double)v[0] - x.max);
    }
    return x;
}

/* Whether the target's logit is the largest of the row, of equal ones the first. get: of this call's logits. */
static inline bool xent_right(const struct kernel_call *c, int64_t r,
                              double (*get)(const struct view *, int64_t, int64_t))
{
    const struct view *x = &c->in[XENT_LOGITS];
    int64_t target = xent_column(c, r);
    if (target < 0) return false;
    double mine = get(x, r, target);
    for (int64_t v = 0; v < x->n[1]; v++)
        if (v != target && !(v < target ? get(x, r, v) < mine : get(x, r, v) <= mine)) return false;
    return true;
}

static inline bool xent_has_parts(const struct kernel_call *c) { return at_vocab(&c->at)->n_parts > 0; }

/* What row r of the gradient is multiplied by. */
static inline float xent_scale(const struct kernel_call *c, int64_t r)
{
    float scale = c->step->loss_scale, times = at_vocab(&c->at)->times;
    if (times != 0) scale *= times;
    return at_vocab(&c->at)->each ? scale * ((const float *)c->in[c->n_in - 1].p)[r] : scale;
}

/* Where the nats of row 0 are told; NULL: they are not. */
static inline double *xent_each(const struct kernel_call *c)
{
    const struct vocab_attrs *v = at_vocab(&c->at);
    return v->each ? (double *)c->out[0].p + XENT_EACH + v->at : NULL;
}

#endif
