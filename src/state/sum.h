/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h: adding up gradients element by element on this rank: what a reduction leaves to do beside messages. Every
 * function is elementwise, so the split over threads and the length of a vector change no bits. Kernels outside the table: they take
 * addresses of a cpu device, untouchable or not.
 * Floors 0-1 and device. Order: Local.
 */
#ifndef TUTTI_STATE_SUM_H
#define TUTTI_STATE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "layout/dtype.h"

/* to[i] = from[i], or to[i] + from[i] when add: in fp32, rounded once to to's type. to is f32 or bf16, from likewise. */
void sum_into(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
/* to[i] = the n_parts (a power of two) values part[p * n + i], summed along the binary tree that halves 0..n_parts-1 down
 * to neighbours. to may be one of the parts. */
void sum_tree(struct team *team, float *to, const float *part, int n_parts, int64_t n);

#endif
