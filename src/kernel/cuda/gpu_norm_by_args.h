/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_norm_by_args.h: what SQUARES and NORM_BY launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_NORM_BY_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_NORM_BY_ARGS_H

#include "kernel/cuda/gpu_norm_args.h"
#include "kernel/cuda/gpu_walk_args.h"

struct norm_by_args {
    struct gpu_walk walk;                               /* of x */
    struct gpu_rows x, s, w, y, dy, dx, ds, acc, acc_s; /* s, ds, acc_s: one f32 a row; w: one row */
    int64_t rows;
    float whole, eps, plus;
};
struct norm_by_weights_args {
    struct gpu_rows x, s, dy;
    float *part, *dw; /* part: [chunks][cols] */
    const float *acc;
    int64_t rows, cols, chunks;
    float whole, eps;
};
struct norm_by_shared {
    float rstd[NORM_CHUNK_ROWS];
};

#endif
