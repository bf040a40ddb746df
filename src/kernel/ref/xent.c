/* Softmax cross-entropy, plainly: nats = log(sum exp(logits)) - logits[target], tokens with target -1 left out.
 * Per-token losses go to scratch and are added in token order, so the sum does not depend on the team. Backward
 * forms the softmax again from the logits (two passes over a row) instead of keeping it, which would be the
 * largest tensor of the model a second time. */
#include <math.h>

#include "kernel/ref/ref.h"

static int32_t target_of(const struct kernel_call *c, int64_t t)
{
    int32_t target = ref_int(&c->in[1], t);
    CHECK(target >= -1 && target < c->in[0].n[1], "token %lld has target %d, the vocabulary has %lld", (long long)t,
          (int)target, (long long)c->in[0].n[1]);
    return target;
}

static double row_lse(const struct view *logits, int64_t t)
{
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < logits->n[1]; v++) max = fmax(max, ref_get(logits, t, v));
    for (int64_t v = 0; v < logits->n[1]; v++) sum += exp(ref_get(logits, t, v) - max);
    return max + log(sum);
}

static void xent_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int32_t target = target_of(c, t);
    double *nats_T = c->scratch;
    nats_T[t] = target < 0 ? 0 : row_lse(&c->in[0], t) - ref_get(&c->in[0], t, target);
}

void xent_fwd_ref(const struct kernel_call *c)
{
    int64_t n_t = c->in[0].n[0], trained = 0;
    const double *nats_T = c->scratch;
    double nats = 0;
    ref_each_row(c, n_t, 0, xent_row);
    for (int64_t t = 0; t < n_t; t++) {
        nats += nats_T[t];
        trained += target_of(c, t) >= 0;
    }
    ref_set(&c->out[0], 0, 0, ref_get(&c->out[0], 0, 0) + nats);
    ref_set(&c->out[0], 0, 1, ref_get(&c->out[0], 0, 1) + (double)trained);
}

static void xent_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    const struct view *logits = &c->in[0];
    int32_t target = target_of(c, t);
    double lse = target < 0 ? 0 : row_lse(logits, t);
    for (int64_t v = 0; v < logits->n[1]; v++) {
        double g = target < 0 ? 0 : exp(ref_get(logits, t, v) - lse) - (v == target);
        ref_put_grad(c, 0, t, v, g * (double)c->step->loss_scale);
    }
}

void xent_bwd_in_ref(const struct kernel_call *c)
{
    ref_each_row(c, c->in[0].n[0], 0, xent_dx_row);
}

size_t xent_scratch_ref(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)c->in[0].n[0] * sizeof(double);
}
