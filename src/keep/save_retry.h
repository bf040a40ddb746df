/* SPDX-License-Identifier: Apache-2.0 */
/* save_retry.h: a save that failed is tried again before it ends the run: a disk that is full now may have room in a
 * minute, and the state is in memory. Training goes on meanwhile; at the end of a run there is nothing to do but wait.
 * Floor 8. Order: Collective(world) where it says so; world NULL: one rank.
 */
#ifndef TUTTI_KEEP_SAVE_RETRY_H
#define TUTTI_KEEP_SAVE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/comm.h"

struct save_retry {
    int64_t most;   /* failures in a row that are borne */
    double pause_s; /* between tries */
    int64_t failed; /* so far, the same on every rank */
    double next_s;  /* when to try again: of rank 0's clock */
    char why[600];  /* the last failure */
};

/* After a save failed with rc on all ranks: OK when it is to be tried again, which rank 0 says as a warning; else rc,
 * with the number of tries in its text. waits: the run does nothing else meanwhile. Only trouble with files is borne,
 * not a lost rank or numbers that went wrong. Local, the same everywhere. */
int save_retry_failed(struct save_retry *r, struct comm *world, bool waits, int rc, struct err *e);
void save_retry_done(struct save_retry *r); /* a save succeeded */
/* Whether it is time to try again. Collective(world) while failed > 0. */
bool save_retry_due(const struct save_retry *r, struct comm *world);

#endif
