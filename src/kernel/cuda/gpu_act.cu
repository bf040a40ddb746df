/* SPDX-License-Identifier: Apache-2.0 */
/* ACT: act_formula_body.h along rows. Which kind it is, is asked once for 8 elements. */
#include "kernel/cuda/gpu_walk.h"
#include "kernel/cuda/gpu_words.h"

#include "kernel/act_formula_body.h" /* in the words of the above */
#include "kernel/cuda/gpu_act_args.h"

template <enum act_kind kind> GPU_FN void values(const gpu_eight &x, const gpu_eight &up, float cap, gpu_eight *y)
{
    for (int i = 0; i < WALK_COLS; i++) y->v[i] = act_of(kind, x.v[i], up.v[i], cap);
}

/* To what is in dx and dup. */
template <enum act_kind kind>
GPU_FN void gradients(const gpu_eight &g, const gpu_eight &x, const gpu_eight &up, float cap, gpu_eight *dx,
                      gpu_eight *dup)
{
    for (int i = 0; i < WALK_COLS; i++) {
        act_gradients d = act_gradients_of(kind, g.v[i], x.v[i], up.v[i], cap);
        dx->v[i] += d.a;
        dup->v[i] += d.up;
    }
}

#define EACH_KIND(kind, what, ...)                                                                                     \
    switch (kind) {                                                                                                    \
    case ACT_SWIGLU: what<ACT_SWIGLU>(__VA_ARGS__); break;                                                             \
    case ACT_GELU_ERF: what<ACT_GELU_ERF>(__VA_ARGS__); break;                                                         \
    case ACT_TANH: what<ACT_TANH>(__VA_ARGS__); break;                                                                 \
    case ACT_GEGLU: what<ACT_GEGLU>(__VA_ARGS__); break;                                                               \
    case ACT_CAP: what<ACT_CAP>(__VA_ARGS__); break;                                                                   \
    case ACT_GELU_QUICK: what<ACT_GELU_QUICK>(__VA_ARGS__); break;                                                     \
    case ACT_CLAMPED: what<ACT_CLAMPED>(__VA_ARGS__); break;                                                           \
    case ACT_RELU2: what<ACT_RELU2>(__VA_ARGS__); break;                                                               \
    case ACT_RELU: what<ACT_RELU>(__VA_ARGS__); break;                                                                 \
    case ACT_TIMES: what<ACT_TIMES>(__VA_ARGS__); break;                                                               \
    default: what<ACT_GELU>(__VA_ARGS__);                                                                              \
    }

template <class T> GPU_FN void forward(const act_args &a)
{
    bool gated = act_gated(a.kind);
    GPU_WALK(at, a.walk) {
        gpu_eight x = gpu_get_eight<T>(a.x, at.row, at.col, at.left), up = {}, y;
        if (gated) up = gpu_get_eight<T>(a.x, at.row, a.walk.cols + at.col, at.left);
        EACH_KIND(a.kind, values, x, up, a.cap, &y)
        gpu_put_eight<T>(a.y, at.row, at.col, at.left, y);
    }
}

template <class T> GPU_FN void backward(const act_args &a)
{
    bool gated = act_gated(a.kind);
    GPU_WALK(at, a.walk) {
        int64_t up_col = a.walk.cols + at.col;
        gpu_eight x = gpu_get_eight<T>(a.x, at.row, at.col, at.left);
        gpu_eight g = gpu_get_eight<T>(a.dy, at.row, at.col, at.left);
        gpu_eight dx = gpu_get_eight_or_0<T>(a.acc, at.row, at.col, at.left), up = {}, dup = {};
        if (gated) {
            up = gpu_get_eight<T>(a.x, at.row, up_col, at.left);
            dup = gpu_get_eight_or_0<T>(a.acc, at.row, up_col, at.left);
        }
        EACH_KIND(a.kind, gradients, g, x, up, a.cap, &dx, &dup)
        gpu_put_eight<T>(a.dx, at.row, at.col, at.left, dx);
        if (gated) gpu_put_eight<T>(a.dx, at.row, up_col, at.left, dup);
    }
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(act_fwd_##type, act_args, WALK_THREADS) { forward<T>(a); }                                              \
    GPU_KERNEL(act_bwd_in_##type, act_args, WALK_THREADS) { backward<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
