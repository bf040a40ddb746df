/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of state spaces: shapes, costs, mesh types.
 *
 * Types: channels, heads and groups are columns, so tp splits them (S1), with all that belongs to them (S0 of vectors).
 * Where groups are fewer than ranks, b and c are the same on all of them (R), and each rank's gradient of them is its
 * heads' part. Rows of sequences that are cut over an axis (S0) want what comes before each piece: the halo, the state.
 * Every rank of that axis has all document ids. */
#include "kernel/cache_runs.h"
#include "kernel/ops.h"
#include "kernel/pieces.h"

static bool is_rows(const struct view *v, enum dtype t, int64_t rows, int64_t cols)
{
    return v->nd == 2 && v->dtype == t && v->n[0] == rows && v->n[1] == cols && v->stride >= cols;
}

/* The rows of x, and the document ids, where there are any. */
static const char *infer_pieces(const struct sequence_rows *at, const struct view *x, const struct view *docs)
{
    NEED(is_matrix(x), "x must be a float matrix: tokens by channels");
    NEED(at->batch >= 0 && at->seq >= 0 && at->parts > 0 && at->part >= 0 && at->part < at->parts, "no such part");
    NEED(x->n[0] == pieces_rows(at), "x must have its part's rows of every sequence");
    NEED(!docs || !docs->nd || is_vector_of(docs, DT_I32, at->batch * at->seq),
         "document ids must be i32, of all tokens of the microbatch in order");
    return NULL;
}

static const char *infer_taps(int n_in, const struct view *in)
{
    NEED(in[1].nd == 2 && in[1].dtype == in[0].dtype && in[1].n[0] == in[0].n[1] && in[1].n[1] > 0,
         "w must be a matrix of x's dtype: channels by taps");
    NEED(n_in < 3 || !in[2].nd || is_vector_of(&in[2], in[0].dtype, in[0].n[1]), "b must have one element per channel");
    return NULL;
}

