/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of fewer bits (attrs.h): shapes, costs, and the rule of mesh types, which is that they are not recorded:
 * lowering puts them around products whose types were checked before. */
#include "kernel/ops.h"

static bool is_wide(const struct view *v)
{
    return v->nd == 2 && (v->dtype == DT_F32 || v->dtype == DT_BF16) && v->stride >= v->n[1];
}
static bool is_one(const struct view *v) { return v->nd == 1 && v->dtype == DT_F32 && v->n[0] == 1; }

static const char *infer_rotate(const struct rotate_attrs *at)
{
    NEED((int)at->along >= ROTATE_NOT && at->along <= ALONG_COLS, "no such direction of rotation");
    return NULL;
}

const char *infer_amax(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    (void)n_in;
    NEED(is_wide(&in[0]), "x must be a matrix of f32 or bf16");
    const char *why = infer_rotate(&at_amax(attrs)->rotate);
    if (why) return why;
    out[0] = dense1(DT_F32, 1);
    return NULL;
}

/* Blocks that rows [first, first + n) touch. */
static int64_t blocks_of(int64_t first, int64_t n, int each) { return (first % each + n + each - 1) / each; }

static const char *infer_block(const struct quantise_attrs *at)
{
    bool along = at->rows == 1 || at->cols == 1, square = at->rows == at->cols;
    switch (at->scaling) {
    case SCALING_TENSOR: return NULL;
    case SCALING_BLOCK: NEED(at->rows > 0 && at->cols > 0, "a block must have rows and columns"); return NULL;
    case SCALING_MX:
        NEED(along && at->rows * at->cols == 32, "MX has blocks of 32 elements along rows or columns");
        return NULL;
    case SCALING_NV:
        NEED(at->format == FORMAT_E2M1, "NV is of E2M1");
        NEED((along && at->rows * at->cols == 16) || (square && at->rows == 16), "NV has blocks of 16 or 16 x 16");
        return NULL;
    case SCALING_N: break;
    }
    return "no such scaling";
}

const char *infer_quantise(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct quantise_attrs *at = at_quantise(attrs);
    NEED(is_wide(&in[0]), "x must be a matrix of f32 or bf16");
    NEED(at->format == FORMAT_E4M3 || at->format == FORMAT_E5M2 || at->format == FORMAT_E3M2 ||
             at->format == FORMAT_E2M3 || at->format == FORMAT_E2M1,
         "the format must be e4m3, e5m2, e3m2, e2m3 or e2m1");
    const char *why = infer_rotate(&at->rotate);
    if (!why) why = infer_block(at);
    if (why) return why;
    bool from_amax = at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV;
    NEED(!from_amax || (n_in > 1 && is_one(&in[1])), "the tensor's scale needs amax: one f32");
    NEED(n_in < 3 || !in[2].nd || (in[2].nd == 1 && in[2].dtype == DT_I32 && in[2].n[0] == in[0].n[0]),
         "the index must be i32, one per row");
    NEED(at->first_row >= 0 && at->first_col >= 0 && (!at->whole_cols || at->first_col + in[0].n[1] <= at->whole_cols),
         "x must lie inside the whole tensor");
    NEED((at->rotate.along != ALONG_ROWS || at->first_row % 16 == 0) &&
             (at->rotate.along != ALONG_COLS || at->first_col % 16 == 0),
         "a piece that is rotated must begin at a multiple of 16");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = (struct view){.dtype = DT_F32};
    if (from_amax) out[1] = dense1(DT_F32, 1);
    if (at->scaling == SCALING_BLOCK && !at->power_of_two) {
        int64_t cols = blocks_of(at->first_col, in[0].n[1], at->cols);
        out[1] = dense2(DT_F32, blocks_of(at->first_row, in[0].n[0], at->rows), cols);
    }
    return NULL;
}

static bool fits_blocks(const struct view *s, const struct scale_blocks *b, int64_t rows, int64_t cols)
{
    if (!s->nd || is_one(s)) return true;
    return b->rows > 0 && b->cols > 0 && b->row_at >= 0 && b->row_at < b->rows && b->col_at >= 0 &&
           b->col_at < b->cols && s->nd == 2 && s->dtype == DT_F32 && s->n[0] == blocks_of(b->row_at, rows, b->rows) &&
           s->n[1] == blocks_of(b->col_at, cols, b->cols);
}

const char *infer_linear_scaled(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct linear_scaled_attrs *at = at_linear_scaled(attrs);
    const struct op_attrs plain = ATTRS(linear, .bias_off = at->bias_off);
    NEED(is_wide(&in[0]), "x must be a matrix of f32 or bf16: tokens by in-features");
    const char *why = infer_linear(&plain, n_in > 2 && in[2].nd ? 3 : 2, in, out);
    if (why) return why;
    int64_t t = in[0].n[0], k = in[0].n[1], n = in[1].n[0];
    NEED(n_in < 4 || fits_blocks(&in[3], &at->x, t, k), "sx must be one f32, or one per block of x");
    NEED(n_in < 5 || fits_blocks(&in[4], &at->w, n, k), "sw must be one f32, or one per block of w");
    NEED(n_in < 6 || fits_blocks(&in[5], &at->dy, t, n), "sdy must be one f32, or one per block of dy");
    return NULL;
}

double flops_linear_scaled(const struct kernel_call *c)
{
    double tokens = (double)view_rows(&c->in[0]), out_features = (double)c->in[1].n[0];
    bool bias = c->phase == KERNEL_FWD && c->n_in > 2 && c->in[2].nd;
    return 2 * tokens * out_features * (double)view_cols(&c->in[0]) + (bias ? tokens * out_features : 0);
}

const char *rule_lowered(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    (void)n_in;
    (void)in;
    (void)out;
    return "lowering puts this row in: it is not recorded";
}
