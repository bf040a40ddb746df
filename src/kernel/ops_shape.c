/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes of the operations: checks the inputs, fills in the outputs (dense, p = NULL). Texts are
 * constant and name the input and the wish; the tape puts the operation's name and the actual shapes around them.
 * Checks that depend on data (ids in range, positions in the table) are the kernels'. */
#include "kernel/cache_runs.h"
#include "kernel/attention_heads.h"
#include "kernel/ops.h"
#include "kernel/pictures.h"
#include "layout/sequence.h"
#include "layout/region.h"

static bool is_act(const struct view *v) { return v->dtype == DT_F32 || v->dtype == DT_BF16 || v->dtype == DT_F16; }

static bool is_vector(const struct view *v, enum dtype t) { return v->nd == 1 && v->dtype == t; }

/* A matrix of activations or weights. */
static bool is_matrix(const struct view *v) { return v->nd == 2 && is_act(v) && v->stride >= v->n[1]; }

static struct view dense1(enum dtype t, int64_t n) { return (struct view){.dtype = t, .nd = 1, .n = {n}, .stride = n}; }

static struct view dense2(enum dtype t, int64_t rows, int64_t cols)
{
    return (struct view){.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
}

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

/* Heads and columns; rows of q, and of k and v. */
static const char *infer_heads(const struct attention_attrs *at, const struct view *in)
{
    NEED(at->heads >= 0 && at->kv_heads >= (at->heads > 0) && at->head_dim > 0,
         "heads, kv_heads and head_dim must be positive");
    NEED(at->group > 0 || (at->heads > 0 && at->heads % at->kv_heads == 0), "kv_heads must divide heads");
    NEED(!at->heads || (attention_kv_of(at, 0) >= 0 && attention_kv_of(at, at->heads - 1) < at->kv_heads),
         "every query head must find its key head");
    NEED(at->window >= 0, "window must be positive, or 0 for none");
    NEED(at->cap >= 0, "the cap must be positive, or 0 for none");
    for (int i = 0; i < 3; i++) {
        NEED(is_matrix(&in[i]) && in[i].dtype == in[0].dtype && in[i].n[0] == in[i ? 1 : 0].n[0],
             "q, k and v must be float matrices of one dtype with one row per token");
        NEED(in[i].n[1] == (int64_t)(i ? at->kv_heads : at->heads) * at->head_dim,
             "q must have heads * head_dim columns, k and v kv_heads * head_dim");
    }
    return NULL;
}

static const char *infer_qkv(const struct attention_attrs *at, const struct view *in)
{
    const char *why = infer_heads(at, in);
    if (why) return why;
    NEED(in[0].n[0] == in[1].n[0], "q, k and v must be float matrices of one dtype with one row per token");
    return NULL;
}

#define SINK_WANTED "sinks must be of q's dtype, one per query head"
static bool is_sink(const struct attention_attrs *at, const struct view *in, int i)
{
    return !in[i].nd || (in[i].nd == 1 && in[i].dtype == in[0].dtype && in[i].n[0] == at->heads);
}

const char *infer_attention(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_attrs *at = at_attention(attrs);
    const char *why = infer_qkv(at, in);
    if (why) return why;
    NEED(at->batch >= 0 && at->seq >= 0 && at->batch * at->seq == in[0].n[0], "tokens must be batch * seq");
    NEED(at->dropout.p >= 0 && at->dropout.p < 1, "dropout must be in [0, 1)");
    NEED(at->window == 0 || at->causal, "a window needs causal attention");
    NEED(!at->prefix || (at->causal && !at->window && n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd),
         "prefixes are of causal attention without a window, and marked in the documents' ids");
    if (n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd)
        NEED(is_vector(&in[ATTENTION_DOC], DT_I32) && in[ATTENTION_DOC].n[0] == in[0].n[0],
             "document ids must be i32, one per token");
    NEED(n_in <= ATTENTION_SINK || is_sink(at, in, ATTENTION_SINK), SINK_WANTED);
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

static const char *infer_shared(const struct attention_attrs *at, int n_in, const struct view *in, int64_t q_rows,
                                int64_t k_rows)
{
    const char *why = infer_heads(at, in);
    if (why) return why;
    NEED(at->batch >= 0 && at->seq >= 0, "batch and seq must not be negative");
    NEED(at->batch * q_rows == in[0].n[0], "q must have the rows of its parts of every sequence");
    NEED(at->batch * k_rows == in[1].n[0], "k and v must have the rows of their parts of every sequence");
    NEED(at->dropout.p >= 0 && at->dropout.p < 1, "dropout must be in [0, 1)");
    NEED(at->window == 0 || at->causal, "a window needs causal attention");
    NEED(!at->prefix || (at->causal && !at->window && n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd),
         "prefixes are of causal attention without a window, and marked in the documents' ids");
    if (n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd)
        NEED(is_vector(&in[ATTENTION_DOC], DT_I32) && in[ATTENTION_DOC].n[0] == at->batch * at->seq,
             "document ids must be i32, of all tokens of the microbatch in order");
    NEED(n_in <= ATTENTION_SINK || is_sink(at, in, ATTENTION_SINK), SINK_WANTED);
    return NULL;
}

const char *infer_attention_part(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_part_attrs *of = at_attention_part(attrs);
    const struct attention_attrs *at = &of->attention;
    int n = of->parts, q = of->q_first, nq = of->q_count, k = of->k_first, nk = of->k_count;
    NEED(n > 0 && q >= 0 && nq >= 0 && q + nq <= n && k >= 0 && nk >= 0 && k + nk <= n, "no such parts of a sequence");
    const char *why = infer_shared(at, n_in, in, context_rows(at->seq, n, q, nq), context_rows(at->seq, n, k, nk));
    if (why) return why;
    out[0] = dense2(DT_F32, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

const char *infer_context(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct context_attrs *of = at_context(attrs);
    const struct attention_attrs *at = &of->attention;
    int n = of->over.n_parts, part = of->over.part, inner = of->inner;
    NEED(n > 0 && part >= 0 && part < n && inner > 0 && n % inner == 0, "no such rank");
    int64_t mine = context_rows(at->seq, n, part, 1), lo, hi;
    const char *why = infer_shared(at, n_in, in, mine, mine);
    if (why) return why;
    region_split(at->heads, part % inner, inner, &lo, &hi); /* lse stays where it is computed: with these heads */
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, at->batch * context_rows(at->seq, n, part / inner * inner, inner), hi - lo);
    return NULL;
}

const char *infer_attention_cached(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_attrs *at = at_attention(attrs);
    const char *why = infer_qkv(at, in);
    if (why) return why;
    NEED(in[3].nd == 2 && in[3].dtype == DT_I32 && in[3].n[1] > RUN_PAGES,
         "runs must be an i32 matrix: sequences by first row, rows, places before, pages");
    for (int i = 4; i < 6; i++)
        NEED(is_matrix(&in[i]) && in[i].dtype == in[0].dtype && in[i].n[1] == in[1].n[1],
             "the caches must be matrices of k's dtype and columns");
    NEED(in[4].n[0] == in[5].n[0] && in[4].n[0] > 0 && in[4].n[0] % CACHE_PAGE == 0,
         "the caches must have equal room, in whole pages");
    NEED(n_in <= CACHED_SINK || is_sink(at, in, CACHED_SINK), SINK_WANTED);
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
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

/* ---- experts ---- */
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
        NEED(in[1].nd == 1 && is_act(&in[1]) && in[1].n[0] == at->experts, "the bias must have one element per expert");
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

/* ---- latent attention ---- */
const char *infer_mla_kv(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct mla_kv_attrs *at = at_mla_kv(attrs);
    (void)n_in;
    NEED(at->heads >= 0 && at->nope > 0 && at->nope < at->head_dim && at->value > 0 && at->value <= at->head_dim,
         "nope must be less than head_dim, value at most that");
    NEED(is_matrix(&in[0]) && in[0].n[1] == (int64_t)at->heads * (at->nope + at->value),
         "kv must be a float matrix: tokens by heads * (nope + value)");
    NEED(is_matrix(&in[1]) && in[1].dtype == in[0].dtype && in[1].n[0] == in[0].n[0] &&
             in[1].n[1] == at->head_dim - at->nope,
         "rope must be a float matrix: tokens by head_dim - nope");
    out[0] = dense2(in[0].dtype, in[0].n[0], 2 * (int64_t)at->heads * at->head_dim);
    return NULL;
}

const char *infer_trim(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct trim_attrs *at = at_trim(attrs);
    (void)n_in;
    NEED(at->heads >= 0 && at->value > 0 && at->value <= at->head_dim, "value must be from 1 to head_dim");
    NEED(is_matrix(&in[0]) && in[0].n[1] == (int64_t)at->heads * at->head_dim,
         "x must be a float matrix: tokens by heads * head_dim");
    out[0] = dense2(in[0].dtype, in[0].n[0], (int64_t)at->heads * at->value);
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
    NEED(is_act(&out[0]), "patches are f32, bf16 or f16");
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
