/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_norm_item.h: the threads of a row, or of a head of one: a warp, or a block where it is long; the sum over them.
 * Order: Local. */
#ifndef TUTTI_KERNEL_CUDA_GPU_NORM_ITEM_H
#define TUTTI_KERNEL_CUDA_GPU_NORM_ITEM_H

#include "kernel/cuda/gpu.h"
#include "kernel/cuda/gpu_norm_args.h"

template <bool wide> GPU_FN float sum_of(float v)
{
    return wide ? gpu_block_sum(v, gpu_shared<norm_shared>()->room) : gpu_warp_sum(v);
}
template <bool wide> GPU_FN int64_t item_here()
{
    return wide ? gpu_block() : gpu_block() * (NORM_THREADS / GPU_WARP) + gpu_warp();
}
template <bool wide> GPU_FN int at() { return wide ? gpu_thread() : gpu_lane(); }
template <bool wide> GPU_FN int together() { return wide ? (int)NORM_THREADS : (int)GPU_WARP; }

#endif
