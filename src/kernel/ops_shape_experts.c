/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes of experts: the choice, its balance, rows sorted by expert, products of them, and their way to the
 * ranks that hold the experts. */
#include "kernel/ops.h"
#include "layout/region.h"

static bool is_ints(const struct view *v, int64_t rows, int64_t cols)
{
    return v->nd == 2 && v->dtype == DT_I32 && v->n[0] == rows && v->n[1] == cols;
}

static const char *infer_choice(int experts, int top_k)
{
    NEED(experts > 0 && top_k > 0 && top_k <= experts, "top_k must be from 1 to the number of experts");
    return NULL;
}

const char *infer_router(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct router_attrs *at = at_router(attrs);
    const char *why = infer_choice(at->experts, at->top_k);
    if (why) return why;
    NEED(is_matrix(&in[0]) && in[0].n[1] == at->experts, "logits must be a float matrix: tokens by experts");
    if (n_in > 1)
        NEED(in[1].nd == 1 && is_float(in[1].dtype) && in[1].n[0] == at->experts,
             "the bias must have one element per expert");
    NEED(at->groups == 0 || (at->experts % at->groups == 0 && at->top_groups > 0 && at->top_groups <= at->groups &&
                             at->top_k <= at->experts / at->groups * at->top_groups),
         "groups must divide the experts, and top_groups of them must hold top_k experts");
    NEED(!at->group_pairs || at->groups == 0 || at->experts / at->groups >= 2, "a group by pairs needs two experts");
    out[0] = dense2(DT_F32, in[0].n[0], at->top_k);
    out[1] = dense2(DT_I32, in[0].n[0], at->top_k);
    return NULL;
}

/* Tokens [first, first + n) of the microbatch. */
static const char *infer_tokens(const struct tokens_at *at, int64_t n)
{
    NEED(at->batch >= 0 && at->seq >= 0 && at->first >= 0 && at->first + n <= at->batch * at->seq,
         "tokens must lie in the microbatch of batch * seq");
    return NULL;
}

const char *infer_load(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct load_attrs *at = at_load(attrs);
    (void)n_in;
    const char *why = infer_choice(at->experts, at->top_k);
    if (!why) why = infer_tokens(&at->tokens, in[0].n[0]);
    if (why) return why;
    NEED(is_ints(&in[0], in[0].n[0], at->top_k), "picks must be i32: tokens by top_k");
    NEED(is_vector(&in[1], DT_I32) && in[1].n[0] == in[0].n[0], "targets must be i32, one per token");
    out[0] = dense2(DT_F32, at->tokens.batch, at->experts + 1);
    return NULL;
}

const char *infer_balance(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct balance_attrs *at = at_balance(attrs);
    (void)n_in;
    const char *why = infer_choice(at->experts, at->top_k);
    if (!why) why = infer_tokens(&at->tokens, in[0].n[0]);
    if (why) return why;
    int64_t tokens = in[0].n[0], experts = at->experts;
    NEED(is_matrix(&in[0]) && in[0].n[1] == experts, "logits must be a float matrix: tokens by experts");
    NEED(is_ints(&in[1], tokens, at->top_k), "picks must be i32: tokens by top_k");
    NEED(is_vector(&in[2], DT_I32) && in[2].n[0] == tokens, "targets must be i32, one per token");
    NEED(in[3].nd == 2 && in[3].dtype == DT_F32 && in[3].n[0] == at->tokens.batch && in[3].n[1] == experts + 1,
         "the load must be f32: sequences by experts + 1");
    out[0] = dense1(DT_F64, experts + 2);
    return NULL;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

const char *infer_permute(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct permute_attrs *at = at_permute(attrs);
    (void)n_in;
    const char *why = infer_choice(at->experts, at->top_k);
    if (why) return why;
    int64_t tokens = in[0].n[0], rows = tokens * at->top_k;
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by hidden");
    NEED(at->capacity >= 0, "capacity must be positive, or 0 for none");
    if (at->capacity) {
        NEED(is_ints(&in[1], at->tokens.batch * at->tokens.seq, at->top_k),
             "a capacity counts the picks of whole sequences: they must be i32, batch * seq by top_k");
        NEED(at->tokens.first >= 0 && at->tokens.first + tokens <= at->tokens.batch * at->tokens.seq,
             "x must be rows of the picks'");
        rows = least(rows, at->tokens.batch * at->experts * at->capacity);
    } else {
        NEED(is_ints(&in[1], tokens, at->top_k), "picks must be i32: tokens by top_k");
    }
    out[0] = dense2(in[0].dtype, rows, in[0].n[1]);
    out[1] = dense2(DT_I32, tokens, at->top_k);
    out[2] = dense1(DT_I32, at->experts);
    if (!at->order.sequences) return NULL;
    NEED(at->order.sequences > 0 && at->head >= 0 && at->head <= at->rows && at->at >= 0 &&
             at->at + tokens <= at->order.sequences * at->rows,
         "x must be rows of its part's sequences");
    out[2] = dense2(DT_I32, at->experts, source_stretches(&at->order));
    return NULL;
}

const char *infer_grouped(const struct op_attrs *at, int n_in, const struct view *in, struct view *out)
{
    (void)at;
    (void)n_in;
    NEED(is_matrix(&in[0]), "x must be a float matrix: rows by in-features");
    bool rounds = in[2].nd == 2 && in[2].n[0] >= 2 && in[2].dtype == DT_I32;
    NEED((rounds || is_vector(&in[2], DT_I32)) && view_cols(&in[2]) > 0, "rows must be i32, one number per expert");
    NEED(is_matrix(&in[1]) && in[1].n[0] % view_cols(&in[2]) == 0,
         "w must be a float matrix with as many rows for each expert");
    NEED(in[0].dtype == in[1].dtype, "x and w must have the same dtype");
    NEED(in[0].n[1] == in[1].n[1], "x's columns and w's columns (in-features) differ");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[1].n[0] / view_cols(&in[2]));
    return NULL;
}

