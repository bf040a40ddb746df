/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes of the operations: checks the inputs, fills in the outputs (dense, p = NULL). Texts are
 * constant and name the input and the wish; the tape puts the operation's name and the actual shapes around them.
 * Checks that depend on data (ids in range, positions in the table) are the kernels'. */
#include "kernel/ops.h"
#include "kernel/pictures.h"
#include "layout/sequence.h"
#include "layout/region.h"

const char *infer_embed(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct vocab_attrs *at = at_vocab(attrs);
    (void)n_in;
    NEED(is_vector(&in[0], DT_I32), "ids must be a vector of i32");
    NEED(is_matrix(&in[1]), "w must be a float matrix: vocabulary by hidden");
    NEED(at->first >= 0 && (!at->whole || at->first + in[1].n[0] <= at->whole),
         "w's rows must lie inside the vocabulary");
    out[0] = dense2(in[1].dtype, in[0].n[0], in[1].n[1]);
    return NULL;
}

const char *infer_linear(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by in-features");
    NEED(is_matrix(&in[1]), "w must be a float matrix: out-features by in-features");
    NEED(in[0].dtype == in[1].dtype, "x and w must have the same dtype");
    NEED(in[0].n[1] == in[1].n[1], "x's columns and w's columns (in-features) differ");
    if (n_in > 2) {
        NEED(is_vector(&in[2], in[0].dtype), "bias must be a vector of x's dtype");
        NEED(in[2].n[0] == in[1].n[0], "bias must have one element per out-feature (w's rows)");
    }
    out[0] = dense2(in[0].dtype, in[0].n[0], in[1].n[0]);
    return NULL;
}

static const char *infer_norm(const struct view *in, int n_weights)
{
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by hidden");
    for (int i = 1; i <= n_weights; i++)
        NEED(is_vector(&in[i], in[0].dtype) && in[i].n[0] == in[0].n[1],
             "the norm's weights must be vectors of x's dtype, one element per column of x");
    return NULL;
}

const char *infer_rmsnorm(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct norm_attrs *at = at_norm(attrs);
    (void)n_in;
    NEED(at->eps > 0, "eps must be positive");
    const char *why = infer_norm(in, 1);
    if (why) return why;
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense1(DT_F32, in[0].n[0]);
    return NULL;
}

const char *infer_headnorm(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct norm_attrs *at = at_norm(attrs);
    (void)n_in;
    NEED(at->eps > 0, "eps must be positive");
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by heads * head_dim");
    NEED(at->heads >= 0 && is_vector(&in[1], in[0].dtype) && at->heads * in[1].n[0] == in[0].n[1],
         "the norm's weights must be a vector of x's dtype, one element per column of a head");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

const char *infer_squares(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    (void)attrs, (void)n_in;
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by features");
    out[0] = dense2(DT_F32, in[0].n[0], 1);
    return NULL;
}

const char *infer_norm_by(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct norm_attrs *at = at_norm(attrs);
    (void)n_in;
    NEED(at->eps > 0, "eps must be positive");
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by features");
    NEED(at->whole >= in[0].n[1] && at->whole > 0, "all columns must be as many as x's at least");
    NEED(in[1].nd == 2 && in[1].dtype == DT_F32 && in[1].n[0] == in[0].n[0] && in[1].n[1] == 1,
         "the sums of squares must be f32, one per token");
    NEED(is_vector(&in[2], in[0].dtype) && in[2].n[0] == in[0].n[1],
         "the norm's weights must be a vector of x's dtype, one element per column of x");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_layernorm(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct norm_attrs *at = at_norm(attrs);
    (void)n_in;
    NEED(at->eps > 0, "eps must be positive");
    const char *why = infer_norm(in, 2);
    if (why) return why;
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], 2);
    return NULL;
}

const char *infer_rotary(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct rotary_attrs *at = at_rotary(attrs);
    (void)n_in;
    NEED(at->heads >= 0 && at->head_dim > 0 && (at->head_dim % 2 == 0 || at->dim),
         "heads must be positive and head_dim even");
    NEED(is_matrix(&in[0]) && in[0].n[1] == (int64_t)at->heads * at->head_dim,
         "x must be a float matrix: tokens by heads * head_dim");
    NEED(is_vector(&in[1], DT_I32) && in[1].n[0] == in[0].n[0], "positions must be i32, one per token");
    NEED(at->dim >= 0 && at->at >= 0 && at->at + at->dim <= at->head_dim && at->dim % 2 == 0,
         "the part of a head that is turned must lie inside it and be even");
    NEED(in[2].nd == 2 && in[2].dtype == DT_F32 && in[2].n[1] == (at->dim ? at->dim : at->head_dim),
         "the table must be f32: positions by the columns that are turned (cosines, then sines)");
    out[0] = in[0];
    out[0].p = NULL;
    return NULL;
}

