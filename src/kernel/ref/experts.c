/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens sorted by expert, the experts' products, and back, plainly.
 *
 * PERMUTE counts, sums up and deals: two passes over the picks, rows of one expert by token, so the
 * order is a function of the picks alone. With a capacity a pick is dropped when its expert has had its number from
 * this sequence (kernel/experts.h); dropped picks have row -1 and contribute nothing to z, forward or backward (Switch
 * Transformer's residual stream carries such a token on). Backward of a gather is a sum over a token's k rows in order
 * of choice. */
#include <string.h>

#include "kernel/experts.h"
#include "kernel/ref/ref.h"

size_t permute_scratch_ref(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return permute_scratch_bytes(c);
}

void permute_fwd_ref(const struct kernel_call *c)
{
    int k = at_permute(&c->at)->top_k;
    int64_t used = permute_deal(c), n = c->in[0].n[1];
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        for (int j = 0; j < k; j++) {
            int32_t r = ints_row(&c->out[1], t)[j];
            for (int64_t d = 0; r >= 0 && d < n; d++) ref_set(&c->out[0], r, d, ref_get(&c->in[0], t, d));
        }
    for (int64_t r = used; r < c->out[0].n[0]; r++)
        for (int64_t d = 0; d < n; d++) ref_set(&c->out[0], r, d, 0);
}

static void permute_bwd_row(const struct kernel_call *c, int64_t t, double *mine)
{
    int k = at_permute(&c->at)->top_k;
    (void)mine;
    for (int64_t d = 0; d < c->dout[0].n[1]; d++) {
        double sum = 0;
        for (int j = 0; j < k; j++) {
            int32_t r = ints_row(&c->out[1], t)[j];
            if (r >= 0) sum += ref_get(&c->dout[0], r, d);
        }
        ref_put_grad(c, 0, t, d, sum);
    }
}

void permute_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->in[0].n[0], 0, permute_bwd_row);
}

/* ---- unpermute ---- */
static void unpermute_row(const struct kernel_call *c, int64_t t, double *mine)
{
    int k = at_unpermute(&c->at)->top_k;
    (void)mine;
    for (int64_t d = 0; d < c->out[0].n[1]; d++) {
        double sum = 0;
        for (int j = 0; j < k; j++) {
            int32_t r = ints_row(&c->in[2], t)[j];
            if (r >= 0) sum += ref_get(&c->in[1], t, j) * ref_get(&c->in[0], r, d);
        }
        ref_set(&c->out[0], t, d, sum);
    }
}

void unpermute_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, unpermute_row); }

static void gate_bwd_row(const struct kernel_call *c, int64_t t, double *mine)
{
    int k = at_unpermute(&c->at)->top_k;
    (void)mine;
    for (int j = 0; j < k; j++) {
        int32_t r = ints_row(&c->in[2], t)[j];
        double dot = 0;
        for (int64_t d = 0; r >= 0 && d < c->dout[0].n[1]; d++)
            dot += ref_get(&c->dout[0], t, d) * ref_get(&c->in[0], r, d);
        ref_put_grad(c, 1, t, j, dot);
    }
}

size_t unpermute_scratch_ref(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)c->in[0].n[0]; /* which rows are in use */
}

void unpermute_bwd_in_ref(const struct kernel_call *c)
{
    int k = at_unpermute(&c->at)->top_k;
    if (c->din[1].p) ref_each_row(c, c->in[1].n[0], 0, gate_bwd_row);
    if (!c->din[0].p) return;
    char *used = c->scratch;
    memset(used, 0, (size_t)c->in[0].n[0]);
    for (int64_t t = 0; t < c->in[1].n[0]; t++)
        for (int j = 0; j < k; j++) {
            int32_t r = ints_row(&c->in[2], t)[j];
            if (r < 0) continue;
            used[r] = 1;
            for (int64_t d = 0; d < c->in[0].n[1]; d++)
                ref_put_grad(c, 0, r, d, ref_get(&c->in[1], t, j) * ref_get(&c->dout[0], t, d));
        }
    for (int64_t r = 0; r < c->in[0].n[0]; r++)
        for (int64_t d = 0; !used[r] && d < c->in[0].n[1]; d++) ref_put_grad(c, 0, r, d, 0);
}

/* ---- grouped ---- */
/* Whose row this is; -1: nobody's. */
static int64_t expert_of(const struct kernel_call *c, int64_t row)
{
    const int32_t *rows_E = c->in[2].p;
    for (int64_t e = 0; e < view_cols(&c->in[2]); e++) {
        if (row < rows_E[e]) return e;
        row -= rows_E[e];
    }
    return -1;
}

