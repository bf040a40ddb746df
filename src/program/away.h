/* SPDX-License-Identifier: Apache-2.0 */
/* away.h: carries out the rows that copy to and from another memory (STORE, FETCH): on a stream of their own, behind an
 * event of the stream that computes, which gets behind an event of theirs where a row ends. The host waits for nothing.
 * Copies run one after the other, so what is fetched was stored.
 * Floors 0-2. Order: Local.
 */
#ifndef TUTTI_PROGRAM_AWAY_H
#define TUTTI_PROGRAM_AWAY_H

#include "program/program_run.h"

struct away_run {
    struct stream *copies; /* borrowed */
    struct event *ready;   /* the stream that computes, when a copy begins */
    struct event *over[PROGRAM_UNDER_WAY];
    int64_t begun;
};
int away_run_init(struct away_run *x, struct stream *copies, struct err *e);
void away_run_fini(struct away_run *x); /* also of a zeroed struct */
/* For program_args.copies. */
struct carrier away_run_carrier(struct away_run *x);

#endif