const char *infer_unpermute(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct unpermute_attrs *at = at_unpermute(attrs);
    (void)n_in;
    int64_t tokens = in[1].n[0];
    NEED(is_matrix(&in[0]), "y must be a float matrix: rows by hidden");
    NEED(in[1].nd == 2 && in[1].dtype == DT_F32 && in[1].n[1] == at->top_k, "gates must be f32: tokens by top_k");
    NEED(is_ints(&in[2], tokens, at->top_k), "row numbers must be i32: tokens by top_k");
    out[0] = dense2(in[0].dtype, tokens, in[0].n[1]);
    return NULL;
}

const char *infer_expert_bias(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    (void)attrs;
    (void)n_in;
    NEED(is_matrix(&in[0]), "x must be a float matrix: rows by features");
    bool rounds = in[2].nd == 2 && in[2].n[0] >= 2 && in[2].dtype == DT_I32;
    NEED((rounds || is_vector(&in[2], DT_I32)) && view_cols(&in[2]) > 0, "rows must be i32, one number per expert");
    NEED(is_vector(&in[1], in[0].dtype) && in[1].n[0] == view_cols(&in[2]) * in[0].n[1],
         "b must be of x's dtype, with as many numbers for each expert as x has columns");
    out[0] = in[0];
    out[0].p = NULL;
    return NULL;
}

/* Ranks that rows come from. */
static int64_t dispatch_ranks(const struct dispatch_attrs *at)
{
    return (int64_t)at->over.n_parts * (at->copies > 1 ? at->copies : 1);
}

/* How many rows each expert has, of all of this rank's or of each stretch of them. */
static bool is_sent(const struct view *v, const struct dispatch_attrs *at)
{
    if (at->order.sequences) return is_ints(v, at->experts, source_stretches(&at->order));
    return is_vector(v, DT_I32) && v->n[0] == at->experts;
}

/* Rows of numbers that all ranks told: in rounds one of each. */
static int64_t dispatch_told(const struct dispatch_attrs *at)
{
    return dispatch_ranks(at) * (at->waves ? 1 : source_stretches(&at->order));
}

const char *infer_dispatch(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct dispatch_attrs *at = at_dispatch(attrs);
    (void)n_in;
    int64_t lo, hi;
    NEED(is_matrix(&in[0]) && in[0].stride == in[0].n[1], "x must be a dense float matrix: rows by hidden");
    NEED(is_sent(&in[1], at), "rows must be i32, one number per expert (and stretch)");
    NEED(at->experts >= at->over.n_parts, "there must be an expert for every rank of ep");
    region_split(at->experts, at->over.part, at->over.n_parts, &lo, &hi);
    out[0] = dense2(in[0].dtype, at->whole, in[0].n[1]);
    out[1] = at->waves ? dense2(DT_I32, 2 + dispatch_ranks(at), hi - lo) : dense1(DT_I32, hi - lo);
    out[2] = dense2(DT_I32, dispatch_told(at), at->waves ? at->experts * source_stretches(&at->order) + 2 : hi - lo);
    return NULL;
}

const char *infer_combine(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct dispatch_attrs *at = at_dispatch(attrs);
    (void)n_in;
    NEED(is_matrix(&in[0]) && in[0].stride == in[0].n[1], "x must be a dense float matrix: rows by hidden");
    NEED(is_sent(&in[1], at), "rows must be i32, one number per expert (and stretch)");
    NEED(in[2].nd == 2 && in[2].dtype == DT_I32 && in[2].n[0] == dispatch_told(at),
         "numbers must be i32, a row for each rank (and stretch)");
    out[0] = dense2(in[0].dtype, at->whole, in[0].n[1]);
    return NULL;
}
