/* SPDX-License-Identifier: Apache-2.0 */
/* ADD and DROPOUT. Which elements are dropped is a function of a counter (kernel/dropout.h), whose words come in blocks
 * of four: 8 columns have two blocks, or three where a row does not begin with a block. All that a thread reads of its
 * place it reads before it writes there: what is written may be the same memory. */
#include "base/philox.h"
#include "kernel/cuda/gpu_add_args.h"
#include "kernel/cuda/gpu_walk.h"

/* Bit i: element first + i is dropped. */
GPU_FN uint32_t dropped(const add_args &a, uint64_t first)
{
    uint32_t bits = 0, skip = (uint32_t)first % 4;
    for (int block = 0; block < 3; block++) {
        uint32_t word[4];
        if (block == 2 && !skip) break;
        philox_block(a.seed, a.stream, first / 4 + (uint64_t)block, word);
        for (int i = 0; i < 4; i++) bits |= (uint32_t)(word[i] < a.threshold) << (4 * block + i);
    }
    return bits >> skip;
}

GPU_FN void drop(const add_args &a, const gpu_place &at, gpu_eight *x)
{
    uint64_t token = a.first_token + (a.index ? (uint64_t)a.index[at.row] : (uint64_t)at.row);
    uint32_t bits = dropped(a, token * (uint64_t)a.walk.cols + (uint64_t)at.col);
    for (int i = 0; i < WALK_COLS; i++) x->v[i] = bits >> i & 1 ? 0 : gpu_mul(x->v[i], a.scale);
}

template <class T> GPU_FN void add(const add_args &a)
{
    GPU_WALK(at, a.walk) {
        gpu_eight x = gpu_get_eight<T>(a.x, at.row, at.col, at.left), y = x;
        gpu_eight before = gpu_get_eight_or_0<T>(a.before, at.row, at.col, at.left);
        gpu_add_eight(&x, gpu_get_eight_or_0<T>(a.acc, at.row, at.col, at.left));
        if (a.y.p && a.threshold) drop(a, at, &y);
        for (int i = 0; i < WALK_COLS; i++) y.v[i] = gpu_add(gpu_mul(y.v[i], a.times), before.v[i]);
        if (a.y.p) gpu_put_eight<T>(a.y, at.row, at.col, at.left, y);
        if (a.same.p) gpu_put_eight<T>(a.same, at.row, at.col, at.left, x);
    }
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(add_##type, add_args, WALK_THREADS) { add<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
