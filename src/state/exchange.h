/* exchange.h: what data-parallel ranks send each other: gradients to where they are stepped, parameters to where they are
 * used. Per unit, enqueued, waited for when needed: the schedule of it is flow (run/flow.h), this only carries it out.
 *
 *   zero      0                  1                       2, 3
 *   reduce    all-reduce         reduce-scatter          reduce-scatter out of a temporary unit, per microbatch
 *   publish   -                  all-gather              all-gather (2), nothing (3)
 *   gather    -                  -                       - (2), all-gather into a temporary unit (3)
 *
 * Parameters that are R on tp (norms under sequence parallelism, key heads that all ranks hold) have a part of their gradient
 * on each rank of the axis: pieces are summed over it, once a step.
 * With dp_replicate > 1 a piece is then summed over the replicas as well. Bytes sent per rank and step for a
 * parameter of n bytes in fp32 gradients (g) and compute width (p), N ranks:
 *   zero 0: 2 g (N-1)/N;  1: (g + p)(N-1)/N;  3 with m microbatches: m (g + 2 p)(N-1)/N
 *
 * Invariants
 *   1. Sums run in rank order in fp32: zero 0 to 3 give the same bits where gradients are reduced as often.
 *   2. Temporary units are used one after the other; a slot is free again when its unit was reduced or released.
 * Floors 0-2. Order: Collective over the groups; every rank calls the same sequence.
 */
#ifndef TUTTI_STATE_EXCHANGE_H
#define TUTTI_STATE_EXCHANGE_H

#include "comm/comm.h"
#include "state/store.h"

struct exchange {
    struct store *s;
    struct comm *shard, *replicate; /* NULL: of size 1 */
    struct comm *across[AXIS_N];    /* axes over which parameters that are R there are summed; NULL: of size 1 */
    int64_t *counts;                /* scratch: elements per rank */
    struct buffer *param_slot, *grad_slot; /* temporary units: zero 3, zero 2 and 3 */
    int n_param_slots, n_grad_slots;
    struct buffer landing;          /* a reduced unit's pieces, before they are added to the shard */
    int64_t *ticket;                /* per unit: the last operation on shard or replicate, 0 none */
    bool *pending;                  /* per unit: a reduction that must still be summed over replicas or added */
    bool *added;                    /* per unit: the shard holds something of this step */
    int *slot_of;                   /* per unit: grad slot of the reduction under way */
};

/* param_slots and grad_slots: how many temporary units live at once, from the flow. */
int exchange_init(struct exchange *x, struct store *s, struct comm *shard, struct comm *replicate, int param_slots,
                  int grad_slots, struct err *e);
void exchange_fini(struct exchange *x);
bool exchange_is_needed(const struct exchange *x);

/* Where a parameter's values and gradient are for the program: in the store, or in the slot its unit was given. */
void *exchange_param_ptr(const struct exchange *x, int param, int slot);
void *exchange_grad_ptr(const struct exchange *x, int param, int slot);

/* zero 3: enqueue the gathering of a unit into a slot; wait for it. */
void exchange_gather(struct exchange *x, int unit, int slot);
void exchange_gather_wait(struct exchange *x, int unit);
/* Enqueue the reduction of a unit's gradients, which are complete (zero 0, 1: of the step; 2, 3: of the microbatch). */
void exchange_reduce(struct exchange *x, int unit, int slot);
/* zero 2, 3: the slot is wanted again: finish the reduction that reads it. */
void exchange_slot_free(struct exchange *x, int slot);
void exchange_step_begin(struct exchange *x);
/* All reductions of the step are finished when this returns. */
void exchange_reduce_finish(struct exchange *x);
/* After the update: parameters to everybody (zero 1 and 2). */
void exchange_publish(struct exchange *x);

/* Sum over all data-parallel ranks, in rank order; in place. */
void exchange_sum_f64(struct exchange *x, double *v, int64_t n);
void exchange_sum_i64(struct exchange *x, int64_t *v, int64_t n);

#endif
