/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.h: records go to the ranks that they are addressed to, and come out there in order.
 *
 *   shuffle_put ... shuffle_put (each rank as many as it has), shuffle_finish, shuffle_next until 0, shuffle_free
 *
 * Every rank has a box per rank. When one of a rank's boxes is full it comes to a round, in which all ranks empty their
 * boxes into each other's sorters; a rank that is still busy comes when a box of its own is full or it has no more. So
 * a rank waits for others, and memory does not grow with the records: half of `memory` is for boxes, sent and received,
 * half for the sorter (sorter.h), the rest is on disk.
 *
 * The sequence that a rank gets depends on the records addressed to it, not on who put them when.
 * Includes: base, comm. Order: put, finish and new Collective(world) in rounds; next Local.
 */
#ifndef TUTTI_CURATE_SHUFFLE_H
#define TUTTI_CURATE_SHUFFLE_H

#include "comm/comm.h"
#include "curate/sorter.h"

struct shuffle;
/* c: of the sorter; memory: of all. The name is the same on all ranks, the folder may be each rank's own. */
struct shuffle *shuffle_new(struct comm *world, const struct sorter_config *c);
/* fails: on every rank of the world, sooner or later (comm.h, 4). */
int shuffle_put(struct shuffle *s, const uint64_t *record, int to, struct err *e);
int shuffle_finish(struct shuffle *s, struct err *e);
int shuffle_next(struct shuffle *s, const uint64_t **record, struct err *e);
void shuffle_free(struct shuffle *s); /* NULL is fine */

/* Which of n ranks has this hash: ranges of equal size. */
static inline int hash_rank(uint64_t hash, int n) { return (int)((unsigned __int128)hash * (unsigned)n >> 64); }

#endif
