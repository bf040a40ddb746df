/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_rotary_args.h: what ROTARY launches with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_ROTARY_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_ROTARY_ARGS_H

#include "kernel/cuda/gpu_walk_args.h"

enum {
    ROTARY_THREADS = 256,
    ROTARY_HEADS = 4, /* that a thread turns by the same cosines and sines, 8 pairs of each */
};

struct rotary_args {
    struct gpu_rows x, acc, y, table;
    const int32_t *pos;
    int64_t items, positions; /* of all threads; rows of the table */
    int64_t head_dim, half;   /* columns of a head; pairs of a head */
    int64_t at;               /* the first column of a head that is turned */
    int64_t chunks, groups;   /* of 8 pairs of a head; of ROTARY_HEADS of a token */
    int heads;
    int back; /* the other way */
};

#endif
