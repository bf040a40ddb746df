/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices that are a direction and lengths (attrs.h): v = w + times b a of some rows, g = (|w| + m) / |v|;
 *   y = x g + bias, dx = dy g, dm = sum over tokens of dy x / |v|, dbias = sum of dy. */
#include <math.h>

#include "kernel/ref/ref.h"

/* Which part row i of all that have an adapter belongs to; *i: which of its own it is. */
static int part_of(const struct adapted_attrs *at, int64_t *i)
{
    int k = 0;
    while (*i >= at->part[k].n) *i -= at->part[k++].n;
    return k;
}

static void squares_row(const struct kernel_call *c, int64_t i, double *mine)
{
    (void)mine;
    const struct adapted_attrs *at = at_adapted(&c->at);
    int64_t row = i, rank = c->in[2].n[1];
    int k = part_of(at, &row);
    double was = 0, is = 0;
    for (int64_t d = 0; d < c->in[0].n[1]; d++) {
        double add = 0;
        for (int64_t r = 0; r < rank; r++) add += ref_get(&c->in[2 + k], row, r) * ref_get(&c->in[1], k * rank + r, d);
        double w = ref_get(&c->in[0], at->part[k].first + row, d), v = w + (double)at->times * add;
        was += w * w;
        is += v * v;
    }
    ref_set(&c->out[0], i, 0, was);
    ref_set(&c->out[0], i, 1, is);
}

void adapted_squares_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, squares_row); }

/* Which of all rows that have an adapter column d is of; -1: of none. */
static int64_t adapted_of(const struct adapted_attrs *at, int64_t d)
{
    int64_t before = 0;
    for (int k = 0; k < at->n_parts; before += at->part[k++].n)
        if (d >= at->part[k].first && d < at->part[k].first + at->part[k].n) return before + d - at->part[k].first;
    return -1;
}

/* Of the row as it was, or as it is. */
static double length_of(const struct kernel_call *c, int64_t i, int which)
{
    return sqrt(ref_get(&c->in[1], i, which));
}

static double times_of(const struct kernel_call *c, int64_t d)
{
    int64_t i = adapted_of(at_adapted(&c->at), d);
    double length = i < 0 ? 0 : length_of(c, i, 1);
    return length > 0 ? (length_of(c, i, 0) + ref_get(&c->in[2], 0, i)) / length : 1;
}

static void magnitudes_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    bool bias = c->n_in > 3 && !at_adapted(&c->at)->bias_off;
    for (int64_t d = 0; d < c->in[0].n[1]; d++)
        ref_set(&c->out[0], t, d, ref_get(&c->in[0], t, d) * times_of(c, d) + (bias ? ref_get(&c->in[3], 0, d) : 0));
}

static void magnitudes_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t d = 0; d < c->dout[0].n[1]; d++) ref_put_grad(c, 0, t, d, ref_get(&c->dout[0], t, d) * times_of(c, d));
}

static void magnitudes_dw_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    int64_t i = adapted_of(at_adapted(&c->at), d);
    double dm = 0, db = 0, length = i < 0 ? 0 : length_of(c, i, 1);
    for (int64_t t = 0; t < c->dout[0].n[0]; t++) {
        double dy = ref_get(&c->dout[0], t, d);
        if (length > 0) dm += dy * ref_get(&c->in[0], t, d);
        db += dy;
    }
    if (i >= 0) ref_put_grad(c, 2, 0, i, length > 0 ? dm / length : 0);
    if (c->n_in > 3) ref_put_grad(c, 3, 0, d, db);
}

void magnitudes_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, magnitudes_row); }

void magnitudes_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, magnitudes_dx_row); }

void magnitudes_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[1], 0, magnitudes_dw_column); }
