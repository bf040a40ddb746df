/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.h: which elements dropout keeps, for every kernel family.
 *
 * The mask is a function of a counter, so it costs no memory, backward repeats it, and every layout draws the same
 * one. Element `index` of stream `stream` in optimizer step `step` is kept iff its 32-bit word of the generator is
 * at least p * 2^32; kept values are multiplied by dropout_scale(p).
 *
 *   ADD, DROPOUT   index = (first_token + t) * D + d
 *   ATTENTION      index = ((b * H + h) * S + i) * S + j,  b = first_token / S + the sequence's place in the call
 *
 * Words come in blocks of four: dropout_bits4(.., index / 4, ..) serves the indices 4k .. 4k + 3, which is what
 * vector code wants. Floors 0-1 and kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_DROPOUT_H
#define TUTTI_KERNEL_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "kernel/kernel.h"

static inline bool dropout_active(const struct dropout_attrs *at, const struct step_info *step)
{
    return at->p > 0 && step->training;
}

/* A word below this is dropped; p < 1, so it fits. */
static inline uint32_t dropout_threshold(float p) { return (uint32_t)((double)p * 4294967296.0); }

static inline float dropout_scale(float p) { return 1.0f / (1.0f - p); }

/* Four words, of the indices 4*block .. 4*block + 3: compare each with dropout_threshold(p). */
static inline void dropout_bits4(uint64_t seed, uint64_t stream, uint64_t step, uint64_t block, uint32_t out[4])
{
    rng_block(seed, rng_stream_at(stream, step), block, out);
}

static inline bool dropout_keep(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index, float p)
{
    return rng_u32(seed, rng_stream_at(stream, step), index) >= dropout_threshold(p);
}

#endif