static int64_t out_features(const struct kernel_call *c) { return c->in[1].n[0] / view_cols(&c->in[2]); }

static void grouped_row(const struct kernel_call *c, int64_t r, double *mine)
{
    (void)mine;
    int64_t e = expert_of(c, r), n_out = out_features(c);
    for (int64_t n = 0; n < n_out; n++) {
        double sum = 0;
        for (int64_t k = 0; e >= 0 && k < c->in[1].n[1]; k++)
            sum += ref_get(&c->in[0], r, k) * ref_get(&c->in[1], e * n_out + n, k);
        ref_set(&c->out[0], r, n, sum);
    }
}

void grouped_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, grouped_row); }

static void grouped_dx_row(const struct kernel_call *c, int64_t r, double *sum_K)
{
    int64_t e = expert_of(c, r), n_out = out_features(c), n_k = c->in[1].n[1];
    for (int64_t k = 0; k < n_k; k++) sum_K[k] = 0;
    for (int64_t n = 0; e >= 0 && n < n_out; n++) {
        double dy = ref_get(&c->dout[0], r, n);
        for (int64_t k = 0; k < n_k; k++) sum_K[k] += dy * ref_get(&c->in[1], e * n_out + n, k);
    }
    for (int64_t k = 0; k < n_k; k++) ref_put_grad(c, 0, r, k, sum_K[k]);
}

void grouped_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->in[0].n[0], c->in[1].n[1], grouped_dx_row);
}

static void grouped_dw_row(const struct kernel_call *c, int64_t row, double *sum_K)
{
    const int32_t *rows_E = c->in[2].p;
    int64_t n_out = out_features(c), e = row / n_out, n_k = c->in[1].n[1], first = 0;
    for (int64_t i = 0; i < e; i++) first += rows_E[i];
    for (int64_t k = 0; k < n_k; k++) sum_K[k] = 0;
    for (int64_t r = first; r < first + rows_E[e]; r++) {
        double dy = ref_get(&c->dout[0], r, row % n_out);
        for (int64_t k = 0; k < n_k; k++) sum_K[k] += dy * ref_get(&c->in[0], r, k);
    }
    for (int64_t k = 0; k < n_k; k++) ref_put_grad(c, 1, row, k, sum_K[k]);
}

void grouped_bwd_w_ref(const struct kernel_call *c)
{
    if (c->din[1].p) ref_each_row(c, c->in[1].n[0], c->in[1].n[1], grouped_dw_row);
}

size_t grouped_scratch_ref(const struct kernel_call *c, int n_threads) { return ref_scratch(c->in[1].n[1], n_threads); }

/* ---- a bias per expert ---- */
static void expert_bias_row(const struct kernel_call *c, int64_t r, double *mine)
{
    (void)mine;
    int64_t e = at_expert_bias(&c->at)->bias_off ? -1 : expert_of(c, r), n = c->in[0].n[1];
    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], r, i, ref_get(&c->in[0], r, i) + (e >= 0 ? ref_get(&c->in[1], 0, e * n + i) : 0));
}

void expert_bias_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, expert_bias_row); }

static void expert_bias_dx_row(const struct kernel_call *c, int64_t r, double *mine)
{
    (void)mine;
    for (int64_t i = 0; i < c->dout[0].n[1]; i++) ref_put_grad(c, 0, r, i, ref_get(&c->dout[0], r, i));
}

void expert_bias_bwd_in_ref(const struct kernel_call *c)
{
    if (c->din[0].p) ref_each_row(c, c->dout[0].n[0], 0, expert_bias_dx_row);
}

/* In f32, as every family: the sum may go on in another round. */
static void expert_bias_db_row(const struct kernel_call *c, int64_t e, double *mine)
{
    (void)mine;
    const int32_t *rows_E = c->in[2].p;
    int64_t first = 0, n = c->dout[0].n[1];
    for (int64_t i = 0; i < e; i++) first += rows_E[i];
    for (int64_t i = 0; i < n; i++) {
        float sum = c->acc[1].p ? (float)ref_get(&c->acc[1], 0, e * n + i) : 0;
        for (int64_t r = first; r < first + rows_E[e]; r++) sum += (float)ref_get(&c->dout[0], r, i);
        ref_set(&c->din[1], 0, e * n + i, (double)sum);
    }
}

void expert_bias_bwd_w_ref(const struct kernel_call *c)
{
    if (c->din[1].p) ref_each_row(c, view_cols(&c->in[2]), 0, expert_bias_db_row);
}
