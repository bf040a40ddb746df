/* SPDX-License-Identifier: Apache-2.0 */
/* sim_run.h: kernels of a GPU run by a CPU, their threads as fibers (sim.h). C11 and C++. Order: Local. */
#ifndef TUTTI_KERNEL_CUDA_SIM_RUN_H
#define TUTTI_KERNEL_CUDA_SIM_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "kernel/cuda/gpu_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In which order threads go on. FORWARD, BACKWARD: warps by turns, from one barrier or warp operation to the next.
 * RANDOM: any that can. GREEDY: a warp goes as far as it can before another may, blocks in any order: what finds a
 * missing barrier before something is overwritten. */
enum sim_way { SIM_FORWARD, SIM_BACKWARD, SIM_RANDOM, SIM_GREEDY, SIM_WAYS };
struct sim_order {
    enum sim_way way;
    uint64_t seed;
};
extern const char *const sim_way_names[SIM_WAYS];

struct sim_counts {
    int64_t launches, blocks, switches;
};
/* On memory that the caller can touch; returns when all blocks have ended. Any threads of the host may do so beside
 * each other. Order and dial: TUTTI_SIM_ORDER ("greedy:7"), TUTTI_SIM_PRODUCTS (a way of kernel/ref/accumulate.h;
 * absent: as an fp32 sum in order), unless sim_order_set says otherwise. */
void sim_run(const struct gpu_launch *l);
/* For all launches of this thread from now on; NULL: the environment's again. */
void sim_order_set(const struct sim_order *o);
struct sim_counts sim_counted(void); /* of this thread */

/* sim_run's two sides: the fibers (sim.cpp), and what they need of the house (sim_run.c). */
void sim_fibers(const struct gpu_launch *l, struct sim_order o, struct sim_counts *counts);
__attribute__((noreturn)) void sim_fault(const char *text);
/* c + the sum of n products of a type whose smallest normal number is 2^lowest, as the dial says. */
float sim_products(const float *a, const float *b, int n, int lowest, float c);

#ifdef __cplusplus
}
#endif

#endif
