/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h: a job that outlives some of its ranks.
 *
 *   crew      all that were started and are alive: *members*, numbered from 0 as they were started, for good
 *   epoch     a world over the first of them, by *seat*; the others are spares and wait
 *   over      the epoch is over: all are done, or one is gone. Those that are left take seats for the next one: a spare
 *             takes the seat of a dead member, so that nobody else moves; where there is none, the others close up
 *
 * A rank's life (train/epochs.c):
 *
 *     crew_world -> works in it -> everything of it is freed -> crew_over -+-> CREW_DONE, CREW_ENDS
 *         ^      -> is a spare:    crew_wait                 -> crew_over -+
 *         +--------------------------------- CREW_ON ----------------------+
 *
 * Invariants
 *   1. A member that dies takes nothing with it that others wait for: what waits in a world of the crew comes back with
 *      ERR_LOST (comm_status), on every rank, and from then on nobody speaks over that world.
 *   2. After crew_over all members know the same: who is gone, who has which seat.
 *   3. A member that hangs is not dead: it is named by comm.timeout_s, and the job ends.
 *
 * Threads (crew_run_local) and processes of an MPI library that goes on without its dead (crew_open_mpi, mpi_crew.c).
 * Includes: this room. Order: as stated; Collective(crew): every member that is alive calls.
 */
#ifndef TUTTI_COMM_CREW_H
#define TUTTI_COMM_CREW_H

#include "comm/comm.h"

struct crew;

/* fn on n threads, each a member, until all have come back. Returns the first negative code among those that did not
 * die. A member that died (crew_drop) comes back, too: its code is not looked at. Local. */
typedef int crew_fn(struct crew *c, void *arg, struct err *e);
int crew_run_local(int n, crew_fn *fn, void *arg, struct err *e);

/* The processes of a launcher. ERR_REQUEST, on all: the MPI library does not go on without its dead, or was not asked
 * to. *rank: of this process, in any case. crew_close ends MPI; where the library
 * does not come to its end after deaths, the process ends with that status. Collective(all processes). */
int crew_open_mpi(struct crew **out, int *rank, struct err *e);
void crew_close(struct crew *c, int status);

int crew_size(const struct crew *c);  /* alive, as far as all know */
int crew_began(const struct crew *c); /* members when the job began */
int crew_seat(const struct crew *c);  /* of this one; spares have those behind the ranks at work */
int crew_member(const struct crew *c, int seat);
int crew_epoch(const struct crew *c); /* from 1 */
const char *crew_host(const struct crew *c, int member);
/* Of the first n seats, those on this member's host; and those of them that may use one of its cores. */
int crew_ranks_here(const struct crew *c, int n);
int crew_sharers(const struct crew *c, int n);

/* The world of this epoch: the first n members by seat are its ranks. *world: NULL for spares, else the crew's, which
 * frees it in crew_over. ERR_LOST: somebody died meanwhile, crew_over is next; other errors: the same on all.
 * Collective(crew), with equal n. */
int crew_world(struct crew *c, int n, const struct comm_config *cfg, struct comm **world, struct err *e);
/* A spare waits until the epoch is over. Local. */
void crew_wait(struct crew *c);

enum crew_verdict {
    CREW_DONE, /* every member brought OK */
    CREW_ENDS, /* one brought an error other than ERR_LOST */
    CREW_ON    /* somebody is gone: the next epoch begins */
};
/* The end of an epoch; groups of its world are freed. rc, why: what became of it here (spares, and those that were
 * done: OK). *lost (n of them, by member; the crew's until the next crew_over): who has died in it; crew_cause: what
 * one of those says that found it ("" where nobody did). An error: the crew itself failed. Collective(crew). */
int crew_over(struct crew *c, int rc, const struct err *why, enum crew_verdict *v, const int **lost, int *n,
              struct err *e);
const char *crew_cause(const struct crew *c);
/* This member is the dead one (comm_died): it leaves without a word. Local. */
void crew_drop(struct crew *c);

#endif
