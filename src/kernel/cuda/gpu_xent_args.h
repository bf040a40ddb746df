/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_xent_args.h: what XENT and XENT_PART launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_XENT_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_XENT_ARGS_H

#include <stddef.h>
#include <stdint.h>

enum {
    XENT_THREADS = 256,
    XENT_WIDE_THREADS = 1024, /* of rows longer than XENT_WIDE columns: fewer of them at a time, which stay in L2 */
    XENT_WIDE = 8192,
    XENT_CHUNK_ROWS = 2048 /* of which a block sums the nats */
};

struct xent_args {
    const void *x;
    const int32_t *target;
    const float *stats;  /* of all parts, or NULL */
    const float *factor; /* of each row of the gradient, or NULL */
    float *part_stats;   /* XENT_PART's result */
    double *nats;        /* forward: [rows] */
    int32_t *right;      /* forward: [rows], or NULL */
    double *sums;        /* forward: [chunks][3] */
    double *stat, *each; /* forward: results; each: or NULL */
    const void *acc;     /* backward: or NULL */
    void *dx;
    int64_t x_step, stats_step, part_step, acc_step, dx_step; /* elements between rows */
    int64_t rows, cols, chunks;
    int64_t first, whole; /* of the vocabulary: the first column here, and all of them */
    float scale;          /* of the gradient */
    int parts, plain;
};
struct xent_shared {
    double room[XENT_WIDE_THREADS / 32];
    float most[XENT_WIDE_THREADS / 32];
    int32_t wrong[XENT_WIDE_THREADS / 32];
    double row[2];
};

#endif
