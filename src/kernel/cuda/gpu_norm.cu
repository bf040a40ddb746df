/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNORM, HEADNORM and LAYERNORM (kernel/ref/norm.c has the formulas). An item, a row or a head of one, is done by a
 * warp, or by a block where it is long. Gradients of weights are sums over rows in two passes: chunks of rows, each
 * column by a thread, then the chunks in order. */
#include "kernel/cuda/gpu_norm_item.h"

template <class T, bool wide> GPU_FN void forward(const norm_args &a)
{
    const int n = gpu_some<T>::n, step = together<wide>() * n;
    int64_t item = item_here<wide>();
    if (item >= a.rows * a.heads) return; /* all threads of the item */
    int64_t row = item / a.heads, head = item % a.heads;
    const T *x = (const T *)a.x + row * a.x_step + head * a.cols;
    T *y = (T *)a.y + row * a.y_step + head * a.cols;
    float mean = 0, squares = 0;
    if (a.centred) {
        float sum = 0;
        for (int64_t i = at<wide>() * n; i < a.cols; i += step) {
            gpu_some<T> v = gpu_get_some(x + i, a.cols - i);
            for (int k = 0; k < n; k++) sum += v.v[k];
        }
        mean = sum_of<wide>(sum) / (float)a.cols;
    }
    for (int64_t i = at<wide>() * n; i < a.cols; i += step) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i);
        for (int k = 0; k < n; k++) {
            float d = i + k < a.cols ? v.v[k] - mean : 0;
            squares = gpu_fma(d, d, squares);
        }
    }
    float rstd = 1 / sqrtf(sum_of<wide>(squares) / (float)a.cols + a.eps);
    for (int64_t i = at<wide>() * n; i < a.cols; i += step) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i), w = gpu_get_some((const T *)a.w + i, a.cols - i);
        for (int k = 0; k < n; k++) v.v[k] = (v.v[k] - mean) * rstd * (a.plus + w.v[k]);
        if (a.b) {
            gpu_some<T> b = gpu_get_some((const T *)a.b + i, a.cols - i);
            for (int k = 0; k < n; k++) v.v[k] += b.v[k];
        }
        gpu_put_some(y + i, v, a.cols - i);
    }
    if (at<wide>() != 0) return;
    float *stat = a.stat + row * a.stat_step + (a.centred ? 0 : head);
    if (a.centred) stat[0] = mean, stat[1] = rstd;
    else stat[0] = rstd;
}

template <class T, bool wide> GPU_FN void inputs(const norm_args &a)
{
    const int n = gpu_some<T>::n, step = together<wide>() * n;
    int64_t item = item_here<wide>();
    if (item >= a.rows * a.heads) return;
    int64_t row = item / a.heads, head = item % a.heads;
    const T *x = (const T *)a.x + row * a.x_step + head * a.cols, *dy = (const T *)a.dy + row * a.dy_step + head * a.cols;
    const float *stat = a.stat + row * a.stat_step + (a.centred ? 0 : head);
    float mean = a.centred ? stat[0] : 0, rstd = a.centred ? stat[1] : stat[0], g_sum = 0, gn_sum = 0;
    for (int64_t i = at<wide>() * n; i < a.cols; i += step) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i), w = gpu_get_some((const T *)a.w + i, a.cols - i),
                    d = gpu_get_some(dy + i, a.cols - i);
        for (int k = 0; k < n; k++) { /* behind the row dy is 0 */
            float g = d.v[k] * (a.plus + w.v[k]);
            g_sum += g;
            gn_sum = gpu_fma(g, (v.v[k] - mean) * rstd, gn_sum);
        }
    }
    gn_sum = sum_of<wide>(gn_sum) / (float)a.cols;
    g_sum = a.centred ? sum_of<wide>(g_sum) / (float)a.cols : 0;
    T *dx = (T *)a.dx + row * a.dx_step + head * a.cols;
    const T *acc = a.acc ? (const T *)a.acc + row * a.acc_step + head * a.cols : NULL;
    for (int64_t i = at<wide>() * n; i < a.cols; i += step) {
        gpu_some<T> v = gpu_get_some(x + i, a.cols - i), w = gpu_get_some((const T *)a.w + i, a.cols - i),
                    d = gpu_get_some(dy + i, a.cols - i);
        for (int k = 0; k < n; k++)
            v.v[k] = rstd * (d.v[k] * (a.plus + w.v[k]) - g_sum - (v.v[k] - mean) * rstd * gn_sum);
        if (acc) {
            gpu_some<T> before = gpu_get_some(acc + i, a.cols - i);
            for (int k = 0; k < n; k++) v.v[k] += before.v[k];
        }
        gpu_put_some(dx + i, v, a.cols - i);
    }
}

/* Chunk block_y of the items, columns of the block's threads. */
template <class T> GPU_FN void weights(const norm_weights_args &a)
{
    int64_t col = gpu_block() * NORM_THREADS + gpu_thread(), items = a.rows * a.heads, lo = gpu_block_y() * NORM_CHUNK_ROWS;
    int64_t hi = lo + NORM_CHUNK_ROWS < items ? lo + NORM_CHUNK_ROWS : items;
    if (col >= a.cols) return;
    float dw = 0, db = 0;
    for (int64_t item = lo; item < hi; item++) {
        int64_t row = item / a.heads, head = item % a.heads;
        const float *stat = a.stat + row * a.stat_step + (a.centred ? 0 : head);
        float mean = a.centred ? stat[0] : 0, rstd = a.centred ? stat[1] : stat[0];
        float g = gpu_get((const T *)a.dy + row * a.dy_step + head * a.cols + col);
        dw = gpu_fma(g, (gpu_get((const T *)a.x + row * a.x_step + head * a.cols + col) - mean) * rstd, dw);
        db += g;
    }
    a.part[gpu_block_y() * 2 * a.cols + col] = dw;
    a.part[(gpu_block_y() * 2 + 1) * a.cols + col] = db;
}

GPU_KERNEL(norm_weights_sum, norm_weights_args, NORM_THREADS)
{
    int64_t col = gpu_block() * NORM_THREADS + gpu_thread();
    if (col >= a.cols) return;
    float dw = a.acc_w ? a.acc_w[col] : 0, db = a.acc_b ? a.acc_b[col] : 0, sum_w = 0, sum_b = 0;
    for (int64_t i = 0; i < a.chunks; i++) {
        sum_w += a.part[i * 2 * a.cols + col];
        sum_b += a.part[(i * 2 + 1) * a.cols + col];
    }
    if (a.dw) a.dw[col] = dw + sum_w;
    if (a.db) a.db[col] = db + sum_b;
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(norm_fwd_##type, norm_args, NORM_THREADS) { forward<T, false>(a); }                                     \
    GPU_KERNEL(norm_fwd_wide_##type, norm_args, NORM_THREADS) { forward<T, true>(a); }                                 \
    GPU_KERNEL(norm_bwd_in_##type, norm_args, NORM_THREADS) { inputs<T, false>(a); }                                   \
    GPU_KERNEL(norm_bwd_in_wide_##type, norm_args, NORM_THREADS) { inputs<T, true>(a); }                               \
    GPU_KERNEL(norm_bwd_w_##type, norm_weights_args, NORM_THREADS) { weights<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