const char *infer_conv(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct conv_attrs *at = at_conv(attrs);
    const char *why = infer_pieces(&at->at, &in[0], n_in > 3 ? &in[3] : NULL);
    if (!why) why = infer_taps(n_in, in);
    if (why) return why;
    int64_t before = pieces_all(&at->at) * (in[1].n[1] - 1);
    NEED(at->at.parts == 1 || n_in > 4, "a part of a sequence wants the rows before its pieces");
    NEED(n_in < 5 || is_rows(&in[4], in[0].dtype, before, in[0].n[1]), "the halo must be K - 1 rows for each piece");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_times(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct times_attrs *at = at_times(attrs);
    (void)n_in;
    NEED(is_matrix(&in[0]), "dt must be a float matrix: tokens by heads");
    NEED(is_vector_of(&in[1], in[0].dtype, in[0].n[1]) && is_vector_of(&in[2], in[0].dtype, in[0].n[1]),
         "decay and bias must have one element per head, of dt's dtype");
    NEED(at->lo >= 0 && at->hi > at->lo, "steps must be held between two limits, the first of 0 or more");
    out[0] = dense2(DT_F32, in[0].n[0], 2 * in[0].n[1]);
    return NULL;
}

/* x, b and c, times. */
static const char *infer_heads(const struct scan_attrs *at, const struct view *in)
{
    NEED(at->heads >= 0 && at->head_dim > 0 && at->state > 0 && at->groups > 0 && at->heads % at->groups == 0,
         "groups must divide heads, and a head and its state have one column at least");
    NEED(is_rows(&in[0], in[0].dtype, in[0].n[0], (int64_t)at->heads * at->head_dim),
         "x must have heads * head_dim columns");
    NEED(is_rows(&in[1], in[0].dtype, in[0].n[0], (int64_t)2 * at->groups * at->state),
         "b and c must be one matrix of x's dtype and rows, groups * state columns each");
    NEED(is_rows(&in[2], DT_F32, in[0].n[0], (int64_t)2 * at->heads),
         "times must be f32: steps and log decays of each head");
    return NULL;
}

static int64_t state_cols(const struct scan_attrs *at) { return (int64_t)at->heads * at->head_dim * at->state; }

const char *infer_scan(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct scan_attrs *at = at_scan(attrs);
    const char *why = infer_pieces(&at->at, &in[0], n_in > 4 ? &in[4] : NULL);
    if (!why) why = infer_heads(at, in);
    if (why) return why;
    NEED(is_vector_of(&in[3], in[0].dtype, at->heads), "skip must have one element per head");
    NEED(at->at.parts == 1 || n_in > 5, "a part of a sequence wants the states before its pieces");
    NEED(n_in < 6 || is_rows(&in[5], DT_F32, pieces_all(&at->at), state_cols(at)),
         "the states must be f32, one row for each piece");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_scan_end(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct scan_attrs *at = at_scan(attrs);
    const char *why = infer_pieces(&at->at, &in[0], n_in > 3 ? &in[3] : NULL);
    if (!why) why = infer_heads(at, in);
    if (why) return why;
    out[0] = dense2(DT_F32, pieces_all(&at->at), state_cols(at) + at->heads);
    return NULL;
}

const char *infer_gated_norm(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct norm_attrs *at = at_norm(attrs);
    NEED(is_matrix(&in[0]), "y must be a float matrix: tokens by channels");
    NEED(is_rows(&in[1], in[0].dtype, in[0].n[0], in[0].n[1]), "y and z must be float matrices of one shape and dtype");
    NEED(n_in < 3 || at->eps > 0, "eps must be positive");
    NEED(at->heads > 0 && in[0].n[1] % at->heads == 0, "groups must divide the columns");
    NEED(n_in < 3 || is_vector_of(&in[2], in[0].dtype, in[0].n[1]), "w must have one element per column of y");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

static const char *infer_cached(const struct view *runs, const struct view *cache, enum dtype t, int64_t cols)
{
    NEED(runs->nd == 2 && runs->dtype == DT_I32 && runs->n[1] > RUN_STATE,
         "runs must be an i32 matrix: sequences by first row, rows, places before, row of the cache, pages");
    NEED(cache->nd == 2 && cache->dtype == t && cache->n[1] == cols, "the cache must have one row for each sequence");
    return NULL;
}

const char *infer_conv_cached(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    (void)attrs, (void)n_in;
    NEED(is_matrix(&in[0]), "x must be a float matrix: tokens by channels");
    const char *why = infer_taps(3, in);
    if (!why) why = infer_cached(&in[3], &in[4], in[0].dtype, (in[1].n[1] - 1) * in[0].n[1]);
    if (why) return why;
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_scan_cached(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct scan_attrs *at = at_scan(attrs);
    (void)n_in;
    NEED(in[0].nd == 2 && is_float(in[0].dtype), "x must be a float matrix: tokens by channels");
    const char *why = infer_heads(at, in);
    if (!why) why = infer_cached(&in[3], &in[4], DT_F32, state_cols(at));
    if (why) return why;
    NEED(is_vector_of(&in[5], in[0].dtype, at->heads), "skip must have one element per head");
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_tails(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct halo_attrs *at = at_halo(attrs);
    (void)n_in;
    const char *why = infer_pieces(&at->at, &in[0], NULL);
    if (why) return why;
    NEED(at->before >= 0, "rows before a piece must not be fewer than none");
    out[0] = dense2(in[0].dtype, pieces_all(&at->at) * at->before, in[0].n[1]);
    return NULL;
}

const char *infer_halo(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct halo_attrs *at = at_halo(attrs);
    (void)n_in;
    int64_t rows = pieces_all(&at->at) * at->before;
    NEED(at->at.parts > 1 && at->at.part >= 0 && at->at.part < at->at.parts, "no such part");
    NEED(is_float(in[0].dtype) && is_rows(&in[0], in[0].dtype, at->at.parts * rows, in[0].n[1]),
         "all parts' tails must be there");
    out[0] = dense2(in[0].dtype, rows, in[0].n[1]);
    return NULL;
}

const char *infer_carry(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct carry_attrs *at = at_carry(attrs);
    (void)n_in;
    int64_t rows = pieces_all(&at->at);
    NEED(at->at.parts > 1 && at->at.part >= 0 && at->at.part < at->at.parts, "no such part");
    NEED(at->heads >= 0 && is_rows(&in[0], DT_F32, at->at.parts * rows, in[0].n[1]) && in[0].n[1] >= at->heads &&
             (at->heads == 0 || in[0].n[1] % at->heads == 0),
         "all parts' ends must be there, f32: states, then a log decay for each head");
    out[0] = dense2(DT_F32, rows, in[0].n[1] - at->heads);
    return NULL;
}

/* ---- costs ---- */
static double elements(const struct view *v) { return (double)view_rows(v) * (double)view_cols(v); }

/* A multiply-add per tap, and the activation; twice that for both gradients of the product. */
double flops_conv(const struct kernel_call *c)
{
    return elements(&c->in[0]) * (2 * (double)c->in[1].n[1] + (c->phase == KERNEL_FWD ? 8 : 16));
}

double flops_times(const struct kernel_call *c) { return 12 * elements(&c->in[0]); }

/* The recurrence: a state is multiplied, added to (3 per element), and read (2). Backward is twice that. What chunks
 * cost beyond it, and making states again, does not count. */
double flops_scan(const struct kernel_call *c)
{
    const struct scan_attrs *at = at_scan(&c->at);
    double all = elements(&c->in[0]);
    if (c->phase == KERNEL_BWD_W) return 2 * all;
    double each = c->op == OP_SCAN_END ? 3 : 5;
    return all * (each * (double)at->state * (c->phase == KERNEL_FWD ? 1 : 2) + 3);
}

double flops_gated_norm(const struct kernel_call *c)
{
    return elements(&c->in[0]) * (c->phase == KERNEL_FWD ? 12 : c->phase == KERNEL_BWD_IN ? 24 : 11);
}

/* ---- mesh types ---- */
enum { WHOLE = 1 << SPMD_I | 1 << SPMD_R, ABSENT = 1 << SPMD_N };
#define I_ (1 << SPMD_I)
#define R_ (1 << SPMD_R)
#define V_ (1 << SPMD_V)
#define S0_ (1 << SPMD_S0)
#define S1_ (1 << SPMD_S1)
enum { LINES = 6 };
struct line {
    uint16_t in[KERNEL_MAX_IN];
    enum spmd out;
    bool pieces; /* sequences are cut: only with what comes before each piece, the last input */
};

/* Inputs from `must` on may be absent. */
static const char *by_lines(const struct line *lines, int must, int all, int n_in, const enum spmd *in, enum spmd *out,
                            int n_out)
{
    for (int l = 0; l < LINES; l++) {
        bool fits = lines[l].in[0] && (!lines[l].pieces || n_in == all);
        for (int i = 0; i < n_in && fits; i++) fits = (lines[l].in[i] | (i >= must ? ABSENT : 0)) >> in[i] & 1;
        if (!fits) continue;
        for (int o = 0; o < n_out; o++) out[o] = lines[l].out;
        return NULL;
    }
    for (int i = 0; i < n_in; i++)
        if (in[i] == SPMD_P) return "an input is partial: a sum over the axis is owed; reduce it first";
    if (in[0] == SPMD_S0)
        return "x is split by tokens: a sequence goes on across ranks, so what comes before each piece must be there "
               "(par_conv, par_scan), weights be replicated and document ids whole";
    return "channels, heads and what belongs to them must be split alike (S1, vectors S0), or all be I, R or V";
}

static const struct line conv_lines[LINES] = {
    {{I_, I_, I_, WHOLE, I_}, SPMD_I, false},   {{R_, R_, R_, WHOLE, R_}, SPMD_R, false},
    {{V_, R_, R_, V_, V_}, SPMD_V, false},      {{S1_, S0_, S0_, WHOLE, S1_}, SPMD_S1, false},
    {{S0_, R_, R_, WHOLE, S0_}, SPMD_S0, true},
};
const char *rule_conv(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(conv_lines, 2, 5, n_in, in, out, 1);
}

static const struct line times_lines[LINES] = {
    {{I_, I_, I_}, SPMD_I, false},   {{R_, R_, R_}, SPMD_R, false},     {{V_, R_, R_}, SPMD_V, false},
    {{S0_, R_, R_}, SPMD_S0, false}, {{S1_, S0_, S0_}, SPMD_S1, false},
};
const char *rule_times(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(times_lines, KERNEL_MAX_IN, 3, n_in, in, out, 1);
}

static const struct line scan_lines[LINES] = {
    {{I_, I_, I_, I_, WHOLE, I_}, SPMD_I, false},
    {{R_, R_, R_, R_, WHOLE, R_}, SPMD_R, false},
    {{V_, V_, V_, R_, V_, V_}, SPMD_V, false},
    {{S1_, S1_ | R_, S1_, S0_, WHOLE, S1_}, SPMD_S1, false}, /* groups that several ranks read */
    {{S0_, S0_, S0_, R_, WHOLE, S0_}, SPMD_S0, true},
};
const char *rule_scan(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(scan_lines, 4, 6, n_in, in, out, 1);
}

/* Of pieces (S0) nothing is wanted before: it begins from zeros. */
static const struct line scan_end_lines[LINES] = {
    {{I_, I_, I_, WHOLE}, SPMD_I, false},     {{R_, R_, R_, WHOLE}, SPMD_R, false},
    {{V_, V_, V_, V_}, SPMD_V, false},        {{S1_, S1_ | R_, S1_, WHOLE}, SPMD_S1, false},
    {{S0_, S0_, S0_, WHOLE}, SPMD_S0, false},
};
const char *rule_scan_end(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(scan_end_lines, 3, 4, n_in, in, out, 1);
}

static const struct line gated_norm_lines[LINES] = {
    {{I_, I_, I_}, SPMD_I, false},    {{R_, R_, R_}, SPMD_R, false},     {{V_, V_, R_}, SPMD_V, false},
    {{S0_, S0_, R_}, SPMD_S0, false}, {{S1_, S1_, S0_}, SPMD_S1, false},
};
const char *rule_gated_norm(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(gated_norm_lines, KERNEL_MAX_IN, 3, n_in, in, out, 2);
}

static const struct line conv_cached_lines[LINES] = {
    {{I_, I_, I_, WHOLE, WHOLE}, SPMD_I, false},
    {{R_, R_, R_, WHOLE, WHOLE}, SPMD_R, false},
    {{V_, R_, R_, V_ | WHOLE, V_}, SPMD_V, false},
    {{S1_, S0_, S0_, WHOLE, S1_}, SPMD_S1, false},
};
const char *rule_conv_cached(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(conv_cached_lines, 2, 5, n_in, in, out, 1);
}

static const struct line scan_cached_lines[LINES] = {
    {{I_, I_, I_, WHOLE, WHOLE, I_}, SPMD_I, false},
    {{R_, R_, R_, WHOLE, WHOLE, R_}, SPMD_R, false},
    {{V_, V_, V_, V_ | WHOLE, V_, R_}, SPMD_V, false},
    {{S1_, S1_ | R_, S1_, WHOLE, S1_, S0_}, SPMD_S1, false},
};
const char *rule_scan_cached(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(scan_cached_lines, KERNEL_MAX_IN, 6, n_in, in, out, 1);
}

/* Rows of all parts come in (gathered), those of one go out: par_conv and par_scan say on which axis that is S0. */
static const struct line rows_lines[LINES] = {
    {{I_}, SPMD_I, false},
    {{R_}, SPMD_R, false},
    {{V_}, SPMD_V, false},
    {{S1_}, SPMD_S1, false},
};
const char *rule_halo(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(rows_lines, KERNEL_MAX_IN, 1, n_in, in, out, 1);
}

static const struct line tails_lines[LINES] = {
    {{I_}, SPMD_I, false},   {{R_}, SPMD_R, false},   {{V_}, SPMD_V, false},
    {{S1_}, SPMD_S1, false}, {{S0_}, SPMD_S0, false},
};
const char *rule_tails(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return by_lines(tails_lines, KERNEL_MAX_IN, 1, n_in, in, out, 1);
}
