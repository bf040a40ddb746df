/* SPDX-License-Identifier: Apache-2.0 */
/* SQUARES and NORM_BY (kernel/ref/norm.c has the formulas). What is summed over a row is done by a warp, or by a block
 * where it is long; the gradient of the weights is a sum over rows in two passes: chunks of rows, each column by a
 * thread, then the chunks in order. */
#include "kernel/cuda/gpu_norm_by_args.h"
#include "kernel/cuda/gpu_norm_item.h"
#include "kernel/cuda/gpu_walk.h"

GPU_FN const float *row_of(const gpu_rows &x, int64_t row) { return (const float *)x.p + row * x.step; }
GPU_FN float rstd_of(float s, float whole, float eps) { return 1 / sqrtf(s / whole + eps); }

template <class T, bool wide> GPU_FN void squares(const norm_by_args &a)
{
    int64_t row = item_here<wide>(), step = together<wide>() * WALK_COLS;
    if (row >= a.rows) return; /* all threads of the row */
    float sum = 0;
    for (int64_t col = at<wide>() * WALK_COLS; col < a.walk.cols; col += step) {
        gpu_eight x = gpu_get_eight<T>(a.x, row, col, a.walk.cols - col);
        for (int i = 0; i < WALK_COLS; i++) sum = gpu_fma(x.v[i], x.v[i], sum);
    }
    sum = sum_of<wide>(sum);
    if (at<wide>() == 0) ((float *)a.s.p)[row * a.s.step] = sum;
}

template <class T> GPU_FN void squares_gradient(const norm_by_args &a)
{
    GPU_WALK(here, a.walk) {
        float by = 2 * *row_of(a.ds, here.row);
        gpu_eight x = gpu_get_eight<T>(a.x, here.row, here.col, here.left);
        gpu_eight sum = gpu_get_eight_or_0<T>(a.acc, here.row, here.col, here.left);
        for (int i = 0; i < WALK_COLS; i++) sum.v[i] = gpu_fma(by, x.v[i], sum.v[i]);
        gpu_put_eight<T>(a.dx, here.row, here.col, here.left, sum);
    }
}

template <class T> GPU_FN void forward(const norm_by_args &a)
{
    GPU_WALK(here, a.walk) {
        float r = rstd_of(*row_of(a.s, here.row), a.whole, a.eps);
        gpu_eight x = gpu_get_eight<T>(a.x, here.row, here.col, here.left);
        gpu_eight w = gpu_get_eight<T>(a.w, 0, here.col, here.left);
        for (int i = 0; i < WALK_COLS; i++) x.v[i] = x.v[i] * r * (a.plus + w.v[i]);
        gpu_put_eight<T>(a.y, here.row, here.col, here.left, x);
    }
}

template <class T, bool wide> GPU_FN void inputs(const norm_by_args &a)
{
    int64_t row = item_here<wide>(), step = together<wide>() * WALK_COLS;
    if (row >= a.rows) return;
    float r = rstd_of(*row_of(a.s, row), a.whole, a.eps), with_x = 0;
    for (int64_t col = at<wide>() * WALK_COLS; col < a.walk.cols; col += step) {
        int64_t left = a.walk.cols - col;
        gpu_eight x = gpu_get_eight<T>(a.x, row, col, left), w = gpu_get_eight<T>(a.w, 0, col, left),
                  g = gpu_get_eight<T>(a.dy, row, col, left);
        for (int i = 0; i < WALK_COLS; i++) { /* behind the row dy is 0 */
            g.v[i] *= a.plus + w.v[i];
            with_x = gpu_fma(g.v[i], x.v[i], with_x);
            g.v[i] *= r;
        }
        if (!a.dx.p) continue;
        gpu_add_eight(&g, gpu_get_eight_or_0<T>(a.acc, row, col, left));
        gpu_put_eight<T>(a.dx, row, col, left, g);
    }
    with_x = sum_of<wide>(with_x);
    if (at<wide>() != 0 || !a.ds.p) return;
    float before = a.acc_s.p ? *row_of(a.acc_s, row) : 0;
    ((float *)a.ds.p)[row * a.ds.step] = before - 0.5f * r * r * r * with_x / a.whole;
}

/* Chunk `block` of the rows, columns of the block's threads. */
template <class T> GPU_FN void weights(const norm_by_weights_args &a)
{
    float *rstd = gpu_shared<norm_by_shared>()->rstd;
    int64_t col = gpu_block_y() * NORM_THREADS + gpu_thread(), lo = gpu_block() * NORM_CHUNK_ROWS;
    int n = a.rows - lo < NORM_CHUNK_ROWS ? (int)(a.rows - lo) : (int)NORM_CHUNK_ROWS;
    if (gpu_thread() < n) rstd[gpu_thread()] = rstd_of(*row_of(a.s, lo + gpu_thread()), a.whole, a.eps);
    gpu_sync();
    if (col >= a.cols) return;
    float dw = 0;
    for (int i = 0; i < n; i++) {
        float x = gpu_get((const T *)a.x.p + (lo + i) * a.x.step + col);
        float g = gpu_get((const T *)a.dy.p + (lo + i) * a.dy.step + col);
        dw = gpu_fma(g, x * rstd[i], dw);
    }
    a.part[gpu_block() * a.cols + col] = dw;
}

GPU_KERNEL(norm_by_weights_sum, norm_by_weights_args, NORM_THREADS)
{
    int64_t col = gpu_block() * NORM_THREADS + gpu_thread();
    if (col >= a.cols) return;
    float sum = 0;
    for (int64_t i = 0; i < a.chunks; i++) sum += a.part[i * a.cols + col];
    a.dw[col] = (a.acc ? a.acc[col] : 0) + sum;
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(squares_fwd_##type, norm_by_args, NORM_THREADS) { squares<T, false>(a); }                               \
    GPU_KERNEL(squares_fwd_wide_##type, norm_by_args, NORM_THREADS) { squares<T, true>(a); }                           \
    GPU_KERNEL(squares_bwd_in_##type, norm_by_args, WALK_THREADS) { squares_gradient<T>(a); }                          \
    GPU_KERNEL(norm_by_fwd_##type, norm_by_args, WALK_THREADS) { forward<T>(a); }                                      \
    GPU_KERNEL(norm_by_bwd_in_##type, norm_by_args, NORM_THREADS) { inputs<T, false>(a); }                             \
    GPU_KERNEL(norm_by_bwd_in_wide_##type, norm_by_args, NORM_THREADS) { inputs<T, true>(a); }                         \
    GPU_KERNEL(norm_by_bwd_w_##type, norm_by_weights_args, NORM_THREADS) { weights<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
