/* SPDX-License-Identifier: Apache-2.0 */
/* ROTARY. A thread turns 8 pairs of some heads, for which it reads cosines and sines once. A pair is read before it is
 * written: x, acc and y may be the same memory. A position beyond the table turns its token into NaN. */
#include "kernel/cuda/gpu_rotary_args.h"
#include "kernel/cuda/gpu_walk.h"

enum { PAIRS = WALK_COLS };

/* Pair i of two chunks of columns: i of each, or neighbours. */
template <bool neighbours> GPU_FN float *first_of(gpu_eight c[2], int i)
{
    return neighbours ? &c[i / 4].v[2 * i % 8] : &c[0].v[i];
}
template <bool neighbours> GPU_FN float *second_of(gpu_eight c[2], int i)
{
    return neighbours ? &c[i / 4].v[2 * i % 8 + 1] : &c[1].v[i];
}

template <class T, bool neighbours> GPU_FN void turn(const rotary_args &a)
{
    int64_t item = gpu_block() * ROTARY_THREADS + gpu_thread();
    if (item >= a.items) return;
    int64_t pair = item % a.chunks * PAIRS, left = a.half - pair, token = item / a.chunks / a.groups;
    int head = (int)(item / a.chunks % a.groups) * ROTARY_HEADS, end = head + ROTARY_HEADS;
    int64_t pos = a.pos[token];
    bool known = pos >= 0 && pos < a.positions;
    gpu_eight co = {}, si = {};
    if (known) {
        co = gpu_get_eight<float>(a.table, pos, pair, left);
        si = gpu_get_eight<float>(a.table, pos, a.half + pair, left);
    }
    for (int i = 0; i < PAIRS; i++) {
        if (!known) co.v[i] = NAN;
        if (a.back) si.v[i] = -si.v[i];
    }
    /* Where the two chunks of columns begin, and what is left there. */
    int64_t first = a.at + (neighbours ? 2 * pair : pair), second = neighbours ? first + 8 : first + a.half;
    int64_t left_1 = neighbours ? 2 * left : left, left_2 = neighbours ? left_1 - 8 : left;
    GPU_ROLLED for (; head < end && head < a.heads; head++) {
        int64_t c1 = head * a.head_dim + first, c2 = head * a.head_dim + second;
        gpu_eight v[2] = {gpu_get_eight<T>(a.x, token, c1, left_1), gpu_get_eight<T>(a.x, token, c2, left_2)};
        for (int i = 0; i < PAIRS; i++) {
            float *p = first_of<neighbours>(v, i), *q = second_of<neighbours>(v, i), p_was = *p;
            *p = gpu_fma(p_was, co.v[i], -gpu_mul(*q, si.v[i]));
            *q = gpu_fma(*q, co.v[i], gpu_mul(p_was, si.v[i]));
        }
        gpu_add_eight(&v[0], gpu_get_eight_or_0<T>(a.acc, token, c1, left_1));
        gpu_add_eight(&v[1], gpu_get_eight_or_0<T>(a.acc, token, c2, left_2));
        gpu_put_eight<T>(a.y, token, c1, left_1, v[0]);
        gpu_put_eight<T>(a.y, token, c2, left_2, v[1]);
    }
}

/* The columns that are not turned, one a thread. */
template <class T> GPU_FN void rest(const rotary_args &a)
{
    int64_t item = gpu_block() * ROTARY_THREADS + gpu_thread(), each = a.head_dim - 2 * a.half;
    if (item >= a.items || (a.x.p == a.y.p && !a.acc.p)) return;
    int64_t i = item % each, head = item / each % a.heads, token = item / each / a.heads;
    int64_t col = head * a.head_dim + (i < a.at ? i : i + 2 * a.half);
    float x = gpu_get((const T *)a.x.p + token * a.x.step + col);
    if (a.acc.p) x += gpu_get((const T *)a.acc.p + token * a.acc.step + col);
    gpu_put((T *)a.y.p + token * a.y.step + col, x);
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(rotary_##type, rotary_args, ROTARY_THREADS) { turn<T, false>(a); }                                      \
    GPU_KERNEL(rotary_pairs_##type, rotary_args, ROTARY_THREADS) { turn<T, true>(a); }                                 \
    GPU_KERNEL(rotary_rest_##type, rotary_args, ROTARY_THREADS) { rest<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
