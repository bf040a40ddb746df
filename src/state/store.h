/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: the buffers behind the table of parameters, and who holds what of them.
 *
 *   recipe                param  master  grad  moments (AdamW)   bytes per parameter on one rank
 *   fp32                  4      -       4     8                 16
 *   bf16                  2      4       4     8                 18
 *   bf16, bf16 gradients  2      4       2     8                 16: the figures of the ZeRO paper
 *
 * Over N ranks of dp_shard (ZeRO, Rajbhandari et al. 2020): whole means every rank holds all of it, shard its pieces.
 *
 *   zero   param   grad    master, moments    bytes per parameter with bf16 gradients
 *   0      whole   whole   whole              16
 *   1      whole   whole   shard               4 + 12/N
 *   2      whole   shard   shard               2 + 14/N
 *   3      shard   shard   shard                   16/N
 *
 * dp_replicate holds copies of all that. What travels, and in which order it is summed: exchange.h.
 *
 * Kernels write gradients in fp32. They write into the grad buffer itself where it is whole, fp32 and summed up on this
 * rank; else into a temporary (exchange.h) of which the complete unit is taken.
 *
 * Invariants
 *   1. Every buffer holds its parameters or pieces in the table's order without padding: bytes = count x width.
 *   2. Without a master of its own, the parameters are the master.
 *   3. A parameter's piece (units.h) is where this rank's optimizer works, at every zero level.
 *   4. A bf16 gradient is an fp32 sum rounded once: when a microbatch is added, and when ranks are.
 * Floors 0-2. Order: Local unless said otherwise.
 */
#ifndef TUTTI_STATE_STORE_H
#define TUTTI_STATE_STORE_H

#include "device/device.h"
#include "kernel/kernel.h"
#include "state/param.h"
#include "state/units.h"

enum { STORE_MAX_MOMENTS = 2, STORE_WIDEN = 1 << 18 /* elements */, STORE_MASTER = 0 /* `what` below; 1.. are the moments */ };

struct store_config {
    enum dtype dtype;      /* of the compute copy */
    bool training;         /* false: the compute copy only (generation) */
    bool stateless;        /* no master, no moments: somebody else steps (run/serve.h) */
    int n_moments;
    int zero;
    int shard_rank, n_shards; /* along dp_shard; 0 of 1: alone */
    int expert_rank, n_expert_ranks; /* the same along edp, for experts; 0 ranks: no such parameters */
    enum dtype grad;          /* f32 or bf16 */
    bool many;                /* units complete several times a step: microbatches, stages */
    bool once;                /* and are summed here first, reduced once: gradients are whole meanwhile */
};

struct store {
    const struct param_table *table; /* borrowed */
    struct device *dev;
    enum dtype dtype, grad_dtype;
    int n_moments, zero;
    bool has_grad, many, once;
    struct units units;
    struct buffer param, master, grad, moment[STORE_MAX_MOMENTS];
    struct buffer widen; /* bf16 gradients: a stretch of them in fp32 while the optimizer reads it */
};

int store_new_shared(struct store *s, const struct param_table *t, struct device *d, const struct store_config *c,
                     struct err *e);
/* One rank alone. */
int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              int n_moments, struct err *e);
void store_free(struct store *s);

bool store_param_is_whole(const struct store *s); /* zero 0 to 2, or one rank */
bool store_grad_is_whole(const struct store *s);  /* zero 0 and 1, one rank, or many and once */
/* Every time that a unit's gradients are complete they are reduced; else once a step. */
bool store_reduces_each(const struct store *s);
bool store_grad_is_temporary(const struct store *s); /* kernels write elsewhere: exchange.h */
bool store_state_is_whole(const struct store *s); /* zero 0, or one rank: master and moments */

/* Device pointers, NULL on the null device. Whole buffers only: */
void *store_param_ptr(const struct store *s, int param);
void *store_grad_ptr(const struct store *s, int param);
/* This rank's piece, wherever it lies: */
void *store_piece_param(const struct store *s, int param);
void *store_piece_grad(const struct store *s, int param); /* of grad_dtype, moments and masters of f32 */
float *store_piece_state(const struct store *s, int param, int what);
const struct buffer *store_master(const struct store *s); /* the master, or the parameters themselves */

/* Initial values into master and compute copy; moments zero. */
void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed);
/* What this rank holds of one parameter's master or moments: all of it where the state is whole, else its piece. The
 * compute copy that lies here follows a write to the master; others follow by exchange_publish (exchange.h). */
int64_t store_held(const struct store *s, int param, int64_t *lo); /* elements */
void store_read(const struct store *s, struct stream *st, int param, int what, float *out);
void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int what,
                 const float *in);

#endif
