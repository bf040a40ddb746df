/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with a bias by distance, and between tokens of two kinds, plainly:
 *
 *   o_i = sum over j of drop(p_ij) v_j      p = softmax over the visible j of q_i.k_j + d(j - i)
 *
 * As attention.c, one row of scores at a time forward, and none backward, where p_ij is exp(s_ij - lse_i). With ds_ij
 * the gradient of a score, that of a distance is the sum of ds_ij over all pairs that far apart, of all sequences:
 * formed by one thread per head, so each sum has one order. */
#include <math.h>

#include "kernel/buckets.h"
#include "kernel/dropout.h"
#include "kernel/ref/attention_rows.h"

enum { Q, K, VALUE, BIAS, PLACE };

/* ---- places and distances ---- */
static void pick_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct pick_attrs *a = at_pick(&c->at);
    int64_t from = t / a->n * a->seq + a->first + t % a->n;
    (void)mine;
    ((int32_t *)c->out[0].p)[t] = ref_int(&c->in[0], from);
    ((int32_t *)c->out[1].p)[t] = (int32_t)from;
}

void pick_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, pick_row); }

static int64_t bucket_at(const struct kernel_call *c, int64_t r)
{
    const struct distances_attrs *a = at_distances(&c->at);
    return bucket_of(a, c->in[0].n[0], r - (a->q_seq - 1));
}

static void distances_row(const struct kernel_call *c, int64_t h, double *mine)
{
    (void)mine;
    for (int64_t r = 0; r < c->out[0].n[1]; r++) ref_set(&c->out[0], h, r, ref_get(&c->in[0], bucket_at(c, r), h));
}

void distances_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, distances_row); }

static void distances_dw_row(const struct kernel_call *c, int64_t b, double *mine)
{
    (void)mine;
    for (int64_t h = 0; h < c->in[0].n[1]; h++) {
        double sum = 0;
        for (int64_t r = 0; r < c->dout[0].n[1]; r++)
            if (bucket_at(c, r) == b) sum += ref_get(&c->dout[0], h, r);
        ref_put_grad(c, 0, b, h, sum);
    }
}

void distances_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, distances_dw_row); }

/* ---- attention ---- */
static bool has_bias(const struct kernel_call *c) { return c->n_in > BIAS && c->in[BIAS].p; }

static bool sees(const struct kernel_call *c, int64_t b, int64_t i, int64_t j)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    return (!at->causal || j <= i) && (c->n_in <= PLACE || ref_int(&c->in[PLACE], b * at->k_seq + j) >= 0);
}

static double score(const struct kernel_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t A = at->head_dim;
    double s = ref_dot(&c->in[Q], b * at->q_seq + i, h * A, &c->in[K], b * at->k_seq + j, h * A, A);
    return s + (has_bias(c) ? ref_get(&c->in[BIAS], h, distance_column(at->q_seq, i, j)) : 0);
}

static double drop_factor(const struct kernel_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    if (!dropout_active(&at->dropout, c->step)) return 1;
    uint64_t sequence = c->step->first_token / (uint64_t)at->sample + (uint64_t)b;
    uint64_t row = sequence * (uint64_t)at->heads_all + (uint64_t)(at->head_first + h);
    uint64_t index = (row * (uint64_t)at->q_seq + (uint64_t)i) * (uint64_t)at->k_seq + (uint64_t)j;
    bool keep = dropout_keep(c->step->seed, at->dropout.stream, c->step->step, index, at->dropout.p);
    return keep ? (double)dropout_scale(at->dropout.p) : 0;
}

static void attention_row(const struct kernel_call *c, int64_t t, double *p_S)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t b = t / at->q_seq, i = t % at->q_seq, A = at->head_dim, n = at->causal ? i + 1 : at->k_seq;
    for (int64_t h = 0; h < at->heads; h++) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++) max = fmax(max, p_S[j] = sees(c, b, i, j) ? score(c, b, h, i, j) : -INFINITY);
        for (int64_t j = 0; j < n; j++) sum += p_S[j] = max > -INFINITY ? exp(p_S[j] - max) : 0;
        ref_set(&c->out[1], t, h, sum > 0 ? max + log(sum) : INFINITY);
        for (int64_t j = 0; j < n; j++) p_S[j] *= sum > 0 ? drop_factor(c, b, h, i, j) / sum : 0;
        for (int64_t a = 0; a < A; a++) {
            double o = 0;
            for (int64_t j = 0; j < n; j++) o += p_S[j] * ref_get(&c->in[VALUE], b * at->k_seq + j, h * A + a);
            ref_set(&c->out[0], t, h * A + a, o);
        }
    }
}

