/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_update_args.h: what updates launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_UPDATE_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_UPDATE_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "kernel/cuda/gpu_flat_args.h"
#include "kernel/moments.h"
#include "kernel/update_factors.h"

enum {
    CHANGE_THREADS = 256,
    CHANGE_SOME = CHANGE_THREADS * 8, /* elements of a block at a time */
    CHANGE_BLOCKS = 1024,             /* at most: each makes the factors of a step's words once */
    CHANGE_ROWS = CHANGE_THREADS / 16 /* of a block: 16 lanes each (FLAT_LANES) */
};

struct change_args {
    void *p[UPDATE_OPERANDS]; /* as update_args */
    int t[UPDATE_OPERANDS];   /* enum flat_type */
    int64_t n;
    int kind, flag;
    int scale_at;        /* of update_rows */
    int copy_at, copy;   /* the compute copy's operand and type; copy -1: there is none to write */
    float f[8];          /* UPDATE_FACTORS */
    double g[3];         /* UPDATE_NUMBERS */
    const double *words; /* or NULL */
    int64_t cols, block, whole;
    uint64_t seed, stream; /* UPDATE_ROUND: of its words */
    int64_t at, box_cols, first, wide;
};
struct moments_args {
    struct change_args a;
    struct moment_map m, v;
};
struct change_shared {
    float f[8];   /* after a step's words */
    float own[4]; /* what a kind makes of them once */
    uint64_t stream;
    int goes;
    float most[CHANGE_THREADS / 32];
};
struct change_order_shared {
    struct change_shared s;
    double room[1024];
};

#endif
