/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding and linear layers, plainly. y = x w^T + bias with w stored out-features by in-features, as files have
 * it, so the forward product runs along rows of both. Both backward products run along rows too, by adding whole
 * rows into a row of double sums. 2 T N K operations per phase. */
#include "kernel/ref/ref.h"

/* The row of the table, or -1: in another part of the vocabulary. */
static int64_t token_row(const struct kernel_call *c, int64_t t)
{
    const struct vocab_attrs *at = at_vocab(&c->at);
    int64_t id = ref_int(&c->in[0], t), n = c->in[1].n[0], whole = at->whole ? at->whole : n, row = id - at->first;
    CHECK(id >= 0 && id < whole, "token %lld has id %lld, the vocabulary has %lld", (long long)t, (long long)id,
          (long long)whole);
    return row >= 0 && row < n ? row : -1;
}

static double embed_scale(const struct kernel_call *c)
{
    return at_vocab(&c->at)->scale != 0 ? (double)at_vocab(&c->at)->scale : 1;
}

static void embed_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t row = token_row(c, t);
    for (int64_t d = 0; d < c->in[1].n[1]; d++)
        ref_set(&c->out[0], t, d, row < 0 ? 0 : ref_get(&c->in[1], row, d) * embed_scale(c));
}

void embed_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, embed_row); }

/* One column of the table for all tokens in order: two tokens with one id never meet in two threads. */
static void embed_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    const struct view *dw = &c->din[1];
    for (int64_t v = 0; v < c->in[1].n[0]; v++) ref_put_grad(c, 1, v, d, 0);
    for (int64_t t = 0; t < c->in[0].n[0]; t++) {
        int64_t row = token_row(c, t);
        if (row >= 0) ref_set(dw, row, d, ref_get(dw, row, d) + ref_get(&c->dout[0], t, d) * embed_scale(c));
    }
}

void embed_bwd_w_ref(const struct kernel_call *c)
{
    if (c->din[1].p) ref_each_row(c, c->in[1].n[1], 0, embed_column);
}

static void linear_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t n = 0; n < c->in[1].n[0]; n++) {
        double sum = 0;
        for (int64_t k = 0; k < c->in[1].n[1]; k++) sum += ref_get(&c->in[0], t, k) * ref_get(&c->in[1], n, k);
        if (c->n_in > 2) sum += ref_get(&c->in[2], 0, n);
        ref_set(&c->out[0], t, n, sum);
    }
}

void linear_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, linear_row); }

static void linear_dx_row(const struct kernel_call *c, int64_t t, double *sum_K)
{
    int64_t n_k = c->in[1].n[1];
    for (int64_t k = 0; k < n_k; k++) sum_K[k] = 0;
    for (int64_t n = 0; n < c->in[1].n[0]; n++) {
        double dy = ref_get(&c->dout[0], t, n);
        for (int64_t k = 0; k < n_k; k++) sum_K[k] += dy * ref_get(&c->in[1], n, k);
    }
    for (int64_t k = 0; k < n_k; k++) ref_put_grad(c, 0, t, k, sum_K[k]);
}

void linear_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->in[0].n[0], c->in[1].n[1], linear_dx_row);
}

static void linear_dw_row(const struct kernel_call *c, int64_t n, double *sum_K)
{
    int64_t n_k = c->in[1].n[1], n_t = c->in[0].n[0];
    double bias = 0;
    for (int64_t t = 0; t < n_t; t++) bias += ref_get(&c->dout[0], t, n);
    ref_put_grad(c, 2, 0, n, bias);
    if (!c->din[1].p) return;
    for (int64_t k = 0; k < n_k; k++) sum_K[k] = 0;
    for (int64_t t = 0; t < n_t; t++) {
        double dy = ref_get(&c->dout[0], t, n);
        for (int64_t k = 0; k < n_k; k++) sum_K[k] += dy * ref_get(&c->in[0], t, k);
    }
    for (int64_t k = 0; k < n_k; k++) ref_put_grad(c, 1, n, k, sum_K[k]);
}

void linear_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[1].n[0], c->in[1].n[1], linear_dw_row); }

size_t linear_scratch_ref(const struct kernel_call *c, int n_threads) { return ref_scratch(c->in[1].n[1], n_threads); }
