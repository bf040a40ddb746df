/* SPDX-License-Identifier: Apache-2.0 */
/* loading.h: a checkpoint into the arrays of all ranks, in rounds of bounded memory: each rank reads its part of a
 * round (readers.h), all agree that all went well, and the parts travel along routes to whoever holds them, while the
 * next round is read.
 *
 * Memory beside the arrays, on the engine's device and its ledger (MEM_COMM), freed at the end: of two rounds
 * what is read, what is packed before it leaves (each byte once, to however many ranks it goes) and what is unpacked:
 * six times a round at most, however large the model is. A round is READERS_ROUND; less below a limit, but not less
 * than READERS_LEAST.
 *
 * Nothing that was not compared with its checksum is sent: a round's parts leave after the agreement on it. Arrays on
 * another device than the engine's (offloaded ones) are read by each rank for itself (the caller).
 * Floor 6. Order: Collective(world), workers of a parameter server too, which hold nothing.
 */
#ifndef TUTTI_ENGINE_LOADING_H
#define TUTTI_ENGINE_LOADING_H

#include "engine/readers.h"

/* Whoever reads: elements [lo, lo + n) of a stored box (ckpt_read_stretch), and the words for what goes wrong. */
typedef int loading_read_fn(void *ctx, const struct reading *r, enum dtype as, void *dst, struct err *e);
/* Bytes of a round on this engine; the same on all ranks of its world. Collective(world). */
int64_t loading_round(struct engine *g);
/* rc: the result of this rank's work before the call. Where it is not OK on one rank nobody reads, and all ranks get
 * that one's words, as they do for every failure. plan: by readers_plan; on a worker zeros. */
int loading_run(struct engine *g, const struct readers *plan, const struct ckpt *c, loading_read_fn *read, void *ctx,
                int rc, struct err *e);

#endif
