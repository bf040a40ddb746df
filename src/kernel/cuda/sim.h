/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h: a block of a GPU's threads on a CPU, for gpu.h where a CPU's compiler reads it. Each thread is a fiber with a
 * stack of its own; they change where they wait: at barriers and where a warp does something together.
 *
 * What is checked, each a CHECK with kernel, block, thread and line: a barrier that some threads of the block never
 * reach, or reach in another line; a warp operation at which a lane of its mask does not arrive; a copy that was not
 * waited for at the end; an address that is no multiple of what is read at once; a write behind the shared memory;
 * more of that than a GPU has. Shared memory holds NaNs when a block begins, and what an asynchronous copy goes
 * to holds NaNs until it was waited for. Which thread goes first is drawn (sim_order): a kernel that is right has the
 * same bits in all orders.
 *
 * Not simulated: time, caches, weak memory. Mind: what is simulated here is said to be simulated wherever it is shown.
 */
#ifndef TUTTI_KERNEL_CUDA_SIM_H
#define TUTTI_KERNEL_CUDA_SIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel/cuda/gpu_launch.h"
#include "kernel/cuda/sim_run.h"

struct sim_dim {
    uint32_t x, y, z;
};
enum sim_state { SIM_RUNS, SIM_AT_BARRIER, SIM_AT_WARP, SIM_ENDED };
enum { SIM_BOX = 32, SIM_COPIES = 256 };
struct sim_lane {
    enum sim_state state;
    int line, thread;
    uint32_t mask; /* AT_WARP: the lanes that it waits for */
    int turn;      /* which of its boxes it fills next */
    alignas(16) unsigned char box[2][SIM_BOX];
    struct {
        void *to;
        const void *from;
        int group;
    } copy[SIM_COPIES]; /* begun and not waited for */
    int n_copies, group;
};
struct sim_block {
    sim_dim at, grid;
    int threads;
    unsigned char *shared;
    size_t shared_bytes;
    sim_lane *lane;
};
extern __thread sim_block *sim_block_now;
extern __thread sim_lane *sim_lane_now;

/* Until all threads of the block are in this line. */
void sim_barrier(int line);
/* Until all lanes of the mask are in this line, with `bytes` (at most SIM_BOX) of their own each. Returns the warp's
 * first lane; what lane i brought: sim_brought. */
sim_lane *sim_meet(uint32_t mask, const void *mine, size_t bytes, int line);
static inline const void *sim_brought(const sim_lane *warp, int i) { return warp[i].box[sim_lane_now->turn ^ 1]; }
void sim_copy(void *shared, const void *global, int line);
void sim_copies_wait(int newest, int line); /* for all groups but the newest so many */
void sim_aligned(const void *p, size_t to, int line);

#define SIM_LINE int line = __builtin_LINE()

#endif
