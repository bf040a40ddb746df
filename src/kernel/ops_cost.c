/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation costs: floating-point operations and bytes moved, for one phase of one call.
 *
 * FLOPs follow the convention of published utilisation figures: a multiply-add is 2, transcendental functions and
 * everything else per element are a handful, and work that a kernel repeats to save memory is not counted, so the
 * sum over a step is the model's own. Attention counts the pairs (query, key) that the mask leaves, exactly
 * (document masks are data and unknown here: they count as open, and whoever has the batch goes by op_pairs). Bytes are
 * inputs read plus outputs written, each once, as if caches were perfect: the lower bound that a roofline needs. */
#include "kernel/attention_heads.h"
#include "kernel/ops.h"
#include "kernel/pairs.h"
#include "layout/sequence.h"

static double elements(const struct view *v) { return v->nd ? (double)(view_rows(v) * view_cols(v)) : 0; }

static double size_of(const struct view *v) { return v->nd ? elements(v) * (double)dtype_bytes(v->dtype) : 0; }

double bytes_whole(const struct kernel_call *c)
{
    const struct op_row *row = op_row(c->op);
    double sum = 0;
    if (c->phase == KERNEL_FWD) {
        for (int i = 0; i < c->n_in; i++) sum += size_of(&c->in[i]);
        for (int i = 0; i < c->n_out; i++) sum += size_of(&c->out[i]);
        return sum;
    }
    bool weights = c->phase == KERNEL_BWD_W;
    unsigned reads = weights ? row->save_in_w : row->save_in;
    unsigned writes = weights ? row->weight_in : row->grad_in;
    for (int i = 0; i < c->n_in; i++) {
        if (reads >> i & 1) sum += size_of(&c->in[i]);
        if (writes >> i & 1) sum += size_of(&c->din[i]) + size_of(&c->acc[i]);
    }
    for (int i = 0; i < c->n_out; i++) {
        if (row->save_out >> i & 1) sum += size_of(&c->out[i]);
        sum += size_of(&c->dout[i]);
    }
    return sum;
}

/* Only the rows that are looked up move, not the whole table. */
double bytes_embed(const struct kernel_call *c)
{
    double ids = size_of(&c->in[0]), row = (double)view_cols(&c->in[1]);
    double tokens = elements(&c->in[0]), each = (double)dtype_bytes(c->in[1].dtype);
    if (c->phase == KERNEL_FWD) return ids + 2 * tokens * row * each;
    return ids + tokens * row * (each + 2 * (double)dtype_bytes(DT_F32));
}

double flops_none(const struct kernel_call *c)
{
    (void)c;
    return 0;
}

double flops_embed(const struct kernel_call *c)
{
    return c->phase == KERNEL_BWD_W ? elements(&c->in[0]) * (double)view_cols(&c->in[1]) : 0;
}

double flops_linear(const struct kernel_call *c)
{
    double tokens = (double)view_rows(&c->in[0]), out_features = (double)c->in[1].n[0];
    double product = 2 * tokens * out_features * (double)view_cols(&c->in[0]);
    if (c->phase == KERNEL_BWD_W && c->din[2].nd && !c->din[1].nd) product = 0; /* of the bias alone */
    bool bias = c->n_in > 2 && c->phase != KERNEL_BWD_IN;
    return product + (bias ? tokens * out_features : 0);
}

/* How many rows hold tokens is data: what is expected, or the buffer as if it were full. */
double flops_grouped(const struct kernel_call *c)
{
    int64_t expected = at_grouped(&c->at)->expected;
    double rows = (double)(expected ? expected : view_rows(&c->in[0]));
    double out_features = (double)c->in[1].n[0] / (double)view_cols(&c->in[2]);
    return 2 * rows * out_features * (double)view_cols(&c->in[0]);
}

double flops_norm(const struct kernel_call *c)
{
    static const double per_element[KERNEL_N_PHASES] = {[KERNEL_FWD] = 4, [KERNEL_BWD_IN] = 8, [KERNEL_BWD_W] = 3};
    return per_element[c->phase] * elements(&c->in[0]);
}

