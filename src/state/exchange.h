/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h: what data-parallel ranks send each other: gradients to where they are stepped, parameters to where they
 * are used. Per unit, enqueued, waited for when needed: when is in a rank's list of actions (schedule/parts.h), this
 * only carries it out.
 *
 * The order of sums. Four levels of sharing, one order: that is what makes zero 0 to 3 the same bits. With several
 * microbatches there are two orders to choose from, for all levels alike (store_config.once):
 *
 *   each   sum over microbatches of (sum over ranks of the microbatch's gradients)
 *          zero 2 and 3 never hold more than a shard of gradients: the papers' memory. One reduction per microbatch.
 *   once   sum over ranks of (sum over microbatches of the rank's gradients)
 *          one reduction per step; every rank holds whole gradients between microbatches, at zero 2 and 3 too.
 *
 * No third order has both: the owner of a piece can only form `once` from N sums that nobody may have rounded together
 * yet, and someone must keep those, or `each` from as many messages as there are microbatches. Rejected: fixed-point
 * sums, which no order changes (twice the bytes, and a scale that must be known before the gradients are); running all
 * microbatches through one layer before the next (their activations are then all alive).
 * With one microbatch the two are the same.
 *
 *   zero      0                     1                2, 3
 *   once      all-reduce            reduce-scatter   reduce-scatter
 *   each      reduce-scatters,      reduce-scatters  reduce-scatters
 *             one all-gather
 *   publish   -                     all-gather       all-gather (2), nothing (3)
 *   gather    -                     -                - (2), all-gather before each use, forward and backward (3)
 *
 * Bytes that a rank sends over N ranks of dp_shard per step, with m microbatches, for g bytes of gradients and p of
 * parameters in the compute dtype, each times (N-1)/N:
 *   zero        0          1        2        3
 *   once        2 g        g + p    g + p    g + 2 m p
 *   each        (m+1) g    m g + p  m g + p  m (g + 2 p)
 * With m = 1 and g = p: 2, 2, 2, 3: zero 3 sends 1.5 times what plain data parallelism does, the papers' figure.
 * Over R ranks of dp_replicate pieces are summed once a step at every level: 2 g (R-1)/R / N.
 *
 * bf16 gradients travel as bf16; sums over ranks run in fp32 and are rounded once (comm.h), sums over microbatches are
 * rounded once per microbatch (store.h).
 *
 * In fewer bits (comm.grad, comm.param): a codec writes what travels and reads it where it arrives: coded.h.
 *
 * Parameters that wait in slower memory (memory.offload) are read from there into the same slots, at every zero level:
 * fetch.h.
 *
 * A unit some of which is packed (packed.h) is used in a slot at every zero level: gathering it makes numbers of codes,
 * and at zero 3 these travel.
 *
 * exact (numerics.exact_order): sums form one binary tree over the microbatches of the global batch, whoever computes
 * them: exact.h.
 *
 * Parameters that are R on a model axis (norms under sequence parallelism, key heads that all ranks of tp hold) have a
 * part of their gradient on each rank of it: what is stepped is summed over the axis at the end of the step.
 *
 * Invariants
 *   1. Sums over ranks run in rank order in fp32, inside dp_shard first, then over dp_replicate.
 *   2. Temporary units are used one after the other; a slot is free again when its unit was reduced or released.
 *   3. Pieces are not written while they are published: all of it has been waited for when exchange_reduce_finish
 *      returns.
 *   4. One unit is under way in the landing at a time; sums over replicas and what follows them overlap freely.
 * Floors 0-2. Order: Collective over the groups; every rank calls the same sequence.
 */
#ifndef TUTTI_STATE_EXCHANGE_H
#define TUTTI_STATE_EXCHANGE_H

#include "comm/comm.h"
#include "state/coded.h"
#include "state/exact.h"
#include "state/fetch.h"
#include "state/store.h"

struct exchange_config {
    struct stream *stream;                    /* where sums and copies are enqueued; borrowed */
    struct comm *shard, *replicate;           /* NULL: of size 1 */
    struct comm *host_shard, *host_replicate; /* the hosts of the same ranks, for small sums */
    struct comm *expert;    /* shard of experts: ranks of one replica that hold the same ones; NULL: of size 1 */
    struct comm *sums;      /* a parameter server's workers, who reduce no gradients: for counts and losses; or NULL */
    bool exact;             /* needs fp32 gradients, groups of a power of two, store_config.once */
    int64_t n_microbatches; /* exact: of this rank */
    enum codec grad, param; /* what travels is written so (coded.h); not with exact */
};

enum reduction_stage { REDUCTION_NONE, REDUCTION_SHARD, REDUCTION_REPLICATE, REDUCTION_BACK, REDUCTION_SPREAD };
struct reduction { /* of one unit's gradients */
    enum reduction_stage stage;
    int64_t ticket;
    int slot;           /* temporary that it reads, -1 none */
    const bool *leaves; /* by parameter: what this reduction hands on; NULL: the whole unit */
    bool last;          /* of this step: replicas follow */
};

struct exchange {
    struct store *s;
    struct stream *stream;
    struct comm *shard, *replicate, *expert;         /* NULL: of size 1 */
    struct comm *host_shard, *host_replicate, *sums; /* the hosts' */
    struct comm *across[AXIS_N];           /* axes over which parameters that are R there are summed; NULL: of size 1 */
    int64_t *counts;                       /* scratch: elements per rank */
    struct buffer *param_slot, *grad_slot; /* temporary units: zero 3; store_grad_is_temporary */
    int n_param_slots, n_grad_slots;
    struct buffer wire;     /* a temporary unit of bf16 gradients as it is sent */
    struct buffer landing;  /* a reduced unit's pieces, before they are added to the shard */
    int64_t *gathered;      /* per unit: ticket of its gathering */
    struct reduction *unit; /* per unit */
    bool *added;            /* per parameter: the store holds something of its gradient of this step */
    /* Units in REDUCTION_SHARD whose gradients are reduced each time, ascending: few. */
    int *landing_units, n_landing_units;
    bool exact;
    struct exact tree;
    struct coding coding;
    struct fetching fetching; /* parameters that wait elsewhere */
};

int exchange_init(struct exchange *x, struct store *s, const struct exchange_config *c, struct err *e);
/* Memory for temporary units: how many live at once, which the rank's list of actions says (engine/itinerary.h).
 * Once. */
int exchange_slots(struct exchange *x, int param_slots, int grad_slots, struct err *e);
void exchange_fini(struct exchange *x);
/* Whether units have to be told about at all: gathered, opened, reduced. */
bool exchange_is_active(const struct exchange *x);

/* Over which ranks a parameter is shared out; NULL: one. */
struct comm *exchange_group(const struct exchange *x, int param);
/* Where a parameter's values and gradient are for the program: in the store, or in the slot its unit was given. The
 * program writes gradients in fp32. */
void *exchange_param_ptr(const struct exchange *x, int param, int slot);
void *exchange_grad_ptr(const struct exchange *x, int param, int slot);

/* zero 3, or away: enqueue the gathering of a unit into a slot; wait for it, or for what the last exchange_publish sent
 * of it. */
void exchange_gather(struct exchange *x, int unit, int slot);
void exchange_gather_wait(struct exchange *x, int unit);
/* A unit's gradients are complete: in its slot, or in the store when slot < 0 (then only for the last time in the
 * step). leaves, by parameter, says which of the slot's gradients this call hands on; other calls hand on the rest. It
 * is borrowed until they have been handed on. NULL: all. last: nothing of this step follows for this unit. Enqueues;
 * the host does not wait for its own unit. */
void exchange_reduce(struct exchange *x, int unit, int slot, const bool *leaves, bool last);
/* The slot is wanted again: finish the reduction that reads it. */
void exchange_slot_free(struct exchange *x, int slot);
void exchange_step_begin(struct exchange *x);
/* Elements of a parameter's gradient, of those that are stepped here, that are summed over a model axis; 0: none are.
 */
int64_t exchange_across(const struct exchange *x, int param, enum axis a);
/* All reductions of the step are finished when this returns. */
void exchange_reduce_finish(struct exchange *x);
/* After the update: parameters of a unit, of all units, to everybody (zero 1 and 2). Enqueues; who reads the whole of a
 * parameter waits for its unit. */
void exchange_publish_unit(struct exchange *x, int unit);
void exchange_publish(struct exchange *x);

/* Sum over all data-parallel ranks, in rank order; in place, in the host's memory. */
void exchange_sum_f64(struct exchange *x, double *v, int64_t n);
void exchange_sum_i64(struct exchange *x, int64_t *v, int64_t n);

#endif
