/* SPDX-License-Identifier: Apache-2.0 */
/* The column work around latent attention (DeepSeek-V2, section 2.1): keys are put together from a part of their own
 * and a rotated part that all heads share, values are widened with zeros to the width of a key, so that one attention
 * row serves; afterwards the zeros are cut off again. Copies only: at most a few hundredths of the products around
 * them. */
#include "kernel/ref/ref.h"

static void mla_kv_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct mla_kv_attrs *at = at_mla_kv(&c->at);
    (void)mine;
    int64_t A = at->head_dim, nope = at->nope, value = at->value, HA = at->heads * A, from = nope + value;
    for (int64_t h = 0; h < at->heads; h++)
        for (int64_t i = 0; i < A; i++) {
            double k = i < nope ? ref_get(&c->in[0], t, h * from + i) : ref_get(&c->in[1], t, i - nope);
            ref_set(&c->out[0], t, h * A + i, k);
            ref_set(&c->out[0], t, HA + h * A + i, i < value ? ref_get(&c->in[0], t, h * from + nope + i) : 0);
        }
}

void mla_kv_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, mla_kv_row); }

static void mla_kv_bwd_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct mla_kv_attrs *at = at_mla_kv(&c->at);
    (void)mine;
    int64_t A = at->head_dim, nope = at->nope, value = at->value, HA = at->heads * A, from = nope + value;
    for (int64_t h = 0; h < at->heads; h++)
        for (int64_t i = 0; i < from; i++)
            ref_put_grad(c, 0, t, h * from + i, ref_get(&c->dout[0], t, i < nope ? h * A + i : HA + h * A + i - nope));
    for (int64_t i = nope; i < A; i++) {
        double sum = 0;
        for (int64_t h = 0; h < at->heads; h++) sum += ref_get(&c->dout[0], t, h * A + i);
        ref_put_grad(c, 1, t, i - nope, sum);
    }
}

void mla_kv_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, mla_kv_bwd_row); }

static void trim_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const struct trim_attrs *at = at_trim(&c->at);
    (void)mine;
    int64_t A = at->head_dim, value = at->value;
    for (int64_t h = 0; h < at->heads; h++)
        for (int64_t i = 0; i < A; i++) {
            if (c->phase == KERNEL_FWD && i < value)
                ref_set(&c->out[0], t, h * value + i, ref_get(&c->in[0], t, h * A + i));
            if (c->phase != KERNEL_FWD)
                ref_put_grad(c, 0, t, h * A + i, i < value ? ref_get(&c->dout[0], t, h * value + i) : 0);
        }
}

void trim_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, trim_row); }

void trim_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, trim_row); }

/* ---- two tensors of one token beside each other ---- */
static void join_row(const struct kernel_call *c, int64_t t, double *mine)
{
    int64_t at = 0;
    (void)mine;
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < c->in[k].n[1]; i++)
            if (c->phase == KERNEL_FWD) ref_set(&c->out[0], t, at + i, ref_get(&c->in[k], t, i));
            else ref_put_grad(c, k, t, i, ref_get(&c->dout[0], t, at + i));
        at += c->in[k].n[1];
    }
}

void join_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, join_row); }

void join_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->dout[0].n[0], 0, join_row); }
