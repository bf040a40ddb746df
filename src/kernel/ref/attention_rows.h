/* SPDX-License-Identifier: Apache-2.0 */
/* attention_rows.h: what attention of whole sequences and of parts of them share in the reference: products of rows,
 * and dropout by position. Only src/kernel/ref/ includes this. Order: Local. */
#ifndef TUTTI_KERNEL_REF_ATTENTION_ROWS_H
#define TUTTI_KERNEL_REF_ATTENTION_ROWS_H

#include <math.h>

#include "kernel/attention_heads.h"
#include "kernel/dropout.h"
#include "kernel/ref/ref.h"

/* The gradient of the sinks, each a sum over all queries of the call. */
void ref_sinks_bwd(const struct kernel_call *c);

/* Product of `n` elements of a row of a and a row of b. */
static inline double ref_dot(const struct view *a, int64_t ra, int64_t ca, const struct view *b, int64_t rb, int64_t cb,
                             int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ref_get(a, ra, ca + i) * ref_get(b, rb, cb + i);
    return sum;
}

/* A score from q.k, and its slope: scaled, and under a soft cap where there is one. */
struct score {
    double y, slope;
};
static inline struct score ref_score(const struct attention_attrs *at, double qk)
{
    double s = (double)at->scale * qk, cap = (double)at->cap;
    if (cap <= 0) return (struct score){s, (double)at->scale};
    double th = tanh(s / cap);
    return (struct score){cap * th, (double)at->scale * (1 - th * th)};
}

/* The sink of head h; -INFINITY: there is none. */
static inline double ref_sink(const struct kernel_call *c, int64_t h)
{
    const struct view *sink = attention_sinks(c);
    return sink ? ref_get(sink, 0, h) : -INFINITY;
}

/* What the probability of query i of head h for key j of sequence b of the call is multiplied by: 0 where it is
 * dropped. */
static inline double ref_drop_factor(const struct kernel_call *c, const struct attention_attrs *at, int64_t b,
                                     int64_t h, int64_t i, int64_t j)
{
    if (!dropout_active(&at->dropout, c->step)) return 1;
    uint64_t seq = (uint64_t)at->seq, sequence = c->step->first_token / seq + (uint64_t)b;
    uint64_t index = (attention_drop_row(at, sequence, (uint64_t)h) * seq + (uint64_t)i) * seq + (uint64_t)j;
    bool keep = dropout_keep(c->step->seed, at->dropout.stream, c->step->step, index, at->dropout.p);
    return keep ? (double)dropout_scale(at->dropout.p) : 0;
}

#endif
