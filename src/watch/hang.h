/* SPDX-License-Identifier: Apache-2.0 */
/* hang.h: what a person needs of a run that hangs: the stacks of all threads of all ranks, in the run's directory.
 *
 *   stacks-rankN.txt   of the process of rank N (of all ranks, where they are threads): what each rank waits for (step,
 *                      row of its list of actions, instruction, collective or peer), then every thread's stack
 *   stacks.txt         the ranks grouped by where they are: "ranks 0-6: ..., rank 7: ..."
 *
 * Written when an operation has waited too long, before the run ends for it (comm_config.late), and on SIGQUIT, after
 * which the run goes on. Processes of this host are asked by SIGQUIT; one that does not answer (it is stopped) is
 * looked at from outside, by ptrace where the system allows that. Ranks of other hosts write their own files when they
 * time out, and are in stacks.txt where their files are seen.
 *
 * A thread of its own does it, so that neither ranks nor the watcher of signals wait. Order: Local; one per process,
 * any thread.
 */
#ifndef TUTTI_WATCH_HANG_H
#define TUTTI_WATCH_HANG_H

#include <stdbool.h>

#include "base/err.h"
#include "comm/comm.h"
#include "engine/engine.h"

enum { HANG_ASKED_BY_RANK = 7213 }; /* what a SIGQUIT brings (sigqueue) that asks for one process only */

struct hang;
int hang_open(struct hang **h, struct err *e);
void hang_close(struct hang *h); /* NULL is fine, here and below */
/* Where to; until then nothing is written. */
void hang_dir(struct hang *h, const char *dir);
/* The calling thread is this rank (world NULL: the only one), until hang_leave, which comes before its engine and world
 * end. */
void hang_enter(struct hang *h, struct comm *world);
void hang_engine(struct hang *h, const struct comm *world, const struct engine *g); /* NULL: there is none any more */
void hang_leave(struct hang *h, const struct comm *world);
/* SIGQUIT came (a signals_quit_fn): stacks of this process alone where another rank asked, else of all ranks here.
 * Returns at once. */
void hang_asked(void *h, int value);
/* A comm_config.late. */
bool hang_late(void *h, const char *what);

#endif
