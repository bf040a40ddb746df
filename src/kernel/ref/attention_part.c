/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of some rows of every sequence against some others, plainly: one row of scores at a time, put together with
 * what earlier calls left, or with a sink: o_1 = 0, lse_1 = the sink. With o_1, lse_1 of some keys and o_2, lse_2 of
 * others,
 *
 *   lse = log(exp lse_1 + exp lse_2)    o = o_1 exp(lse_1 - lse) + o_2 exp(lse_2 - lse)
 *
 * Backward is attention.c's with the final lse: each pair's share needs no other pair, so keys may come in any parts
 * (Liu et al. 2023, "Ring Attention with Blockwise Transformers"). */
#include <math.h>

#include "kernel/attention_heads.h"
#include "kernel/dropout.h"
#include "kernel/ref/attention_rows.h"
#include "layout/sequence.h"

enum { Q, K, VALUE, DOC };

/* Rows of one sequence on the parts of q or of k; the position of row i. */
static int64_t rows_of(const struct kernel_call *c, bool keys)
{
    const struct attention_part_attrs *p = at_attention_part(&c->at);
    return context_rows(p->attention.seq, p->parts, keys ? p->k_first : p->q_first, keys ? p->k_count : p->q_count);
}

static int64_t place_of(const struct kernel_call *c, bool keys, int64_t i)
{
    const struct attention_part_attrs *p = at_attention_part(&c->at);
    int n = p->parts, part = keys ? p->k_first : p->q_first;
    int64_t seq = p->attention.seq;
    for (int64_t rows; i >= (rows = context_rows(seq, n, part, 1)); part++) i -= rows;
    return context_place(seq, n, part, i);
}

static bool sees(const struct kernel_call *c, int64_t b, int64_t i, int64_t j)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t di = attention_has_docs(c) ? ref_int(&c->in[DOC], b * at->seq + i) : 0;
    int64_t dj = attention_has_docs(c) ? ref_int(&c->in[DOC], b * at->seq + j) : 0;
    if (at->prefix) return (di >> 1) == (dj >> 1) && ((dj & 1) || (!(di & 1) && j <= i)); /* layout/document_ids.h */
    const int32_t *token = attention_tokens(c);
    if (at->causal && j > i) return false;
    if (di != dj) return false;
    if (token) i = token[b * at->seq + i], j = token[b * at->seq + j];
    return !at->window || j > i - at->window;
}

/* One head of one query: p_K the scores, place_K the keys' positions. */
static void head_row(const struct kernel_call *c, int64_t t, int64_t h, double *p_K, const double *place_K)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_k = rows_of(c, true), n_q = rows_of(c, false), n_a = at->head_dim, b = t / n_q,
            i = place_of(c, false, t % n_q);
    int64_t kv = attention_kv_of(at, h) * n_a;
    bool more = at_attention_part(&c->at)->more;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n_k; j++) {
        p_K[j] = sees(c, b, i, (int64_t)place_K[j])
                     ? ref_score(at, ref_dot(&c->in[Q], t, h * n_a, &c->in[K], b * n_k + j, kv, n_a)).y
                     : -INFINITY;
        max = fmax(max, p_K[j]);
    }
    for (int64_t j = 0; j < n_k && max > -INFINITY; j++) sum += p_K[j] = exp(p_K[j] - max);
    double here = sum > 0 ? max + log(sum) : -INFINITY, was = more ? ref_get(&c->out[1], t, h) : ref_sink(c, h);
    double top = fmax(here, was), lse = top > -INFINITY ? top + log(exp(here - top) + exp(was - top)) : -INFINITY;
    double keep = was > -INFINITY ? exp(was - lse) : 0, by = sum > 0 ? exp(here - lse) / sum : 0;
    ref_set(&c->out[1], t, h, lse);
    for (int64_t j = 0; j < n_k && sum > 0; j++)
        p_K[j] = p_K[j] > 0 ? p_K[j] * by * ref_drop_factor(c, at, b, h, i, (int64_t)place_K[j]) : 0;
    for (int64_t a = 0; a < n_a; a++) {
        double o = keep > 0 && more ? keep * ref_get(&c->out[0], t, h * n_a + a) : 0;
        for (int64_t j = 0; j < n_k && sum > 0; j++)
            if (p_K[j] > 0) o += p_K[j] * ref_get(&c->in[VALUE], b * n_k + j, kv + a);
        ref_set(&c->out[0], t, h * n_a + a, o);
    }
}

