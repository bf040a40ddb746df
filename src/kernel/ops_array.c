/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of whole arrays: shapes and costs. */
#include <math.h>

#include "kernel/codec_rows.h"
#include "kernel/exponent_bins.h"
#include "kernel/flat.h"
#include "kernel/ops.h"
#include "kernel/packed_rows.h"
#include "kernel/rounded.h"
#include "kernel/update.h"
#include "kernel/words.h"

/* ---- shapes ---- */
static bool is_array(const struct view *v) { return v->nd == 1 && v->n[0] >= 0; }
static bool is_parts(const struct view *v) { return v->nd == 2 && v->n[0] > 0 && v->stride == v->n[1]; }

const char *infer_cast(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)n_in;
    NEED(is_array(&in[0]), "numbers are an array");
    out[0] = dense1(at_array(at)->to, in[0].n[0]);
    return NULL;
}

const char *infer_sum_into(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    const enum dtype t = at_array(at)->to, f = in[0].dtype;
    NEED((t == DT_F32 && f == DT_F32) || (t == DT_BF16 && (f == DT_F32 || f == DT_BF16)),
         "sums are of f32 into f32 or bf16, or of bf16 into bf16");
    return infer_cast(at, n_in, in, out);
}

const char *infer_sum_tree(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in;
    NEED(is_parts(&in[0]) && in[0].dtype == DT_F32, "parts are the rows of a dense matrix of f32");
    NEED(!(in[0].n[0] & (in[0].n[0] - 1)), "the parts of a tree are a power of two");
    out[0] = dense1(DT_F32, in[0].n[1]);
    return NULL;
}

const char *infer_sum_parts(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)n_in;
    NEED(is_parts(&in[0]) && is_float(in[0].dtype), "parts are the rows of a dense matrix");
    NEED(in[0].dtype == at_array(at)->to, "parts and their sum have one type");
    out[0] = dense1(in[0].dtype, in[0].n[1]);
    return NULL;
}

static const char *one_of(const struct view *in, enum dtype t, int64_t n, struct view *out)
{
    NEED(is_array(in), "numbers are an array");
    out[0] = dense1(t, n);
    return NULL;
}

const char *infer_sum_squares(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in;
    NEED(in[0].dtype == DT_F32, "squares are of f32");
    return one_of(in, DT_F64, 1, out);
}

const char *infer_exact_squares(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in;
    NEED(in[0].dtype == DT_F32, "squares are of f32");
    return one_of(in, DT_I64, FLAT_SQUARES_WORDS, out);
}

const char *infer_find_nonfinite(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in;
    return one_of(in, DT_I64, 1, out);
}

const char *infer_encode(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    const struct codec_attrs *c = at_codec(at);
    (void)n_in;
    NEED(is_array(&in[0]) && is_float(in[0].dtype), "numbers are an array of f32, bf16 or f16");
    NEED(in[0].n[0] == c->shape.rows * c->shape.cols, "numbers are rows * cols");
    out[0] = dense1(DT_U8, (int64_t)codec_bytes(c->codec, &c->shape, in[0].dtype));
    return NULL;
}

const char *infer_decode(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    const struct codec_attrs *c = at_codec(at);
    (void)n_in;
    NEED(in[0].nd == 2 && in[0].dtype == DT_U8 && in[0].n[0] > 0 && in[0].stride >= in[0].n[1],
         "codes are a matrix of bytes, a row for each part");
    NEED(in[0].n[1] == (int64_t)codec_bytes(c->codec, &c->shape, c->to), "codes are as many bytes as the codec writes");
    out[0] = dense1(c->to, c->shape.rows * c->shape.cols);
    return NULL;
}

const char *infer_unpack(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    const struct packed_attrs *p = at_packed(at);
    NEED(in[0].nd == 2 && in[0].dtype == DT_U8 && in[0].n[0] == p->rows &&
             in[0].n[1] == packing_row_bytes(p->packing, p->cols),
         "codes are a matrix of bytes, as many a row as the packing says");
    NEED(in[1].nd == 2 && in[1].dtype == DT_U8 && in[1].n[0] == p->rows &&
             in[1].n[1] == packing_row_blocks(p->packing, p->cols),
         "scales are a matrix of bytes, one for each block");
    NEED(n_in < 3 || in[2].dtype == DT_F32, "scales of scales are f32");
    out[0] = dense2(p->to, p->rows, p->cols);
    return NULL;
}

const char *infer_rounded(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    NEED(n_in >= 4 && in[0].nd == 2 && in[3].nd == 2 && in[3].n[1] == in[0].n[1], "what was rounded is a matrix");
    out[0] = dense2(DT_F64, 1, ROUNDED_NUMBERS); /* or as many rows as there are parts */
    return NULL;
}

const char *infer_exponents(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in;
    NEED(is_float(in[0].dtype), "numbers are f32, bf16 or f16");
    out[0] = dense1(DT_I64, EXPONENT_BINS);
    return NULL;
}

const char *infer_losses(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    enum dtype to = at_array(at)->to;
    (void)n_in;
    NEED(in[0].nd == 2 && in[0].dtype == DT_F64 && in[0].stride >= in[0].n[1],
         "losses are the rows of a matrix of f64");
    NEED(to == DT_F64 || to == DT_I64, "how many are not finite is an f64 or an i64");
    out[0] = dense1(to, 1);
    return NULL;
}

const char *infer_clip(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at, (void)n_in, (void)out;
    NEED(is_array(&in[0]) && in[0].dtype == DT_F64 && in[0].n[0] == STEP_WORDS, "a step has so many words");
    NEED((in[1].dtype == DT_F64 && in[1].n[0] == 1) || (in[1].dtype == DT_I64 && in[1].n[0] == FLAT_SQUARES_WORDS),
         "squares are one f64, or exact");
    NEED(in[2].dtype == in[1].dtype && in[2].n[0] == 1, "losses that are not finite are counted as squares are");
    return NULL;
}

/* ---- costs ---- */
static double elements(const struct view *v) { return v->nd ? (double)(view_rows(v) * view_cols(v)) : 0; }
static double size_of(const struct view *v) { return elements(v) * (double)dtype_bytes(v->dtype); }

/* What it adds to is read, too. */
double bytes_added(const struct kernel_call *c)
{
    bool add = c->op == OP_SUM_INTO ? at_array(&c->at)->add : at_codec(&c->at)->add;
    return bytes_whole(c) + (add ? size_of(&c->out[0]) : 0);
}

double bytes_update(const struct kernel_call *c)
{
    double sum = bytes_whole(c);
    for (int i = 0; i < c->n_in; i++)
        if (op_row(c->op)->changes_in >> i & 1) sum += size_of(&c->in[i]);
    return sum;
}

/* A handful per element. */
double flops_update(const struct kernel_call *c)
{
    double n = 0;
    for (int i = 0; i < c->n_in; i++) n = fmax(n, elements(&c->in[i]));
    return 8 * n;
}
