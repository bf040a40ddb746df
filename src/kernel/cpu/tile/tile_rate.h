/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rate.h: what this machine could do in matrix products, measured now: the ceilings that benchmarks report their
 * results against. Operations per second of a whole team, a multiply-add counted as two; what else runs on the machine
 * does not lower them (rate.h). A tenth of a second on a quiet machine, up to some seconds on a busy one. Members
 * beyond the machine's cores add nothing. Order: Local to the owner of the team. */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_RATE_H
#define TUTTI_KERNEL_CPU_TILE_TILE_RATE_H

#include "base/thread.h"
#include "kernel/cpu/tile/tile.h"

/* The micro-kernel's multiply-adds on registers alone. */
double tile_rate_registers(const struct tile_ops *o, struct team *team);
/* The micro-kernel on packed panels that lie in each core's L2: 256 KiB of A times 256 KiB of B, over and over.
 * What a matmul with free packing and free output would reach. */
double tile_rate_l2(const struct tile_ops *o, struct team *team);
/* Of what each of `ranks` ranks with so many threads measures for itself, the share that it has when all of them run on
 * so many cores: 1 where there is a core for each thread. */
double tile_rate_share(int ranks, int threads, int cores);

#endif