static void part_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_k = rows_of(c, true);
    for (int64_t j = 0; j < n_k; j++) mine[n_k + j] = (double)place_of(c, true, j);
    for (int64_t h = 0; h < at->heads; h++) head_row(c, t, h, mine, mine + n_k);
}

void attention_part_fwd_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[Q].n[0], 2 * rows_of(c, true), part_row);
}

/* What a pair (row ti at position i, row tj at position j) contributes: to dv per do, and the gradient of q.k. */
struct pair {
    double p_dropped, ds;
};

static struct pair pair_backward(const struct kernel_call *c, int64_t b, int64_t h, int64_t ti, int64_t i, int64_t tj,
                                 int64_t j)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_a = at->head_dim, kv = attention_kv_of(at, h) * n_a;
    double factor = ref_drop_factor(c, at, b, h, i, j);
    struct score s = ref_score(at, ref_dot(&c->in[Q], ti, h * n_a, &c->in[K], tj, kv, n_a));
    double p = exp(s.y - ref_get(&c->out[1], ti, h));
    double dp = factor * ref_dot(&c->dout[0], ti, h * n_a, &c->in[VALUE], tj, kv, n_a);
    double delta = ref_dot(&c->dout[0], ti, h * n_a, &c->out[0], ti, h * n_a, n_a);
    return (struct pair){p * factor, s.slope * p * (dp - delta)};
}

static void dq_row(const struct kernel_call *c, int64_t t, double *dq_A)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_k = rows_of(c, true), n_q = rows_of(c, false), n_a = at->head_dim, b = t / n_q,
            i = place_of(c, false, t % n_q);
    for (int64_t h = 0; h < at->heads; h++) {
        int64_t kv = attention_kv_of(at, h) * n_a;
        for (int64_t a = 0; a < n_a; a++) dq_A[a] = 0;
        for (int64_t r = 0; r < n_k; r++) {
            int64_t j = place_of(c, true, r);
            if (!sees(c, b, i, j)) continue;
            double ds = pair_backward(c, b, h, t, i, b * n_k + r, j).ds;
            for (int64_t a = 0; a < n_a; a++) dq_A[a] += ds * ref_get(&c->in[K], b * n_k + r, kv + a);
        }
        for (int64_t a = 0; a < n_a; a++) ref_put_grad(c, Q, t, h * n_a + a, dq_A[a]);
    }
}

static void dkv_row(const struct kernel_call *c, int64_t t, double *dk_A)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_k = rows_of(c, true), n_q = rows_of(c, false), n_a = at->head_dim, b = t / n_k,
            j = place_of(c, true, t % n_k);
    double *dv_A = dk_A + n_a;
    for (int64_t g = 0; g < at->kv_heads; g++) {
        int64_t lo, hi;
        attention_heads_of(at, g, &lo, &hi);
        for (int64_t a = 0; a < 2 * n_a; a++) dk_A[a] = 0;
        for (int64_t h = lo; h < hi; h++)
            for (int64_t r = 0; r < n_q; r++) {
                int64_t ti = b * n_q + r, i = place_of(c, false, r);
                if (!sees(c, b, i, j)) continue;
                struct pair x = pair_backward(c, b, h, ti, i, t, j);
                for (int64_t a = 0; a < n_a; a++) {
                    dk_A[a] += x.ds * ref_get(&c->in[Q], ti, h * n_a + a);
                    dv_A[a] += x.p_dropped * ref_get(&c->dout[0], ti, h * n_a + a);
                }
            }
        for (int64_t a = 0; a < n_a; a++) {
            ref_put_grad(c, K, t, g * n_a + a, dk_A[a]);
            ref_put_grad(c, VALUE, t, g * n_a + a, dv_A[a]);
        }
    }
}

void attention_part_bwd_in_ref(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_heads(&c->at);
    int64_t n_a = at->head_dim;
    if (c->din[Q].p) ref_each_row(c, c->in[Q].n[0], n_a, dq_row);
    if (c->din[K].p || c->din[VALUE].p) ref_each_row(c, c->in[K].n[0], 2 * n_a, dkv_row);
    ref_sinks_bwd(c);
}

/* A row of scores and the keys' positions forward; dk and dv of one head backward. */
size_t attention_part_scratch_ref(const struct kernel_call *c, int n_threads)
{
    const struct attention_attrs *at = at_heads(&c->at);
    return ref_scratch(c->phase == KERNEL_FWD ? 2 * rows_of(c, true) : 2 * (int64_t)at->head_dim, n_threads);
}
