/* SPDX-License-Identifier: Apache-2.0 */
/* coded.h: gradients and parameters that travel in fewer bits (comm.grad, comm.param): a codec (layout/codec.h) on what
 * exchange.h sends. Numbers are written before they leave and read where they arrive; between that they are bytes.
 *
 *   reduce-scatter   every rank writes, for each owner, its terms of the owner's pieces; an all-to-all; the owner reads
 *                    the terms of all ranks, its own too, and adds them in rank order in fp32
 *   all-reduce       that over parts of a piece, then the sums are written once more and gathered
 *   all-gather       every rank writes its pieces; a gather; every rank reads all, its own too
 *
 * A unit is one message per pair of ranks, of all its parameters. Vectors (norms, biases) travel as they are kept: they
 * are a thousandth of the bytes, and what they scale is everything. So do sums that are no codec's: losses, norms.
 *
 * Bits. A sum over ranks that share state is of terms that were each written once, wherever they were added, so who
 * owns what changes nothing, nor do transport and algorithm. At the end of the step the sum itself goes through the
 * codec once, at every zero level, although only zero 0 and replicas send it on: so zero 0 to 3 have the same bits.
 * That it may be sent over replicas and then over dp_shard rounds nothing twice (codec.h, invariant 1). Blocks follow
 * the columns of the whole parameter, and pieces are whole rows.
 *   the same bits   zero 0 to 3; any transport, algorithm and number of hosts; any order in which units are reduced
 *   other bits      other degrees of dp_shard, dp_replicate, cp and ep (other terms), and of tp where it cuts columns
 *                   between multiples of CODEC_BLOCK; parallel.reduce; zero 0 beside zero 1 to 3 with comm.param, for
 *                   at zero 0 no parameter travels
 *
 * Bytes that a rank sends per step, N ranks, with g elements of gradients and p of parameters of matrices, c bytes per
 * element of the codec (1 + 1/32 for a byte in full blocks, 2 for bf16): exchange.h's rows with c for the width.
 *
 * Memory, on the ledger as comm: of the largest unit, what is written and what arrives of gradients over dp_shard
 * (about 2 c), over replicas (2 c / N), and at the end (c; c / N from zero 1 on); of parameters c for each slot of zero
 * 3, and two units' c at zero 1 and 2.
 *
 * Invariants
 *   1. Each of the buffers holds one unit at a time; who wants it ends the stage that has it, which is the same place
 *      of the program on every rank (reduce.c).
 *   2. What arrives of parameters is read when the unit is waited for; the owner's own copy becomes what the others
 *      read.
 *   3. One NaN or infinity among the terms makes the sum not finite on every rank that gets it.
 * Floors 0-2. Order: Collective, as exchange.h.
 */
#ifndef TUTTI_STATE_CODED_H
#define TUTTI_STATE_CODED_H

#include "comm/comm.h"
#include "device/device.h"
#include "layout/codec.h"

struct exchange;

struct coded_set { /* of a stage of reductions */
    struct buffer out, in;
    int unit; /* that has it; -1 none */
};
struct coded_wire { /* parameters of a unit that arrive */
    struct buffer bytes;
    int unit, slot; /* -1 none; where they go to (exchange_param_ptr) */
    int64_t ticket;
};
struct coding {
    enum codec grad, param; /* CODEC_KEPT: does not go through here */
    struct coded_set shard, replicate, spread;
    struct coded_wire *wire;
    int n_wires, next;
    int64_t *count, *bytes, *each, *at; /* scratch: per rank of a group */
};

/* Whether gradients, and this unit's parameters, go through here. Frozen ones do not: they have no master, so that what
 * is rounded of them is lost, and a checkpoint would hold it. */
bool coded_grads(const struct exchange *x);
bool coded_params(const struct exchange *x, int unit);

int coded_buffers(struct exchange *x, int param_slots, struct err *e);
void coded_fini(struct exchange *x);

/* Stages of reductions (reduce.c). A begin enqueues a unit's message out of the stage's set, which is free; an end
 * waits and reads. source says where a parameter's whole gradient lies. Over dp_shard only those parameters travel that
 * leave now (struct reduction). add, by parameter: its sum is added to what the store holds; NULL: no sum is. */
typedef void *coded_where_fn(const struct exchange *x, int unit, int param, int slot);
int64_t coded_shard_begin(struct exchange *x, int unit, int slot, coded_where_fn *source);
void coded_shard_end(struct exchange *x, int unit, const bool *add);
int64_t coded_replicate_begin(struct exchange *x, int unit);
int64_t coded_replicate_back(struct exchange *x, int unit); /* adds what arrived, sends the sums */
void coded_replicate_end(struct exchange *x, int unit);
int64_t coded_spread_begin(struct exchange *x, int unit);
void coded_spread_end(struct exchange *x, int unit);
void coded_round(struct exchange *x, int unit); /* nobody is sent the sums: through the codec here */
/* v[n] of a parameter = the sum over ranks, at the end of the step. Waits. Collective(c). */
void coded_sum(struct exchange *x, struct comm *c, int param, void *v, int64_t n);

/* Parameters: of a unit into a slot (exchange_gather), or the store (slot -1); what arrived of it is read. */
int64_t coded_gather(struct exchange *x, int unit, int slot);
/* Every rank made all parameters by itself: they become what would arrive of them. Nothing is under way. Local. */
void coded_round_params(struct exchange *x);
void coded_gather_wait(struct exchange *x, int unit);

#endif
