/* SPDX-License-Identifier: Apache-2.0 */
/* COPY, with a cast between any two types; between equal ones bits are moved as they are. */
#include "kernel/cuda/gpu_copy_args.h"
#include "kernel/cuda/gpu_walk.h"

/* acc is of the type of y. */
template <class To, class From> GPU_FN void cast(const copy_args &a)
{
    GPU_WALK(at, a.walk) {
        gpu_eight x = gpu_get_eight<From>(a.x, at.row, at.col, at.left);
        if (a.acc.p) gpu_add_eight(&x, gpu_get_eight<To>(a.acc, at.row, at.col, at.left));
        gpu_put_eight<To>(a.y, at.row, at.col, at.left, x);
    }
}

template <class W> GPU_FN void move(const copy_args &a)
{
    const int n = 16 / (int)sizeof(W);
    GPU_WALK(at, a.walk) {
        const W *x = (const W *)a.x.p + at.row * a.x.step + at.col;
        W *y = (W *)a.y.p + at.row * a.y.step + at.col;
        for (int part = 0; part < WALK_COLS && part < at.left; part += n)
            if (at.left - part >= n && ((uintptr_t)(x + part) | (uintptr_t)(y + part)) % 16 == 0)
                gpu_store(y + part, gpu_load<gpu_16>(x + part));
            else
                for (int i = part; i < part + n && i < at.left; i++) y[i] = x[i];
    }
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(copy_to_f32_##type, copy_args, WALK_THREADS) { cast<float, T>(a); }                                     \
    GPU_KERNEL(copy_to_bf16_##type, copy_args, WALK_THREADS) { cast<bf16_t, T>(a); }                                   \
    GPU_KERNEL(copy_to_f16_##type, copy_args, WALK_THREADS) { cast<f16_t, T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
GPU_KERNEL(copy_2, copy_args, WALK_THREADS) { move<uint16_t>(a); }
GPU_KERNEL(copy_4, copy_args, WALK_THREADS) { move<uint32_t>(a); }
