/* SPDX-License-Identifier: Apache-2.0 */
/* XENT and XENT_PART (kernel/ref/xent.c has the formulas). A block does a row: its maximum and its sum of exponentials
 * in one pass, each thread by itself, then those of all threads. Backward makes the same pass and a second one that
 * writes over the logits: what a thread writes only it has read since. Nats are summed in two passes: chunks of rows,
 * then the chunks in order. */
#include "kernel/cuda/gpu.h"
#include "kernel/cuda/gpu_xent_args.h"
#include "kernel/xent_row.h"

GPU_FN int64_t place_of(const xent_args &a, int64_t row)
{
    return xent_place(a.target[row], a.first, a.whole, a.cols);
}

/* A thread's columns so far: exponentials of differences from `most`. Where all are -inf, or there are none, the sum is
 * 0 and not exp(-inf + inf). */
struct running {
    float most, sum;
};

template <class T> GPU_FN void take(running &r, const gpu_some<T> &v)
{
    float most = r.most;
    for (int k = 0; k < v.n; k++) most = fmaxf(most, v.v[k]);
    float base = most == -INFINITY ? 0 : most;
    if (most > r.most) r.sum = r.sum * expf(r.most - base);
    for (int k = 0; k < v.n; k++) r.sum += expf(v.v[k] - base);
    r.most = most;
}

/* Of all columns: in all threads. */
template <class T> GPU_FN xent_row row_of(const xent_args &a, int64_t row)
{
    const int n = gpu_some<T>::n;
    const T *x = (const T *)a.x + row * a.x_step;
    xent_shared *s = gpu_shared<xent_shared>();
    running r = {-INFINITY, 0};
    for (int64_t i = (int64_t)gpu_thread() * n; i < a.cols; i += (int64_t)gpu_threads() * n) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i);
        if (a.cols - i < n)
            for (int k = 0; k < n; k++) v.v[k] = i + k < a.cols ? v.v[k] : -INFINITY;
        take<T>(r, v);
    }
    float most = gpu_block_max(r.most, s->most);
    double mine = r.sum == 0 ? 0 : (double)(r.most == most ? r.sum : r.sum * expf(r.most - most));
    xent_row whole = {most, gpu_block_sum(mine, s->room), 0};
    return whole;
}

/* Whether the target's logit is the largest, of equal ones the first: in thread 0. */
template <class T> GPU_FN int32_t is_right(const xent_args &a, int64_t row, int64_t at)
{
    const int n = gpu_some<T>::n;
    const T *x = (const T *)a.x + row * a.x_step;
    float mine = gpu_get(x + at);
    int wrong = 0;
    for (int64_t i = (int64_t)gpu_thread() * n; i < a.cols; i += (int64_t)gpu_threads() * n) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i);
        for (int k = 0; k < n; k++) {
            int64_t col = i + k;
            bool less = col < at ? v.v[k] < mine : v.v[k] <= mine;
            wrong += col < a.cols && col != at && !less;
        }
    }
    return gpu_block_sum(wrong, gpu_shared<xent_shared>()->wrong) == 0;
}

/* NaN where the target is no token: a loss that is counted as one that is not finite. */
GPU_FN double nats_of(int64_t at, const xent_row &r)
{
    if (at == XENT_UNTRAINED) return 0;
    return at == XENT_NONE ? (double)NAN : r.max + log(r.sum) - r.logit;
}

GPU_FN void tell(const xent_args &a, int64_t row, double nats)
{
    a.nats[row] = nats;
    if (a.each) a.each[row] = nats;
}

template <class T> GPU_FN void forward(const xent_args &a)
{
    int64_t row = gpu_block(), at = place_of(a, row);
    if (at == XENT_UNTRAINED) { /* all threads */
        if (gpu_thread() == 0) {
            tell(a, row, 0);
            if (a.right) a.right[row] = 0;
        }
        return;
    }
    xent_row r = row_of<T>(a, row);
    int32_t right = a.right && at >= 0 ? is_right<T>(a, row, at) : 0;
    if (gpu_thread() != 0) return;
    if (at >= 0) r.logit = gpu_get((const T *)a.x + row * a.x_step + at);
    tell(a, row, nats_of(at, r));
    if (a.right) a.right[row] = right;
}

/* A row by a thread: columns are taken as they are, or all is in the parts' statistics. */
template <class T> GPU_FN void short_forward(const xent_args &a)
{
    int64_t row = gpu_block() * XENT_THREADS + gpu_thread();
    if (row >= a.rows) return;
    int64_t at = place_of(a, row);
    xent_row r = {0, 1, 0};
    if (a.stats) r = xent_whole_row(a.stats + row * a.stats_step, a.rows * a.stats_step, a.parts);
    else if (at >= 0) r.logit = gpu_get((const T *)a.x + row * a.x_step + at);
    tell(a, row, nats_of(at, r));
}