const char *infer_act(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct act_attrs *at = at_act(attrs);
    (void)n_in;
    NEED((int)at->kind >= 0 && at->kind < ACT_N, "no such activation");
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by features");
    bool gated = act_gated(at->kind);
    NEED((at->kind != ACT_CAP && at->kind != ACT_CLAMPED && at->kind != ACT_TIMES) || at->cap > 0,
         "the cap must be positive");
    NEED(!gated || in[0].n[1] % 2 == 0, "a gated activation needs an even number of columns: gate, then up");
    out[0] = dense2(in[0].dtype, in[0].n[0], gated ? in[0].n[1] / 2 : in[0].n[1]);
    return NULL;
}

const char *infer_dropout(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct dropout_attrs *at = at_dropout(attrs);
    (void)n_in;
    NEED(at->p >= 0 && at->p < 1, "dropout must be in [0, 1)");
    NEED(is_matrix(&in[0]), "the input must be a float matrix: tokens by hidden");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_add(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    NEED(is_matrix(&in[1]) && in[0].nd == 2 && in[0].dtype == in[1].dtype && in[0].n[0] == in[1].n[0] &&
             in[0].n[1] == in[1].n[1],
         "a and b must be float matrices of one shape and dtype");
    return infer_dropout(attrs, n_in, in, out);
}

static const char *infer_logits(const struct vocab_attrs *at, const struct view *in)
{
    NEED(is_matrix(&in[0]), "logits must be a float matrix: tokens by vocabulary");
    NEED(is_vector(&in[1], DT_I32) && in[1].n[0] == in[0].n[0], "targets must be i32, one per token");
    NEED(at->first >= 0 && (!at->whole || at->first + in[0].n[1] <= at->whole),
         "logits must lie inside the vocabulary");
    return NULL;
}

const char *infer_xent(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct vocab_attrs *at = at_vocab(attrs);
    const char *why = infer_logits(at, in);
    if (why) return why;
    NEED(n_in == 2 + (at->n_parts > 0) + (at->each > 0),
         "stats come with parts, factors with what is told of each token");
    if (at->n_parts > 0)
        NEED(in[2].nd == 2 && in[2].dtype == DT_F32 && in[2].n[0] == at->n_parts * in[0].n[0] && in[2].n[1] == 3,
             "stats must be f32: 3 per token and part");
    NEED(!at->right || n_in == 2, "what is right is counted from whole rows of logits");
    NEED(!at->plain || (n_in == 2 && !at->right), "scores are whole rows, and nothing of them is right");
    if (at->each)
        NEED(is_vector(&in[n_in - 1], DT_F32) && in[n_in - 1].n[0] == in[0].n[0] && at->at >= 0 &&
                 at->at + in[0].n[0] <= at->each,
             "factors must be f32, one per token, and the tokens lie inside those that are told");
    out[0] = dense1(DT_F64, at->right ? 3 : 2 + at->each);
    return NULL;
}

const char *infer_xent_part(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct vocab_attrs *at = at_vocab(attrs);
    (void)n_in;
    const char *why = infer_logits(at, in);
    if (why) return why;
    out[0] = dense2(DT_F32, in[0].n[0], 3);
    return NULL;
}

const char *infer_copy(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    (void)n_in;
    enum dtype to = out[0].dtype;
    NEED(in[0].nd >= 1 && in[0].nd <= KERNEL_MAX_DIM, "x must have 1 to 4 dims");
    NEED((int)to >= 0 && to < DT_N && dtype_info(to)->is_float && dtype_info(in[0].dtype)->is_float,
         "copy casts between float types");
    out[0] = in[0];
    out[0].p = NULL;
    out[0].dtype = to;
    out[0].stride = view_cols(&in[0]);
    return NULL;
}

const char *infer_join(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    (void)n_in;
    NEED(is_matrix(&in[0]) && is_matrix(&in[1]) && in[0].dtype == in[1].dtype && in[0].n[0] == in[1].n[0],
         "both must be float matrices with a row for each token");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1] + in[1].n[1]);
    return NULL;
}

