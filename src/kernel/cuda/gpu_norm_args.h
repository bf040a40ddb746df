/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_norm_args.h: what RMSNORM, HEADNORM and LAYERNORM launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_NORM_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_NORM_ARGS_H

#include <stddef.h>
#include <stdint.h>

enum {
    NORM_THREADS = 256,
    NORM_WARP_COLS = 1024, /* of rows as long as this a warp does one; of longer ones a block */
    NORM_CHUNK_ROWS = 32   /* of a column, what one thread sums for the gradient of a weight */
};

struct norm_args {
    const void *x, *w, *b, *dy, *acc;
    void *y, *dx;
    float *stat; /* written forward, read backward: rstd of each item, or mean and rstd */
    int64_t x_step, y_step, dy_step, dx_step, acc_step; /* elements between rows */
    int64_t rows, heads, cols;                          /* an item is `cols` columns of a row; heads: items of a row */
    int64_t stat_step;                                  /* numbers of a row in stat */
    float eps, plus;
    int centred;
};
struct norm_weights_args {
    const void *x, *dy;
    const float *stat;
    float *part;                /* [chunks][2][cols]: dw, db */
    float *dw, *db;             /* NULL: not wanted */
    const float *acc_w, *acc_b; /* NULL: 0 */
    int64_t x_step, dy_step, rows, heads, cols, stat_step, chunks;
    int centred;
};
struct norm_shared {
    float room[NORM_THREADS / 32];
};

#endif
