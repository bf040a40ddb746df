/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_launch.h: a launch of a GPU's kernel: which, how many blocks of how many threads, how much shared memory, and one
 * struct, by value, of what it works on. The same on a GPU and simulated. C11 and C++. Includes: nothing of the house.
 * Order: Local. */
#ifndef TUTTI_KERNEL_CUDA_GPU_LAUNCH_H
#define TUTTI_KERNEL_CUDA_GPU_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    GPU_WARP = 32,
    GPU_THREADS_MOST = 1024,
    GPU_SHARED_MOST = 99 << 10, /* bytes of a block: what every GPU from sm_86 on has (an A100 has 163 KiB) */
    GPU_ARGS_MOST = 4096        /* bytes */
};

struct gpu_kernel {
    const char *name; /* as it is called in the fat binary */
    int threads;      /* of a block: a multiple of GPU_WARP */
    void (*simulated)(const void *args);
};
struct gpu_launch {
    const struct gpu_kernel *kernel;
    uint32_t grid[3]; /* blocks; 0 in one: nothing is done */
    size_t shared;    /* bytes */
    const void *args;
    size_t bytes; /* of args */
};

#endif
