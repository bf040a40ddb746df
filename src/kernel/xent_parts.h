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
#include "kernel/xent_row.h"

enum { XENT_LOGITS, XENT_TARGET, XENT_STATS, XENT_STATS_N = 3, XENT_EACH = 2 };

/* -1: not trained; -2: in another part; else the column. */
static inline int64_t xent_column(const struct kernel_call *c, int64_t r)
{
    int32_t target = ((const int32_t *)c->in[XENT_TARGET].p)[r];
    const struct vocab_attrs *v = at_vocab(&c->at);
    int64_t n = c->in[XENT_LOGITS].n[1], whole = v->whole ? v->whole : n, at = xent_place(target, v->first, whole, n);
    CHECK(at != XENT_NONE, "token %lld has target %d, the vocabulary has %lld", (long long)r, (int)target,
          (long long)whole);
    return at;
}

static inline struct xent_row xent_combine(const struct kernel_call *c, int64_t r)
{
    const struct view *s = &c->in[XENT_STATS];
    return xent_whole_row((const float *)s->p + r * s->stride, c->in[XENT_LOGITS].n[0] * s->stride,
                          at_vocab(&c->at)->n_parts);
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