double flops_rotary(const struct kernel_call *c) { return 3 * elements(&c->in[0]); }

double flops_act(const struct kernel_call *c) { return (c->phase == KERNEL_FWD ? 8 : 16) * elements(&c->in[0]); }

double flops_elementwise(const struct kernel_call *c) { return 2 * elements(&c->in[0]); }

double flops_xent(const struct kernel_call *c) { return 5 * elements(&c->in[0]); }

/* Pairs (query i, key j) of one sequence: all, or j <= i, or i - window < j <= i. */
static double pairs_seen(const struct attention_attrs *at)
{
    double s = (double)at->seq, w = (double)at->window;
    if (!at->causal) return s * s;
    if (at->window == 0 || at->window >= at->seq) return s * (s + 1) / 2;
    return w * (w + 1) / 2 + (s - w) * w;
}

/* Two products forward (scores, values); four backward (dv, dp, dq, dk). */
double flops_attention(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_attention(&c->at);
    double per_pair = (c->phase == KERNEL_FWD ? 4.0 : 8.0) * at->head_dim + 5;
    return (double)at->batch * at->heads * pairs_seen(at) * per_pair;
}

/* Pairs of one sequence between the rows of parts [q, q + nq) and [k, k + nk). */
static double pairs_between(const struct attention_attrs *at, int parts, int q, int nq, int k, int nk)
{
    double sum = 0;
    for (int i = 0; i < 2 * nq; i++)
        for (int j = 0; j < 2 * nk; j++) {
            int64_t q0, q1, k0, k1;
            context_chunk(at->seq, parts, q + i / 2, i % 2, &q0, &q1);
            context_chunk(at->seq, parts, k + j / 2, j % 2, &k0, &k1);
            sum += context_pairs(q0, q1, k0, k1, at->causal, at->window);
        }
    return sum;
}

static double flops_pairs(const struct kernel_call *c, int64_t heads, double pairs)
{
    const struct attention_attrs *at = at_heads(&c->at);
    double per_pair = (c->phase == KERNEL_FWD ? 4.0 : 8.0) * at->head_dim + 5;
    return (double)at->batch * (double)heads * pairs * per_pair;
}

double flops_attention_part(const struct kernel_call *c)
{
    const struct attention_part_attrs *at = at_attention_part(&c->at);
    return flops_pairs(c, at->attention.heads,
                       pairs_between(&at->attention, at->parts, at->q_first, at->q_count, at->k_first, at->k_count));
}

/* This rank's heads and its inner group's rows against all keys: one chunk, as far as counting goes. */
double flops_context(const struct kernel_call *c)
{
    const struct context_attrs *of = at_context(&c->at);
    const struct attention_attrs *at = &of->attention;
    int inner = of->inner;
    double pairs = 0;
    for (int i = 0; i < 2 * inner; i++) {
        int64_t lo, hi;
        context_chunk(at->seq, of->over.n_parts, of->over.part / inner * inner + i / 2, i % 2, &lo, &hi);
        pairs += context_pairs(lo, hi, 0, at->seq, at->causal, at->window);
    }
    return flops_pairs(c, view_cols(&c->out[1]), pairs);
}

/* Positions are data: counted as if the cache were full. */
double flops_attention_cached(const struct kernel_call *c)
{
    double keys = (double)c->in[4].n[0];
    int64_t window = at_attention(&c->at)->window;
    if (window && (double)window < keys) keys = (double)window;
    return elements(&c->in[0]) * keys * 4;
}

enum op_pairs op_pairs(const struct kernel_call *c)
{
    enum { PLACES = 4 }; /* of the keys */
    if (c->op == OP_ATTENTION_BIASED) return c->n_in > PLACES && c->in[PLACES].nd ? PAIRS_KEYS : PAIRS_FIXED;
    if (c->op != OP_ATTENTION && c->op != OP_ATTENTION_PART && c->op != OP_CONTEXT) return PAIRS_FIXED;
    if (!attention_has_docs(c)) return PAIRS_FIXED;
    return at_heads(&c->at)->window > 0 ? PAIRS_WINDOWS : PAIRS_DOCUMENTS;
}
