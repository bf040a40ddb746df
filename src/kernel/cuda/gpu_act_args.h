/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_act_args.h: what ACT launches with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_ACT_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_ACT_ARGS_H

#include "kernel/act_kind.h"
#include "kernel/cuda/gpu_walk_args.h"

struct act_args {
    struct gpu_walk walk;              /* of y */
    struct gpu_rows x, y, dy, acc, dx; /* with a gate x, acc and dx have twice y's columns */
    enum act_kind kind;
    float cap;
};

#endif