/* ---- pictures ---- */
static const char *infer_picture_rows(const struct picture_rows *a)
{
    NEED(a->batch > 0 && a->seq > 1 && a->parts > 0 && a->part >= 0 && a->part < a->parts,
         "rows must be of pictures of two places or more, of a part that there is");
    NEED(a->first >= 0 && a->rows >= 0 && a->first + a->rows <= a->batch * picture_rows_each(a),
         "the rows must lie among those of the part");
    return NULL;
}

const char *infer_patches(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct patches_attrs *at = at_patches(attrs);
    const char *why = infer_picture_rows(&at->at);
    enum dtype to = out[0].dtype;
    (void)n_in;
    NEED(!why, why);
    NEED(at->channels > 0 && at->patch > 0 && at->image > 0 && at->image % at->patch == 0,
         "a picture must be cut into whole patches");
    NEED(patches_lead(at) == 0 || patches_lead(at) == 1,
         "a picture has a place for each patch, and one or none for its class");
    NEED(is_matrix(&in[0]) && in[0].dtype == DT_F32 && in[0].n[0] == at->at.batch &&
             in[0].n[1] == at->channels * at->image * at->image,
         "pixels must be f32: pictures by channels * rows * columns");
    out[0] = dense2(to, at->at.rows, at->channels * at->patch * at->patch);
    NEED(is_float(out[0].dtype), "patches are f32, bf16 or f16");
    out[1] = out[2] = dense1(DT_I32, at->at.rows);
    return NULL;
}

const char *infer_pool(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct pool_attrs *at = at_pool(attrs);
    const char *why = infer_picture_rows(&at->at);
    (void)n_in;
    NEED(!why, why);
    NEED((int)at->kind >= 0 && at->kind < POOL_N, "no such pool");
    NEED(is_matrix(&in[0]) && in[0].n[0] == at->at.rows, "x must be a float matrix: the rows by hidden");
    out[0] = dense2(in[0].dtype, at->at.batch, in[0].n[1]);
    return NULL;
}

const char *infer_insert(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct picture_rows *a = &at_insert(attrs)->at;
    (void)n_in;
    NEED(a->batch > 0 && a->seq > 0 && a->parts > 0 && a->part >= 0 && a->part < a->parts,
         "rows must be of texts, of a part that there is");
    NEED(a->first >= 0 && a->rows >= 0 && a->first + a->rows <= a->batch * picture_rows_each(a),
         "the rows must lie among those of the part");
    NEED(is_matrix(&in[0]) && in[0].n[0] == a->rows, "x must be a float matrix: the rows by hidden");
    NEED(in[1].dtype == DT_I32 && in[1].nd == 1 && in[1].n[0] == a->rows,
         "which rows are replaced is i32, one per row");
    NEED(is_matrix(&in[2]) && in[2].dtype == in[0].dtype && in[2].n[1] == in[0].n[1] && in[2].n[0] % a->batch == 0,
         "what they become has the dtype and columns of x, and as many rows for each sequence");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

/* ---- collectives ---- */
const char *infer_same(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    (void)n_in;
    NEED(in[0].nd == 2, "x must have 2 dims");
    out[0] = in[0];
    out[0].p = NULL;
    out[0].stride = view_cols(&in[0]);
    return NULL;
}

int64_t op_rows_here(const struct rows_attrs *at, int part)
{
    int64_t lo, hi;
    if (at->seq) return at->batch * context_rows(at->seq, at->over.n_parts, part, 1);
    region_split(at->whole, part, at->over.n_parts, &lo, &hi);
    return hi - lo;
}

const char *infer_rows_whole(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct rows_attrs *at = at_rows(attrs);
    const char *why = infer_same(attrs, n_in, in, out);
    if (why) return why;
    NEED(in[0].n[0] == op_rows_here(at, at->over.part), "x must hold this rank's rows of the whole");
    out[0].n[0] = at->whole;
    return NULL;
}

const char *infer_rows_part(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct rows_attrs *at = at_rows(attrs);
    const char *why = infer_same(attrs, n_in, in, out);
    if (why) return why;
    NEED(in[0].n[0] == at->whole, "x must hold all rows");
    out[0].n[0] = op_rows_here(at, at->over.part);
    return NULL;
}
