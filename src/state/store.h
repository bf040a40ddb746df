/* store.h: the buffers behind the table of parameters, and who holds what of them.
 *
 *   recipe   param  master  grad  moments (AdamW)   bytes per parameter on one rank
 *   fp32     4      -       4     8                 16
 *   bf16     2      4       4     8                 18
 *
 * Over N ranks of dp_shard (ZeRO, Rajbhandari et al. 2020): whole means every rank holds all of it, shard its pieces.
 *
 *   zero   param   grad    master, moments    gradients travel as           parameters travel as
 *   0      whole   whole   whole              all-reduce per unit           -
 *   1      whole   whole   shard              reduce-scatter, once a step   all-gather, once a step
 *   2      whole   shard   shard              reduce-scatter per microbatch all-gather, once a step
 *   3      shard   shard   shard              reduce-scatter per microbatch all-gather before each use
 *
 * dp_replicate holds copies of all that: pieces are summed over it as well (hybrid).
 *
 * Invariants
 *   1. Every buffer holds its parameters or pieces in the table's order without padding: bytes = count x width.
 *   2. Without a master of its own, the parameters are the master.
 *   3. A parameter's piece (units.h) is where this rank's optimizer works, at every zero level.
 * Floors 0-2. Order: Local unless said otherwise.
 */
#ifndef TUTTI_STATE_STORE_H
#define TUTTI_STATE_STORE_H

#include "device/device.h"
#include "kernel/kernel.h"
#include "state/param.h"
#include "state/units.h"

enum { STORE_MAX_MOMENTS = 2, STORE_MASTER = 0 /* `what` below; 1.. are the moments */ };

struct store_config {
    enum dtype dtype;      /* of the compute copy */
    bool training;         /* false: the compute copy only (generation) */
    int n_moments;
    int zero;
    int shard_rank, n_shards; /* along dp_shard; 0 of 1: alone */
};

struct store {
    const struct param_table *table; /* borrowed */
    struct device *dev;
    enum dtype dtype;
    int n_moments, zero;
    bool has_grad;
    struct units units;
    struct buffer param, master, grad, moment[STORE_MAX_MOMENTS];
};

int store_new_shared(struct store *s, const struct param_table *t, struct device *d, const struct store_config *c,
                     struct err *e);
/* One rank alone. */
int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              int n_moments, struct err *e);
void store_free(struct store *s);

bool store_param_is_whole(const struct store *s); /* zero 0 to 2, or one rank */
bool store_grad_is_whole(const struct store *s);  /* zero 0 and 1, or one rank */
bool store_state_is_whole(const struct store *s); /* zero 0, or one rank: master and moments */

/* Device pointers, NULL on the null device. Whole buffers only: */
void *store_param_ptr(const struct store *s, int param);
void *store_grad_ptr(const struct store *s, int param);
/* This rank's piece, wherever it lies: */
void *store_piece_param(const struct store *s, int param);
float *store_piece_grad(const struct store *s, int param);
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
