/* SPDX-License-Identifier: Apache-2.0 */
/* act_body.h: ACT over vec.h, forward and backward: act_formula_body.h along rows. */
#ifndef TUTTI_KERNEL_CPU_VEC_ACT_BODY_H
#define TUTTI_KERNEL_CPU_VEC_ACT_BODY_H

#include "kernel/cpu/vec/vec_rows.h"

#include "kernel/act_formula_body.h" /* in the words of the above */

/* A block of values: y of x, or of gate x and up. */
VEC_INLINE void act_fwd_block(float *y, const float *x, const float *up, int64_t n, float cap, enum act_kind kind)
{
    for (int64_t i = 0; i < n; i += VL)
        vf_store(y + i, act_of(kind, vf_load(x + i), act_gated(kind) ? vf_load(up + i) : vf_zero(), cap));
}
#define ACT_EACH(call, ...)                                                                                            \
    do {                                                                                                               \
        switch (at_act(&c->at)->kind) {                                                                                \
        case ACT_SWIGLU: call(__VA_ARGS__, ACT_SWIGLU); break;                                                         \
        case ACT_GEGLU: call(__VA_ARGS__, ACT_GEGLU); break;                                                           \
        case ACT_GELU_ERF: call(__VA_ARGS__, ACT_GELU_ERF); break;                                                     \
        case ACT_GELU_QUICK: call(__VA_ARGS__, ACT_GELU_QUICK); break;                                                 \
        case ACT_TANH: call(__VA_ARGS__, ACT_TANH); break;                                                             \
        case ACT_CAP: call(__VA_ARGS__, ACT_CAP); break;                                                               \
        case ACT_RELU2: call(__VA_ARGS__, ACT_RELU2); break;                                                           \
        case ACT_CLAMPED: call(__VA_ARGS__, ACT_CLAMPED); break;                                                       \
        case ACT_RELU: call(__VA_ARGS__, ACT_RELU); break;                                                             \
        case ACT_TIMES: call(__VA_ARGS__, ACT_TIMES); break;                                                           \
        default: call(__VA_ARGS__, ACT_GELU);                                                                          \
        }                                                                                                              \
    } while (0)
static void act_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const int64_t n = view_cols(&c->out[0]);
    const bool gated = act_gated(at_act(&c->at)->kind);
    const float cap = at_act(&c->at)->cap;
    float some[3][ROW_BLOCK];
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r);
        void *y = row_at(&c->out[0], r);
        for (int64_t i = 0, m; i < n; i += m) {
            m = row_block(n - i);
            const float *a = row_floats(some[0], x, i, m, t), *up = gated ? row_floats(some[1], x, n + i, m, t) : NULL;
            float *to = row_room(some[2], y, i, m, t);
            ACT_EACH(act_fwd_block, to, a, up, m, cap);
            row_put(y, i, m, t, to);
        }
    }
}
VEC_BLOCK_KERNEL(act_fwd)

/* A block of each number of backward; acc, acc_up NULL: zeros. */
struct act_bwd {
    const float *x, *up, *dy, *acc, *acc_up;
    float *dx, *dup;
};
VEC_INLINE vf act_acc(const float *acc, int64_t i) { return acc ? vf_load(acc + i) : vf_zero(); }
VEC_INLINE void act_bwd_block(const struct act_bwd *b, int64_t n, float cap, enum act_kind kind)
{
    for (int64_t i = 0; i < n; i += VL) {
        vf up = act_gated(kind) ? vf_load(b->up + i) : vf_zero();
        struct act_gradients d = act_gradients_of(kind, vf_load(b->dy + i), vf_load(b->x + i), up, cap);
        if (act_gated(kind)) vf_store(b->dup + i, d.up + act_acc(b->acc_up, i));
        vf_store(b->dx + i, d.a + act_acc(b->acc, i));
    }
}
static void act_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    const bool gated = act_gated(at_act(&c->at)->kind);
    const int64_t n = view_cols(&c->in[0]) / (gated ? 2 : 1);
    const float cap = at_act(&c->at)->cap;
    float some[7][ROW_BLOCK];
    for (int64_t r = lo; r < hi; r++) {
        const void *x = row_at(&c->in[0], r), *dy = row_at(&c->dout[0], r), *acc = row_or_null(&c->acc[0], r);
        void *dx = row_at(&c->din[0], r);
        for (int64_t i = 0, m; i < n; i += m) {
            m = row_block(n - i);
            struct act_bwd b = {.x = row_floats(some[0], x, i, m, t),
                                .dy = row_floats(some[1], dy, i, m, t),
                                .acc = row_floats_or_null(some[2], acc, i, m, t),
                                .dx = row_room(some[3], dx, i, m, t)};
            if (gated) {
                b.up = row_floats(some[4], x, n + i, m, t);
                b.acc_up = row_floats_or_null(some[5], acc, n + i, m, t);
                b.dup = row_room(some[6], dx, n + i, m, t);
            }
            ACT_EACH(act_bwd_block, &b, m, cap);
            if (gated) row_put(dx, n + i, m, t, b.dup);
            row_put(dx, i, m, t, b.dx);
        }
    }
}
VEC_BLOCK_KERNEL(act_bwd_in)

#endif
