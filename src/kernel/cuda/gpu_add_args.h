/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_add_args.h: what ADD and DROPOUT launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_ADD_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_ADD_ARGS_H

#include "kernel/cuda/gpu_walk_args.h"

struct add_args {
    struct gpu_walk walk;
    struct gpu_rows before, x, y; /* y = before + times dropout(x); y absent: not wanted */
    struct gpu_rows acc, same;    /* same = acc + x; same absent: not wanted */
    const int32_t *index;         /* which token a row is; NULL: rows are tokens in order */
    uint64_t seed, stream, first_token;
    uint32_t threshold; /* words below it are dropped; 0: none are */
    float scale, times; /* of what is kept; of all */
};

#endif
