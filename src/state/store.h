/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: the arrays behind the table of parameters, and who holds what of them.
 *
 *   recipe                param  master  grad  moments (AdamW)   bytes per parameter on one rank
 *   fp32                  4      -       4     8                 16
 *   bf16                  2      4       4     8                 18
 *   bf16, bf16 gradients  2      4       2     8                 16: the figures of the ZeRO paper
 *   bf16, no master       2      0       4     8                 14: weights are rounded by chance after each step
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
 *   1. All of it is one table of arrays (array.h): weights, master, gradients, and the rows that optimizers and others
 *      give.
 *   2. Without a master of its own, the parameters are the master: all of them, or those that are frozen. What is
 *      packed has neither: its codes are the truth.
 *   3. A parameter's piece (units.h) is where this rank's optimizer works, at every zero level.
 *   4. A bf16 gradient is an fp32 sum rounded once: when a microbatch is added, and when ranks are.
 * Floors 0-2. Order: Local unless said otherwise.
 */
#ifndef TUTTI_STATE_STORE_H
#define TUTTI_STATE_STORE_H

#include "device/device.h"
#include "kernel/kernel.h"
#include "state/array.h"
#include "state/param.h"
#include "state/units.h"

/* The table of arrays (array.h). The first three are the store's own; the rows that others give follow in their
 * order. */
enum { STORE_PARAM, STORE_MASTER, STORE_GRAD, STORE_ROWS, STORE_MAX_ARRAYS = 16 };
enum { STORE_WIDEN = 1 << 18 /* elements */ };

struct store_config {
    enum dtype dtype;         /* of the compute copy */
    bool training;            /* false: the compute copy only (generation) */
    bool stateless;           /* no master and nothing that is stepped: somebody else steps (site/param_server.h) */
    bool no_master;           /* the weights are the master, also in 16 bits */
    enum mem_cat master_away; /* where masters wait; 0: on the device */
    enum mem_cat param_away;  /* where weights wait between their uses (fetch.h); 0: on the device */
    /* What there is beside the store's own arrays where it trains; names are borrowed for good. */
    const struct array_row *rows;
    int n_rows;
    int zero;
    bool shared;     /* state is shared out over ranks as the layouts say (units.h); false: whatever is held is whole */
    enum dtype grad; /* f32 or bf16 */
    bool many;       /* units complete several times a step: microbatches, stages */
    bool once;       /* and are summed here first, reduced once: gradients are whole meanwhile */
};

struct store {
    const struct param_table *table; /* borrowed */
    struct device *dev;
    enum dtype dtype, grad_dtype;
    int zero;
    bool has_grad, many, once;
    struct units units;
    struct array array[STORE_MAX_ARRAYS];
    int n_arrays;
    int packed;                /* where the arrays of packed matrices begin (packed.h); 0: there are none */
    double grad_times;         /* gradients here are those of the loss times this: 1, but for a loss scale */
    struct buffer widen;       /* bf16 gradients: a stretch of them in fp32 while the optimizer reads it */
    struct buffer wide_master; /* store_rounds: a stretch of weights in fp32 while the optimizer steps it */
};

int store_new_shared(struct store *s, const struct param_table *t, struct device *d, const struct store_config *c,
                     struct err *e);
/* One rank alone. */
int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              const struct array_row *rows, int n_rows, struct err *e);
void store_free(struct store *s);

bool store_param_is_whole(const struct store *s); /* zero 0 to 2, or one rank */
bool store_param_travels(const struct store *s);  /* is used where its unit was gathered to: shared out, or away; */
bool store_unit_travels(const struct store *s, int unit); /* or this unit is, some of which is packed (packed.h) */
bool store_packs(const struct store *s);
bool store_rounds(const struct store *s);        /* weights of 16 bits are the master: what steps them rounds them */
bool store_grad_is_whole(const struct store *s); /* zero 0 and 1, one rank, or many and once */
/* Every time that a unit's gradients are complete they are reduced; else once a step. */
bool store_reduces_each(const struct store *s);
bool store_grad_is_temporary(const struct store *s); /* kernels write elsewhere: exchange.h */
bool store_state_is_whole(const struct store *s);    /* zero 0, or one rank: what is stepped */

/* ---- arrays; `which`: STORE_MASTER, ... ---- */
/* Where its values are: without a master of its own, the parameters are the master. */
const struct array *store_array(const struct store *s, int which);
/* The same of one parameter: a frozen one is its own master. */
const struct array *store_array_of(const struct store *s, int which, int param);
bool store_covers(const struct store *s, int which, int param); /* it has values there, or in place of a master */
/* A stream of the device it is on: st, or of another device its own. */
struct stream *store_stream(const struct store *s, int which, struct stream *st);
struct stream *store_stream_of(const struct store *s, int which, int param, struct stream *st);
/* Enqueues: of what this rank has of a parameter's master its compute copy. Both are on st's device. */
void store_derive(const struct store *s, struct stream *st, int param);
/* n numbers of the host to another type; team NULL: by the caller alone. */
void store_cast(const struct kernel_table *k, struct team *team, void *to, enum dtype t, const void *from, enum dtype f,
                int64_t n);
/* Its values are here: of the master also those of the parameters. */
bool store_has(const struct store *s, int which);
int store_find(const struct store *s, const char *name); /* which; -1: there is none here */
/* What this rank holds of one parameter: all of it where the array is whole, else its piece; its piece; what it
 * writes. */
struct array_span store_held(const struct store *s, int param, int which);
struct array_span store_piece(const struct store *s, int param, int which);
struct array_span store_writes(const struct store *s, int param, int which);
/* Bytes of all tensors that are saved, over all ranks. */
int64_t store_saved_bytes(const struct store *s);

/* Device pointers, NULL on the null device. Whole arrays only: */
void *store_param_ptr(const struct store *s, int param);
void *store_grad_ptr(const struct store *s, int param);
/* This rank's piece, wherever it lies: */
void *store_piece_ptr(const struct store *s, int param, int which);
void *store_piece_param(const struct store *s, int param);
void *store_piece_grad(const struct store *s, int param); /* of grad_dtype; masters and moments are f32 */

/* Initial values into master and compute copy; zeros into all that is saved beside them. */
void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed);
/* What this rank holds (store_held) of one parameter's array, as fp32 on the host. Writing takes arrays of f32; the
 * compute copy that lies here follows a write to the master, others follow by exchange_publish (exchange.h). */
void store_read(const struct store *s, struct stream *st, int param, int which, float *out);
void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int which,
                 const float *in);

#endif
