/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_walk.h: a thread's chunks of rows (gpu_walk_args.h), and 8 elements of one as floats (gpu_array.h).
 *
 *   GPU_WALK(at, a.walk) { ... at.row, at.col, at.left ... }
 *
 * Order: Local. */
#ifndef TUTTI_KERNEL_CUDA_GPU_WALK_H
#define TUTTI_KERNEL_CUDA_GPU_WALK_H

#include "kernel/cuda/gpu_array.h"
#include "kernel/cuda/gpu_walk_args.h"

struct gpu_place {
    int64_t item, row, chunk;
    int done;          /* chunks of the thread */
    int64_t col, left; /* of the chunk: its first column, and how many there are from there on */
};
GPU_FN void gpu_place_cols(gpu_place *at, const gpu_walk &w)
{
    at->col = at->chunk * WALK_COLS;
    at->left = w.cols - at->col;
}
GPU_FN gpu_place gpu_walk_begin(const gpu_walk &w)
{
    gpu_place at;
    at.item = gpu_block() * WALK_THREADS * w.each + gpu_thread();
    at.row = at.item / w.chunks;
    at.chunk = at.item % w.chunks;
    at.done = 0;
    gpu_place_cols(&at, w);
    return at;
}
GPU_FN bool gpu_walk_more(const gpu_place &at, const gpu_walk &w) { return at.done < w.each && at.item < w.items; }
GPU_FN void gpu_walk_next(gpu_place *at, const gpu_walk &w)
{
    at->done++;
    at->item += WALK_THREADS;
    at->row += w.step_rows;
    at->chunk += w.step_chunks;
    if (at->chunk >= w.chunks) at->chunk -= w.chunks, at->row++;
    gpu_place_cols(at, w);
}
#define GPU_WALK(at, walk)                                                                                             \
    GPU_ROLLED for (gpu_place at = gpu_walk_begin(walk); gpu_walk_more(at, walk); gpu_walk_next(&at, walk))

/* Behind the row: 0, and not written; left may be negative. */
template <class T> GPU_FN gpu_eight gpu_get_eight(const gpu_rows &x, int64_t row, int64_t col, int64_t left)
{
    return gpu_get8((const T *)x.p + row * x.step + col, left);
}
template <class T>
GPU_FN void gpu_put_eight(const gpu_rows &y, int64_t row, int64_t col, int64_t left, const gpu_eight &e)
{
    gpu_put8((T *)y.p + row * y.step + col, e, left);
}
/* 0 where the tensor is absent. */
template <class T> GPU_FN gpu_eight gpu_get_eight_or_0(const gpu_rows &x, int64_t row, int64_t col, int64_t left)
{
    gpu_eight e = {};
    return x.p ? gpu_get_eight<T>(x, row, col, left) : e;
}
GPU_FN void gpu_add_eight(gpu_eight *to, const gpu_eight &e)
{
    for (int i = 0; i < WALK_COLS; i++) to->v[i] += e.v[i];
}

#endif
