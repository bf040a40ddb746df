/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_copy_args.h: what COPY launches with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_COPY_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_COPY_ARGS_H

#include "kernel/cuda/gpu_walk_args.h"

struct copy_args {
    struct gpu_walk walk;
    struct gpu_rows x, acc, y; /* y = acc + x */
};

#endif
