/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_walk_args.h: how threads go over rows whose elements are computed each by itself: a thread takes chunks of 8
 * columns, WALK_THREADS chunks from one to its next. What is divided is divided once a thread. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_WALK_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_WALK_ARGS_H

#include <stddef.h>
#include <stdint.h>

enum {
    WALK_COLS = 8,
    WALK_THREADS = 256,
    WALK_MOST = 4,       /* chunks of a thread */
    WALK_MANY = 1 << 19, /* with fewer chunks than this each has a thread of its own */
};

/* Rows of a tensor; p NULL: absent, it reads as 0. */
struct gpu_rows {
    void *p;
    int64_t step; /* elements */
};

struct gpu_walk {
    int64_t cols, chunks, items;    /* of a row, of a row, of all */
    int64_t step_rows, step_chunks; /* WALK_THREADS chunks further */
    int each;                       /* chunks of a thread */
};

static inline struct gpu_walk gpu_walk_of(int64_t rows, int64_t cols)
{
    struct gpu_walk w;
    w.cols = cols;
    w.chunks = (cols + WALK_COLS - 1) / WALK_COLS;
    w.items = rows * w.chunks;
    w.step_rows = w.chunks ? WALK_THREADS / w.chunks : 0;
    w.step_chunks = w.chunks ? WALK_THREADS % w.chunks : 0;
    w.each = w.items < WALK_MANY ? 1 : WALK_MOST;
    return w;
}
static inline int64_t gpu_walk_blocks(const struct gpu_walk *w)
{
    int64_t each = (int64_t)WALK_THREADS * w->each;
    return (w->items + each - 1) / each;
}

#endif
