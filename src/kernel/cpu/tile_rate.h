/* tile_rate.h: what this machine could do in matrix products, measured now: the ceilings that benchmarks report their
 * results against. Operations per second of a whole team, a multiply-add counted as two; the best of several
 * rounds (a ceiling: what else runs on the machine must not lower it), a few tens of milliseconds in all. Order: Local to the owner of the team. */
#ifndef TUTTI_KERNEL_CPU_TILE_RATE_H
#define TUTTI_KERNEL_CPU_TILE_RATE_H

#include "base/thread.h"
#include "kernel/cpu/tile.h"

/* The micro-kernel's multiply-adds on registers alone. */
double tile_rate_registers(const struct tile_ops *o, struct team *team);
/* The micro-kernel on packed panels that lie in each core's L2: 256 KiB of A times 256 KiB of B, over and over.
 * What a matmul with free packing and free output would reach. */
double tile_rate_l2(const struct tile_ops *o, struct team *team);

#endif
