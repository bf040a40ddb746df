/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of fewer bits of experts (attrs.h): shapes and costs, from those of the rows for one tensor. */
#include "kernel/ops.h"
#include "kernel/expert_parts.h"

static bool is_column(const struct view *v, int64_t n)
{
    return v->nd == 2 && v->dtype == DT_F32 && v->n[0] == n && v->n[1] == 1;
}

static const char *infer_parts(const struct parts_attrs *at, const struct view *x, const struct view *rows)
{
    NEED(x->nd == 2, "x must be a matrix");
    if (at->each) return at->each > 0 && x->n[0] % at->each == 0 ? NULL : "w must have as many rows for each expert";
    NEED(rows && rows->dtype == DT_I32 && (rows->nd == 1 || rows->nd == 2), "rows of parts must be i32");
    NEED(!at->sources || (rows->nd == 2 && rows->n[0] == at->sources), "rows must be those of every source");
    return NULL;
}

const char *infer_amax_parts(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct amax_parts_attrs *at = at_amax_parts(attrs);
    const struct view *rows = n_in > 1 && in[1].nd ? &in[1] : NULL;
    const struct op_attrs one = attrs_amax(at->amax);
    const char *why = infer_parts(&at->parts, &in[0], rows);
    if (!why) why = infer_amax(&one, 1, in, out);
    if (!why) out[0] = dense2(DT_F32, parts_count(&at->parts, rows, in[0].n[0]), 1);
    return why;
}

const char *infer_quantise_parts(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct quantise_parts_attrs *at = at_quantise_parts(attrs);
    const struct view *rows = n_in > 2 && in[2].nd ? &in[2] : NULL;
    const struct op_attrs one = attrs_quantise(at->quantise);
    const struct view amax = {.dtype = DT_F32, .nd = 1, .n = {1}, .stride = 1};
    const char *why = infer_parts(&at->parts, &in[0], rows);
    bool from_amax = at->quantise.scaling == SCALING_TENSOR || at->quantise.scaling == SCALING_NV;
    if (why) return why;
    int64_t n = parts_count(&at->parts, rows, in[0].n[0]);
    NEED(!from_amax || (n_in > 1 && is_column(&in[1], n)), "scales of parts need amax: one f32 each");
    NEED(!at->quantise.chance || (at->parts.tokens > 0 && at->parts.experts > 0), "rows by chance must be counted");
    why = infer_quantise(&one, 2, (struct view[2]){in[0], amax}, out);
    if (why) return why;
    if (from_amax) out[1] = dense2(DT_F32, n, 1);
    if (out[1].nd && !from_amax) out[1].n[0] = parts_blocks(&at->parts, rows, in[0].n[0], at->quantise.rows);
    return NULL;
}

static bool fits(const struct view *s, const struct scale_blocks *b, const struct parts_attrs *parts,
                 const struct view *rows, int64_t n_rows, int64_t n_cols)
{
    if (!s->nd) return true;
    if (!b->rows) return is_column(s, parts_count(parts, rows, n_rows));
    return s->nd == 2 && s->dtype == DT_F32 && b->cols > 0 && !b->row_at && !b->col_at &&
           s->n[0] == parts_blocks(parts, rows, n_rows, b->rows) && s->n[1] == (n_cols + b->cols - 1) / b->cols;
}

const char *infer_grouped_scaled(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct grouped_scaled_attrs *at = at_grouped_scaled(attrs);
    const struct op_attrs plain = ATTRS(grouped, .expected = at->expected);
    struct view as_rows[3] = {in[0], in[1], {.dtype = DT_I32, .nd = 1, .n = {view_cols(&in[2])}, .stride = 1}};
    const char *why = infer_parts(&at->parts, &in[0], &in[2]);
    if (!why) why = infer_grouped(&plain, 3, as_rows, out);
    if (why) return why;
    int64_t u = in[0].n[0], k = in[0].n[1], n = out[0].n[1];
    const struct parts_attrs of_w = {.each = n};
    NEED(n_in < 4 || fits(&in[3], &at->x, &at->parts, &in[2], u, k), "sx must be one f32 per part, or per block of x");
    NEED(n_in < 5 || fits(&in[4], &at->w, &of_w, NULL, in[1].n[0], k), "sw must be one f32 per expert, or per block");
    NEED(n_in < 6 || fits(&in[5], &at->dy, &at->parts, &in[2], u, n), "sdy must be one f32 per part, or per block");
    return NULL;
}

double flops_grouped_scaled(const struct kernel_call *c)
{
    struct kernel_call plain = *c;
    plain.at = ATTRS(grouped, .expected = at_grouped_scaled(&c->at)->expected);
    return flops_grouped(&plain);
}
