/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_flat_args.h: what rows of whole arrays launch with. C11 and C++. */
#ifndef TUTTI_KERNEL_CUDA_GPU_FLAT_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_FLAT_ARGS_H

#include <stddef.h>
#include <stdint.h>

enum {
    FLAT_THREADS = 256,
    FLAT_EACH = 8,                        /* elements of a thread */
    FLAT_SOME = FLAT_THREADS * FLAT_EACH, /* of a block */
    FLAT_TREE_LEVELS = 16,                /* a tree has fewer parts than 2 to the power of it */
    FLAT_BLOCKS_EACH = FLAT_THREADS / 16, /* SUM_SQUARES: of 4096 elements, by a block of threads */
    FLAT_FIND = FLAT_SOME * 16,           /* FIND_NONFINITE: elements of a block */
    FLAT_COPIES = 8,
    FLAT_PIECES = 3,
    FLAT_EXACT_EACH = 256, /* EXACT_SQUARES: elements of a thread */
    FLAT_BINS = 256,
    FLAT_COUNTERS = FLAT_BINS * FLAT_PIECES * FLAT_COPIES
};

/* Element types, numbered as enum dtype is. */
enum flat_type { FLAT_F32, FLAT_BF16, FLAT_F16, FLAT_F64, FLAT_I32, FLAT_I64, FLAT_U8, FLAT_U16, FLAT_TYPES };

struct flat_args {
    const void *x;
    void *y;
    int64_t n;       /* elements; of one part */
    int64_t parts;   /* SUM_TREE, SUM_PARTS */
    int from, to;    /* CAST: enum flat_type */
    int add;         /* SUM_INTO */
    uint64_t ones;   /* FIND_NONFINITE: bits that are all 1 in what is not finite */
    double *sums;    /* SUM_SQUARES: of each block */
    int32_t *places; /* FIND_NONFINITE: in each block, FLAT_FIND: none */
    int64_t blocks;  /* sums, or places */
};
struct losses_args {
    const double *x;
    double *real; /* one of these two */
    int64_t *whole;
    int64_t rows, step;
};
struct clip_args {
    double *words;
    const double *squares, *losses; /* these, or those below */
    const int64_t *exact, *exact_losses;
    double most;
};
struct flat_order_shared {
    double room[1024];
};
struct flat_counters_shared {
    uint32_t bin[FLAT_COUNTERS];
};
struct flat_int_shared {
    int32_t room[FLAT_THREADS / 32];
};
struct clip_shared {
    double term[FLAT_BINS];
};

#endif
