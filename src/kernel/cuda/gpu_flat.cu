/* SPDX-License-Identifier: Apache-2.0 */
/* Casts, sums and norms of whole arrays, to the bit what kernel/ref/flat.c writes out. Elementwise ones are one pass;
 * sums of squares are made by kernel/flat_ops.h's blocks and lanes, 16 lanes by 16 threads, and added in order by one
 * thread: a billion elements are 244141 blocks. Exact squares are integers, so whoever counts first changes nothing. */
#include "kernel/cuda/gpu_array.h"
#include "kernel/cuda/gpu_flat_args.h"
#include "kernel/squares.h"

GPU_FN int64_t first_here() { return (gpu_block() * FLAT_THREADS + gpu_thread()) * FLAT_EACH; }

/* ---- casts ---- */
template <class To, class From> GPU_FN void cast(const flat_args &a)
{
    int64_t i = first_here();
    if (i < a.n) gpu_put8((To *)a.y + i, gpu_get8((const From *)a.x + i, a.n - i), a.n - i);
}
#define CAST(to, To, from, From)                                                                                       \
    GPU_KERNEL(cast_##from##_##to, flat_args, FLAT_THREADS) { cast<To, From>(a); }
CAST(f32, float, bf16, bf16_t)
CAST(f32, float, f16, f16_t)
CAST(bf16, bf16_t, f32, float)
CAST(bf16, bf16_t, f16, f16_t)
CAST(f16, f16_t, f32, float)
CAST(f16, f16_t, bf16, bf16_t)

template <class T> GPU_FN void copy(const flat_args &a)
{
    const int n = sizeof(T) == 1 ? 16 : 8;
    int64_t i = (gpu_block() * FLAT_THREADS + gpu_thread()) * n;
    if (i < a.n) gpu_write<T, n>((T *)a.y + i, gpu_read<T, n>((const T *)a.x + i, a.n - i), a.n - i);
}
GPU_KERNEL(cast_same_8, flat_args, FLAT_THREADS) { copy<uint8_t>(a); }
GPU_KERNEL(cast_same_16, flat_args, FLAT_THREADS) { copy<uint16_t>(a); }
GPU_KERNEL(cast_same_32, flat_args, FLAT_THREADS) { copy<uint32_t>(a); }
GPU_KERNEL(cast_same_64, flat_args, FLAT_THREADS) { copy<uint64_t>(a); }

GPU_FN double number(const void *p, int type, int64_t i)
{
    switch (type) {
    case FLAT_F32: return (double)((const float *)p)[i];
    case FLAT_BF16: return (double)gpu_widen(((const bf16_t *)p)[i]);
    case FLAT_F16: return (double)gpu_widen(((const f16_t *)p)[i]);
    case FLAT_F64: return ((const double *)p)[i];
    case FLAT_I32: return ((const int32_t *)p)[i];
    case FLAT_I64: return (double)((const int64_t *)p)[i];
    case FLAT_U8: return ((const uint8_t *)p)[i];
    default: return ((const uint16_t *)p)[i];
    }
}
GPU_FN void set_number(void *p, int type, int64_t i, double v)
{
    switch (type) {
    case FLAT_F32: ((float *)p)[i] = (float)v; return;
    case FLAT_BF16: gpu_round((bf16_t *)p + i, gpu_to_odd(v)); return;
    case FLAT_F16: gpu_round((f16_t *)p + i, gpu_to_odd(v)); return;
    case FLAT_F64: ((double *)p)[i] = v; return;
    case FLAT_I32: ((int32_t *)p)[i] = (int32_t)v; return;
    case FLAT_I64: ((int64_t *)p)[i] = (int64_t)v; return;
    case FLAT_U8: ((uint8_t *)p)[i] = (uint8_t)v; return;
    default: ((uint16_t *)p)[i] = (uint16_t)v; return;
    }
}
/* Types that nothing large has: one element after the other. */
GPU_KERNEL(cast_any, flat_args, FLAT_THREADS)
{
    int64_t i = gpu_block() * FLAT_THREADS + gpu_thread();
    if (i < a.n) set_number(a.y, a.to, i, number(a.x, a.from, i));
}

/* ---- sums of gradients ---- */
template <class To, class From> GPU_FN void sum_into(const flat_args &a)
{
    int64_t i = first_here();
    if (i >= a.n) return;
    gpu_eight x = gpu_get8((const From *)a.x + i, a.n - i);
    if (a.add) {
        gpu_eight y = gpu_get8((const To *)a.y + i, a.n - i);
        for (int k = 0; k < 8; k++) x.v[k] = gpu_add(y.v[k], x.v[k]);
    }
    gpu_put8((To *)a.y + i, x, a.n - i);
}
GPU_KERNEL(sum_into_f32_f32, flat_args, FLAT_THREADS) { sum_into<float, float>(a); }
GPU_KERNEL(sum_into_f32_bf16, flat_args, FLAT_THREADS) { sum_into<bf16_t, float>(a); }
GPU_KERNEL(sum_into_bf16_bf16, flat_args, FLAT_THREADS) { sum_into<bf16_t, bf16_t>(a); }

/* Parts from the left to the right; level k holds the sum of 2^k of them that waits for its right neighbour. The levels
 * are in registers: each has its own place in what is written here. */
GPU_KERNEL(sum_tree, flat_args, FLAT_THREADS)
{
    const int n = gpu_some<float>::n;
    int64_t i = (gpu_block() * FLAT_THREADS + gpu_thread()) * n;
    if (i >= a.n) return;
    gpu_some<float> level[FLAT_TREE_LEVELS], v = {};
    for (int64_t p = 0; p < a.parts; p++) {
        v = gpu_get_some((const float *)a.x + p * a.n + i, a.n - i);
        bool waits = false;
        GPU_UNROLL
        for (int k = 0; k < FLAT_TREE_LEVELS; k++) {
            bool full = p >> k & 1;
            for (int j = 0; j < n && !waits; j++)
                if (full) v.v[j] = gpu_add(level[k].v[j], v.v[j]);
                else level[k].v[j] = v.v[j];
            waits = waits || !full;
        }
    }
    gpu_put_some((float *)a.y + i, v, a.n - i);
}

template <class T> GPU_FN void sum_parts(const flat_args &a)
{
    int64_t i = first_here();
    if (i >= a.n) return;
    gpu_eight sum = gpu_get8((const T *)a.x + i, a.n - i);
    for (int64_t p = 1; p < a.parts; p++) {
        gpu_eight v = gpu_get8((const T *)a.x + p * a.n + i, a.n - i);
        for (int k = 0; k < 8; k++) sum.v[k] = gpu_add(sum.v[k], v.v[k]);
    }
    gpu_put8((T *)a.y + i, sum, a.n - i);
}
GPU_KERNEL(sum_parts_f32, flat_args, FLAT_THREADS) { sum_parts<float>(a); }
GPU_KERNEL(sum_parts_bf16, flat_args, FLAT_THREADS) { sum_parts<bf16_t>(a); }
GPU_KERNEL(sum_parts_f16, flat_args, FLAT_THREADS) { sum_parts<f16_t>(a); }

/* ---- squares ---- */
GPU_KERNEL(sum_squares, flat_args, FLAT_THREADS)
{
    int64_t block = gpu_block() * FLAT_BLOCKS_EACH + gpu_thread() / FLAT_LANES, lo = block * FLAT_BLOCK;
    int lane = gpu_thread() % FLAT_LANES;
    int64_t left = block < a.blocks ? a.n - lo : 0;
    int here = left < FLAT_BLOCK ? (int)left : (int)FLAT_BLOCK, i = lane;
    const float *x = (const float *)a.x + lo;
    double sum = 0;
    for (; i + 7 * FLAT_LANES < here; i += 8 * FLAT_LANES) {
        float v[8];
        for (int k = 0; k < 8; k++) v[k] = x[i + k * FLAT_LANES];
        for (int k = 0; k < 8; k++) sum = gpu_fma((double)v[k], (double)v[k], sum); /* the square is exact */
    }
    for (; i < here; i += FLAT_LANES) sum = gpu_fma((double)x[i], (double)x[i], sum);
    for (int half = FLAT_LANES / 2; half; half /= 2) sum = gpu_add(sum, gpu_xor(sum, half));
    if (lane == 0 && block < a.blocks) a.sums[block] = sum;
}
GPU_KERNEL(sum_squares_sum, flat_args, FLAT_THREADS)
{
    double sum = gpu_sum_in_order(0, a.sums, a.blocks, 1, gpu_shared<flat_order_shared>()->room);
    if (gpu_thread() == 0) *(double *)a.y += sum;
}

/* A square has 48 bits, counted in pieces of 16: a counter of 32 bits is full after 65537 of them, and the threads that
 * share one bring at most FLAT_THREADS / FLAT_COPIES * FLAT_EXACT_EACH. Copies: gradients have few exponents. */
GPU_KERNEL(exact_squares, flat_args, FLAT_THREADS)
{
    static_assert(FLAT_THREADS / FLAT_COPIES * FLAT_EXACT_EACH <= 65537, "a counter is full");
    uint32_t *bin = gpu_shared<flat_counters_shared>()->bin;
    int copy = gpu_thread() % FLAT_COPIES, each = gpu_some<float>::n;
    int64_t lo = gpu_block() * FLAT_THREADS * FLAT_EXACT_EACH;
    for (int i = gpu_thread(); i < FLAT_COUNTERS; i += FLAT_THREADS) bin[i] = 0;
    gpu_sync();
    for (int at = 0; at < FLAT_EXACT_EACH; at += each) {
        int64_t i = lo + (int64_t)at * FLAT_THREADS + gpu_thread() * each;
        gpu_some<float> v = gpu_get_some((const float *)a.x + i, a.n - i);
        for (int k = 0; k < each; k++) {
            uint64_t m;
            uint32_t *to = bin + flat_square(v.v[k], &m) * FLAT_PIECES * FLAT_COPIES + copy;
            if (!m) continue;
            for (int piece = 0; piece < FLAT_PIECES; piece++)
                gpu_count(to + piece * FLAT_COPIES, (uint32_t)(m >> 16 * piece & 0xffff));
        }
    }
    gpu_sync();
    const uint32_t *mine = bin + gpu_thread() * FLAT_PIECES * FLAT_COPIES; /* a bin by a thread */
    uint64_t sum[FLAT_PIECES];
    for (int piece = 0; piece < FLAT_PIECES; piece++) {
        sum[piece] = 0;
        for (int c = 0; c < FLAT_COPIES; c++) sum[piece] += mine[piece * FLAT_COPIES + c];
    }
    uint64_t low = sum[0] + (sum[1] << 16), *word = (uint64_t *)a.y + 2 * gpu_thread();
    if (low) gpu_count(word, low);
    if (sum[2]) gpu_count(word + 1, sum[2]);
}

/* ---- what is not finite ---- */
/* The smallest of a block's, in all threads. */
GPU_FN int least_of(int v, int32_t *room)
{
    for (int by = GPU_WARP / 2; by; by /= 2) {
        int other = gpu_xor(v, by);
        v = other < v ? other : v;
    }
    gpu_sync();
    if (gpu_lane() == 0) room[gpu_warp()] = v;
    gpu_sync();
    for (int i = 0; i < FLAT_THREADS / GPU_WARP; i++) v = room[i] < v ? room[i] : v;
    return v;
}
template <class U> GPU_FN void find(const flat_args &a)
{
    int first = FLAT_FIND;
    for (int at = 0; at < FLAT_FIND; at += FLAT_SOME) {
        int here = at + gpu_thread() * FLAT_EACH;
        int64_t i = gpu_block() * FLAT_FIND + here;
        if (i >= a.n) break;
        gpu_stored<U, FLAT_EACH> v = gpu_read<U, FLAT_EACH>((const U *)a.x + i, a.n - i);
        for (int k = FLAT_EACH - 1; k >= 0; k--)
            if ((v.t[k] & (U)a.ones) == (U)a.ones && here + k < first) first = here + k;
    }
    first = least_of(first, gpu_shared<flat_int_shared>()->room);
    if (gpu_thread() == 0) a.places[gpu_block()] = first;
}
GPU_KERNEL(find_nonfinite_16, flat_args, FLAT_THREADS) { find<uint16_t>(a); }
GPU_KERNEL(find_nonfinite_32, flat_args, FLAT_THREADS) { find<uint32_t>(a); }
GPU_KERNEL(find_nonfinite_64, flat_args, FLAT_THREADS) { find<uint64_t>(a); }
GPU_KERNEL(find_nonfinite_first, flat_args, FLAT_THREADS)
{
    const int none = INT32_MAX;
    int block = none;
    for (int64_t i = a.blocks - 1 - gpu_thread(); i >= 0; i -= FLAT_THREADS)
        if (a.places[i] < FLAT_FIND) block = (int)i;
    block = least_of(block, gpu_shared<flat_int_shared>()->room);
    if (gpu_thread() == 0) *(int64_t *)a.y = block == none ? -1 : (int64_t)block * FLAT_FIND + a.places[block];
}

/* ---- a step's words ---- */
GPU_KERNEL(losses_count_rows, losses_args, FLAT_THREADS)
{
    int n = 0;
    for (int64_t i = gpu_thread(); i < a.rows; i += FLAT_THREADS) n += !isfinite(a.x[i * a.step]);
    n = gpu_block_sum(n, gpu_shared<flat_int_shared>()->room);
    if (gpu_thread() != 0) return;
    if (a.whole) *a.whole += n;
    else *a.real += n;
}

/* Terms of exact squares by all threads, added in order by one. */
GPU_KERNEL(clip_step, clip_args, FLAT_BINS)
{
    clip_shared *s = gpu_shared<clip_shared>();
    if (a.exact) s->term[gpu_thread()] = gpu_thread() < 255 ? squares_term(a.exact, gpu_thread()) : 0;
    gpu_sync();
    if (gpu_thread() != 0) return;
    double squares = a.exact ? 0 : *a.squares;
    for (int e = 0; a.exact && e < 255; e++) squares += s->term[e];
    if (a.exact && squares_infinite(a.exact)) squares = INFINITY;
    step_words_clip(a.words, a.most, squares, a.exact ? *a.exact_losses == 0 : *a.losses == 0);
}