template <class T> GPU_FN void part(const xent_args &a)
{
    int64_t row = gpu_block(), at = place_of(a, row);
    xent_row r = {0, 1, 0};
    if (!a.plain) r = row_of<T>(a, row);
    if (gpu_thread() != 0) return;
    float *to = a.part_stats + row * a.part_step;
    to[0] = (float)r.max;
    to[1] = (float)r.sum;
    to[2] = at >= 0 ? gpu_get((const T *)a.x + row * a.x_step + at) : at == XENT_NONE ? NAN : 0;
}

/* The row's maximum and sum, in all threads. */
template <class T> GPU_FN xent_row whole_of(const xent_args &a, int64_t row)
{
    xent_shared *s = gpu_shared<xent_shared>();
    if (!a.stats) return row_of<T>(a, row);
    if (gpu_thread() == 0) {
        xent_row r = xent_whole_row(a.stats + row * a.stats_step, a.rows * a.stats_step, a.parts);
        s->row[0] = r.max;
        s->row[1] = r.sum;
    }
    gpu_sync();
    xent_row r = {s->row[0], s->row[1], 0};
    return r;
}

/* acc + (softmax - onehot) * scale. */
template <class T> GPU_FN void backward(const xent_args &a)
{
    const int n = gpu_some<T>::n;
    int64_t row = gpu_block(), at = place_of(a, row);
    const T *x = (const T *)a.x + row * a.x_step, *acc = a.acc ? (const T *)a.acc + row * a.acc_step : NULL;
    T *dx = (T *)a.dx + row * a.dx_step;
    bool soft = at != XENT_UNTRAINED && !a.plain;
    float scale = at == XENT_UNTRAINED ? 0 : a.factor ? gpu_mul(a.scale, a.factor[row]) : a.scale, most = 0, by = 0;
    if (soft) {
        xent_row r = whole_of<T>(a, row);
        most = (float)r.max;
        by = (float)((double)scale / r.sum);
    }
    for (int64_t i = (int64_t)gpu_thread() * n; i < a.cols; i += (int64_t)gpu_threads() * n) {
        gpu_some<T> v = {}, before = {};
        if (soft) {
            v = gpu_get_some(x + i, a.cols - i);
            for (int k = 0; k < n; k++) v.v[k] = gpu_mul(expf(v.v[k] - most), by);
        }
        if (acc) before = gpu_get_some(acc + i, a.cols - i);
        for (int k = 0; k < n; k++) v.v[k] = before.v[k] + (i + k == at ? v.v[k] - scale : v.v[k]);
        gpu_put_some(dx + i, v, a.cols - i);
    }
}

/* Chunk gpu_block of the rows: nats, trained, right. */
GPU_KERNEL(xent_chunks, xent_args, XENT_THREADS)
{
    double *room = gpu_shared<xent_shared>()->room;
    int64_t lo = gpu_block() * XENT_CHUNK_ROWS, hi = lo + XENT_CHUNK_ROWS < a.rows ? lo + XENT_CHUNK_ROWS : a.rows;
    double nats = 0, trained = 0, right = 0;
    for (int64_t row = lo + gpu_thread(); row < hi; row += XENT_THREADS) {
        nats += a.nats[row];
        trained += a.target[row] != -1;
        if (a.right) right += a.right[row];
    }
    nats = gpu_block_sum(nats, room);
    trained = gpu_block_sum(trained, room);
    right = gpu_block_sum(right, room);
    if (gpu_thread() != 0) return;
    double *to = a.sums + gpu_block() * 3;
    to[0] = nats;
    to[1] = trained;
    to[2] = right;
}

GPU_KERNEL(xent_sum, xent_args, GPU_WARP)
{
    int k = gpu_thread();
    if (k >= (a.right ? 3 : 2)) return;
    double sum = 0;
    for (int64_t i = 0; i < a.chunks; i++) sum += a.sums[i * 3 + k];
    a.stat[k] += sum;
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(xent_fwd_##type, xent_args, XENT_THREADS) { forward<T>(a); }                                            \
    GPU_KERNEL(xent_fwd_wide_##type, xent_args, XENT_WIDE_THREADS) { forward<T>(a); }                                  \
    GPU_KERNEL(xent_fwd_short_##type, xent_args, XENT_THREADS) { short_forward<T>(a); }                                \
    GPU_KERNEL(xent_part_##type, xent_args, XENT_THREADS) { part<T>(a); }                                              \
    GPU_KERNEL(xent_part_wide_##type, xent_args, XENT_WIDE_THREADS) { part<T>(a); }                                    \
    GPU_KERNEL(xent_bwd_##type, xent_args, XENT_THREADS) { backward<T>(a); }                                           \
    GPU_KERNEL(xent_bwd_wide_##type, xent_args, XENT_WIDE_THREADS) { backward<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