void attention_biased_fwd_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[Q].n[0], at_attention_biased(&c->at)->k_seq, attention_row);
}

/* What one pair contributes: what multiplies do_i in dv_j, and the gradient of its score. */
struct pair {
    double p_dropped, ds;
};

static struct pair pair_backward(const struct kernel_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t A = at->head_dim, ti = b * at->q_seq + i, tj = b * at->k_seq + j;
    double delta = ref_dot(&c->dout[0], ti, h * A, &c->out[0], ti, h * A, A), factor = drop_factor(c, b, h, i, j);
    double p = exp(score(c, b, h, i, j) - ref_get(&c->out[1], ti, h));
    double dp = factor * ref_dot(&c->dout[0], ti, h * A, &c->in[VALUE], tj, h * A, A);
    return (struct pair){p * factor, p * (dp - delta)};
}

static void dq_row(const struct kernel_call *c, int64_t t, double *dq_A)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t b = t / at->q_seq, i = t % at->q_seq, A = at->head_dim;
    for (int64_t h = 0; h < at->heads; h++) {
        for (int64_t a = 0; a < A; a++) dq_A[a] = 0;
        for (int64_t j = 0; j < (at->causal ? i + 1 : at->k_seq); j++) {
            if (!sees(c, b, i, j)) continue;
            struct pair x = pair_backward(c, b, h, i, j);
            for (int64_t a = 0; a < A; a++) dq_A[a] += x.ds * ref_get(&c->in[K], b * at->k_seq + j, h * A + a);
        }
        for (int64_t a = 0; a < A; a++) ref_put_grad(c, Q, t, h * A + a, dq_A[a]);
    }
}

static void dkv_row(const struct kernel_call *c, int64_t t, double *dk_A)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t b = t / at->k_seq, j = t % at->k_seq, A = at->head_dim;
    double *dv_A = dk_A + A;
    for (int64_t h = 0; h < at->heads; h++) {
        for (int64_t a = 0; a < 2 * A; a++) dk_A[a] = 0;
        for (int64_t i = at->causal ? j : 0; i < at->q_seq; i++) {
            if (!sees(c, b, i, j)) continue;
            struct pair x = pair_backward(c, b, h, i, j);
            int64_t ti = b * at->q_seq + i;
            for (int64_t a = 0; a < A; a++) {
                dk_A[a] += x.ds * ref_get(&c->in[Q], ti, h * A + a);
                dv_A[a] += x.p_dropped * ref_get(&c->dout[0], ti, h * A + a);
            }
        }
        for (int64_t a = 0; a < A; a++) {
            ref_put_grad(c, K, t, h * A + a, dk_A[a]);
            ref_put_grad(c, VALUE, t, h * A + a, dv_A[a]);
        }
    }
}

static void dbias_row(const struct kernel_call *c, int64_t h, double *sum_R)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t n = distances_cols(at->q_seq, at->k_seq);
    for (int64_t r = 0; r < n; r++) sum_R[r] = 0;
    for (int64_t b = 0; b < at->batch; b++)
        for (int64_t i = 0; i < at->q_seq; i++)
            for (int64_t j = 0; j < at->k_seq; j++)
                if (sees(c, b, i, j)) sum_R[distance_column(at->q_seq, i, j)] += pair_backward(c, b, h, i, j).ds;
    for (int64_t r = 0; r < n; r++) ref_put_grad(c, BIAS, h, r, sum_R[r]);
}

static int64_t scratch_each(const struct kernel_call *c)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    int64_t two = 2 * (int64_t)at->head_dim, far = distances_cols(at->q_seq, at->k_seq);
    return c->phase == KERNEL_FWD ? at->k_seq : two > far ? two : far;
}

void attention_biased_bwd_in_ref(const struct kernel_call *c)
{
    int64_t each = scratch_each(c);
    if (c->din[Q].p) ref_each_row(c, c->in[Q].n[0], each, dq_row);
    if (c->din[K].p || c->din[VALUE].p) ref_each_row(c, c->in[K].n[0], each, dkv_row);
    if (has_bias(c) && c->din[BIAS].p) ref_each_row(c, at_attention_biased(&c->at)->heads, each, dbias_row);
}

size_t attention_biased_scratch_ref(const struct kernel_call *c, int n_threads)
{
    return ref_scratch(scratch_each(c), n_threads);
}
