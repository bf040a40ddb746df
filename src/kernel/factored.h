/* SPDX-License-Identifier: Apache-2.0 */
/* factored.h: second moments as a value per row and one per column (Adafactor: Shazeer & Stern 2018), as loops that
 * every family runs: elementwise in fp32, sums in fp64 by FLAT_LANES lanes of a row (flat_ops.h), rows in order.
 *
 *   v_ij = r_i c_j / mean(r)      r, c: running means over rows and over columns of squared gradients
 *   u_ij = g_ij / root(v_ij)
 *
 * A vector is a matrix of one column: r is its second moment, c and the mean are 1. Includes: flat_ops.h. */
#ifndef TUTTI_KERNEL_FACTORED_H
#define TUTTI_KERNEL_FACTORED_H

#include "kernel/flat_ops.h"
#include "kernel/update.h"

/* Of rows [lo, hi): their sums of squares, added. */
static inline void factored_row_sums(const struct update_args *a, int64_t lo, int64_t hi)
{
    int64_t cols = a->blocks.cols;
    const float *g = (const float *)a->at[FACTOR_SUMS_GRAD].p;
    double *r = (double *)a->at[FACTOR_SUMS_ROWS].p;
    for (int64_t i = lo; i < hi; i++) {
        double lane[FLAT_LANES] = {0};
        for (int64_t j = 0; j + FLAT_LANES <= cols; j += FLAT_LANES)
            for (int k = 0; k < FLAT_LANES; k++) lane[k] += (double)g[i * cols + j + k] * (double)g[i * cols + j + k];
        for (int64_t j = cols / FLAT_LANES * FLAT_LANES; j < cols; j++)
            lane[j % FLAT_LANES] += (double)g[i * cols + j] * (double)g[i * cols + j];
        r[i] += flat_fold(lane);
    }
}

/* Of columns [lo, hi). */
static inline void factored_col_sums(const struct update_args *a, int64_t lo, int64_t hi)
{
    int64_t cols = a->blocks.cols, rows = a->n / cols;
    const float *g = (const float *)a->at[FACTOR_SUMS_GRAD].p;
    double *c = (double *)a->at[FACTOR_SUMS_COLS].p;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = lo; j < hi; j++) c[j] += (double)g[i * cols + j] * (double)g[i * cols + j];
}

/* factors[i] = keep * factors[i] + (1 - keep) * (scale * sums[i] + eps) */
static inline void factored_keep(const struct update_args *a, int64_t lo, int64_t hi)
{
    float *f = (float *)a->at[FACTOR_KEEP_TO].p, keep = a->f[FACTOR_KEEP_KEEP];
    const double *s = (const double *)a->at[FACTOR_KEEP_SUMS].p, scale = (double)a->f[FACTOR_KEEP_SCALE];
    for (int64_t i = lo; i < hi; i++)
        f[i] = fmaf(keep, f[i], (1 - keep) * (float)(scale * s[i] + (double)a->f[FACTOR_KEEP_EPS]));
}

/* The mean of n rows' factors. */
static inline void factored_mean(const struct update_args *a)
{
    const float *r = (const float *)a->at[FACTOR_MEAN_ROWS].p;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) sum += (double)r[i];
    *(double *)a->at[FACTOR_MEAN_TO].p = sum / (double)a->n;
}

/* What every element of row i is multiplied by, and then by the inverse root of its column's factor. */
static inline float factored_row(const struct update_args *a, int r, int mean, int scale, int64_t i)
{
    return a->f[scale] / sqrtf((float)((double)((const float *)a->at[r].p)[i] / *(const double *)a->at[mean].p));
}

/* Of rows [lo, hi): sums of squares of what is stepped along, and of the weights. */
static inline void factored_size(const struct update_args *a, int64_t lo, int64_t hi)
{
    int64_t cols = a->blocks.cols;
    const float *c = (const float *)a->at[FACTOR_SIZE_COLS].p, *g = (const float *)a->at[FACTOR_SIZE_GRAD].p,
                *w = (const float *)a->at[FACTOR_SIZE_MASTER].p;
    double *out = (double *)a->at[FACTOR_SIZE_EACH].p;
    for (int64_t i = lo; i < hi; i++) {
        float by = factored_row(a, FACTOR_SIZE_ROWS, FACTOR_SIZE_MEAN, FACTOR_SIZE_SCALE, i);
        double u2[FLAT_LANES] = {0}, w2[FLAT_LANES] = {0};
        for (int64_t j = 0; j < cols; j += FLAT_LANES)
            for (int64_t k = 0; k < FLAT_LANES && j + k < cols; k++) {
                float u = g[i * cols + j + k] * by / sqrtf(c[j + k]);
                u2[k] += (double)u * (double)u;
                w2[k] += (double)w[i * cols + j + k] * (double)w[i * cols + j + k];
            }
        out[2 * i] = flat_fold(u2);
        out[2 * i + 1] = flat_fold(w2);
    }
}

static inline void factored_size_sum(const struct update_args *a)
{
    const double *each = (const double *)a->at[FACTOR_SIZE_EACH].p;
    double *to = (double *)a->at[FACTOR_SIZE_TO].p;
    for (int64_t i = 0; i < a->n / a->blocks.cols; i++) {
        to[0] += each[2 * i];
        to[1] += each[2 * i + 1];
    }
}

/* Of rows [lo, hi): the step, with the size of u and that of the weights from their sums over the whole tensor. */
static inline void factored_apply(const struct update_args *a, int64_t lo, int64_t hi)
{
    int64_t cols = a->blocks.cols;
    const float *c = (const float *)a->at[FACTOR_APPLY_COLS].p, *g = (const float *)a->at[FACTOR_APPLY_GRAD].p;
    const double *size = (const double *)a->at[FACTOR_APPLY_SIZE].p, n = (double)a->blocks.whole;
    double lr = (double)a->f[FACTOR_APPLY_LR], over = sqrt(size[0] / n) / (double)a->f[FACTOR_APPLY_CLIP];
    if (a->flag) lr *= fmax((double)a->f[FACTOR_APPLY_LEAST], sqrt(size[1] / n));
    float *w = (float *)a->at[FACTOR_APPLY_MASTER].p, step = (float)(-lr / fmax(1, over)),
          decay = (float)(-lr * (double)a->f[FACTOR_APPLY_DECAY]);
    for (int64_t i = lo; i < hi; i++) {
        float by = factored_row(a, FACTOR_APPLY_ROWS, FACTOR_APPLY_MEAN, FACTOR_APPLY_SCALE, i);
        for (int64_t j = i * cols; j < (i + 1) * cols; j++) {
            float u = g[j] * by / sqrtf(c[j - i * cols]);
            w[j] = fmaf(step, u, fmaf(decay, w[j], w[j]));
        }
    }
}

static inline bool is_factored(enum update_kind k) { return k >= UPDATE_FACTOR_SUMS && k <= UPDATE_FACTOR_APPLY; }

#endif
