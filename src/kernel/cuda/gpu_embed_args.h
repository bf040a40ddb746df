/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_embed_args.h: what EMBED launches with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_EMBED_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_EMBED_ARGS_H

#include "kernel/cuda/gpu_walk_args.h"

enum {
    EMBED_BIN = 128,     /* rows of the table whose gradients a block makes, in EMBED_COLS columns */
    EMBED_WINDOW = 2048, /* tokens that it looks through at a time */
    EMBED_THREADS = 256,
    EMBED_WARPS = EMBED_THREADS / 32,
    EMBED_COLS = 32 * WALK_COLS,
};

struct embed_args {
    struct gpu_walk walk; /* of y */
    struct gpu_rows w, y;
    const int32_t *ids;
    int64_t rows, first, whole; /* of the table; the id of its first row; ids of all parts of it */
    float scale;
};
struct embed_weights_args {
    struct gpu_rows dy, acc, dw;
    const int32_t *ids;
    int64_t tokens, rows, cols, first;
    float scale;
};
struct embed_shared {
    uint32_t list[EMBED_WINDOW]; /* row in the bin << 16 | token in the window, by token */
    int count[EMBED_WARPS];
};

#endif
