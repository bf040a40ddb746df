/* SPDX-License-Identifier: Apache-2.0 */
/* rng.h: counter-based random numbers. Every number is f(seed, stream, index): no state, no order of calls,
 * no rank. The same element gets the same number in every layout, and recompute is free.
 *
 * Generator: Philox-4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11), key = seed,
 * counter = (index / 4, stream); word index % 4. Order: Local.
 */
#ifndef TUTTI_BASE_RNG_H
#define TUTTI_BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words of block `block` (words of indices 4*block .. 4*block+3). */
void rng_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);
uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);   /* own index space: two words of block `index` */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
float rng_normal(uint64_t seed, uint64_t stream, uint64_t index);   /* Box-Muller on block `index`, mean 0, sd 1 */
/* A keyed bijection of [0, n): Feistel network with cycle walking. The i-th element of a shuffle of n items. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);
/* A stream number from a name, e.g. rng_stream("init/wte"): FNV-1a 64. */
uint64_t rng_stream(const char *name);
/* That stream's numbers for one step of a run: a stream of its own. */
uint64_t rng_stream_at(uint64_t stream, uint64_t step);

#endif
