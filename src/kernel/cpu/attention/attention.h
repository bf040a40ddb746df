/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h: blocked attention with online softmax (Dao et al. 2022, 2023), forward, backward and cached.
 *
 * Scores are computed transposed: a block S^T has keys as rows and queries as lanes, so the softmax's maxima, sums
 * and scales are plain vectors over queries and never reduce across lanes. Matrix products are tile.h's; the
 * vector work is built once per instruction set (attention_body.h).
 *
 *   forward    S^T = K Q^T   P^T = exp(S^T - m)   O^T += V^T P^T
 *   backward   dP^T = V dO^T   dS^T = P^T (dP^T - delta) scale
 *              dV += P^T dO   dK += dS^T Q   dQ^T += K^T dS^T
 *
 * Invariants
 *   1. No block depends on which thread computes it, nor on the place of the thread's range: the same bits for
 *      any team. Sums run over blocks of keys (forward, dq) or of queries (dk, dv) in ascending order.
 *   2. Memory per thread is proportional to S * A, never to S * S.
 * Includes: kernel.h, tile.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_H
#define TUTTI_KERNEL_CPU_ATTENTION_ATTENTION_H

#include "kernel/cpu/tile/tile.h"
#include "kernel/kernel.h"

/* One build. o's panels are bf16 or f32; o->needs is at most the build's own level. */
struct attention_build {
    void (*fwd)(const struct kernel_call *c, const struct tile_ops *o);
    void (*bwd)(const struct kernel_call *c, const struct tile_ops *o);
    void (*cached)(const struct kernel_call *c, const struct tile_ops *o);
    size_t (*scratch)(const struct kernel_call *c, const struct tile_ops *o, int n_threads);
    kernel_fn *few; /* cached, of at most ATTN_FEW tokens: no panels */
    size_t (*few_scratch)(const struct kernel_call *c, int n_threads);
};
enum { ATTN_FEW = 8 };

#endif
