/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of matrices that are a direction and lengths: shapes, costs, mesh types.
 *
 * Types are those of the product beside: of out-features (S0) each rank has the lengths of its rows; of in-features
 * (S1) its squares are a part of the sum (P), which is reduced before it is used, and what is multiplied is partial,
 * too: then a magnitude's gradient is made of a part of x, and is a part of its sum (R). */
#include "kernel/ops.h"

/* *all: rows that have an adapter. */
static const char *parts_fit(const struct adapted_attrs *at, int64_t rows, int64_t *all)
{
    int64_t end = 0;
    *all = 0;
    NEED(at->n_parts > 0 && at->n_parts <= ADAPTED_PARTS, "a product has an adapter, or a few");
    for (int k = 0; k < at->n_parts; k++) {
        const struct adapted_part *p = &at->part[k];
        NEED(p->first >= end && p->n >= 0 && p->first + p->n <= rows, "parts must be rows of w, one after the other");
        end = p->first + p->n;
        *all += p->n;
    }
    return NULL;
}

const char *infer_adapted_squares(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct adapted_attrs *at = at_adapted(attrs);
    int64_t all;
    NEED(is_matrix(&in[0]) && is_matrix(&in[1]) && in[1].dtype == in[0].dtype && in[1].n[1] == in[0].n[1],
         "w and a must be float matrices of as many columns");
    const char *why = parts_fit(at, in[0].n[0], &all);
    if (why) return why;
    NEED(n_in == 2 + at->n_parts, "there must be a b for each part");
    for (int k = 0; k < at->n_parts; k++)
        NEED(is_matrix(&in[2 + k]) && in[2 + k].dtype == in[0].dtype && in[2 + k].n[0] == at->part[k].n &&
                 in[2 + k].n[1] == in[2].n[1] && in[2 + k].n[1] * at->n_parts == in[1].n[0],
             "b must have its part's rows, and as many columns as a has rows for it");
    out[0] = dense2(DT_F32, all, 2);
    return NULL;
}

const char *infer_magnitudes(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    int64_t all;
    NEED(is_matrix(&in[0]), "x must be a float matrix");
    const char *why = parts_fit(at_adapted(attrs), in[0].n[1], &all);
    if (why) return why;
    NEED(in[1].nd == 2 && in[1].dtype == DT_F32 && in[1].n[0] == all && in[1].n[1] == 2,
         "s must be f32, two for each row that has an adapter");
    NEED(is_vector_of(&in[2], in[0].dtype, all), "m must be of x's dtype, one for each such row");
    NEED(n_in < 4 || is_vector_of(&in[3], in[0].dtype, in[0].n[1]), "bias must be of x's dtype, one per column");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

double flops_adapted_squares(const struct kernel_call *c)
{
    double rank = (double)c->in[2].n[1];
    return (double)c->out[0].n[0] * (double)c->in[0].n[1] * (2 * rank + 4);
}

double flops_magnitudes(const struct kernel_call *c)
{
    const struct view *x = c->phase == KERNEL_FWD ? &c->in[0] : &c->dout[0];
    return 2.0 * (double)x->n[0] * (double)x->n[1];
}

const char *rule_adapted_squares(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    static const enum spmd lines[][4] = {/* w, a, b -> s */
                                         {SPMD_I, SPMD_I, SPMD_I, SPMD_I},
                                         {SPMD_R, SPMD_R, SPMD_R, SPMD_R},
                                         {SPMD_S0, SPMD_R, SPMD_S0, SPMD_S0},
                                         {SPMD_S1, SPMD_S1, SPMD_R, SPMD_P}};
    (void)at;
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        bool fits = in[0] == lines[l][0] && in[1] == lines[l][1];
        for (int i = 2; i < n_in; i++) fits = fits && in[i] == lines[l][2];
        if (fits) return out[0] = lines[l][3], NULL;
    }
    return "w, a and b must be whole, or split as a product's adapter is: S0 with R and S0, S1 with S1 and R";
}

const char *rule_magnitudes(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    static const enum spmd lines[][4] = {/* x, s, m, bias */
                                         {SPMD_I, SPMD_I, SPMD_I, SPMD_I},     {SPMD_R, SPMD_R, SPMD_R, SPMD_R},
                                         {SPMD_V, SPMD_R, SPMD_R, SPMD_R},     {SPMD_S0, SPMD_R, SPMD_R, SPMD_R},
                                         {SPMD_S1, SPMD_S0, SPMD_S0, SPMD_S0}, {SPMD_P, SPMD_I, SPMD_R, SPMD_I}};
    (void)at;
    if (in[1] == SPMD_P) return "the squares are a part of the sum over the axis: reduce them first";
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        bool fits = in[0] == lines[l][0] && in[1] == lines[l][1] && in[2] == lines[l][2];
        if (fits && (n_in < 4 || in[3] == lines[l][3])) return out[0] = in[0], NULL;
    }
    return "s and m must be split as x's columns are, R where tokens differ by rank; of a partial x m is R, and s and "
           "the bias are I";
}
