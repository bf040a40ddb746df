/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h: which checkpoint a run goes on from, decided once and the same on every rank.
 *
 *   choose    rank 0 looks; every rank opens what it chose and compares step, publication and manifest with rank 0's
 *   compare   the checkpoint's config with this run's: what differs is said, what breaks the promised order is refused
 *   load      keep/run_checkpoint.h
 *   done      only now is anything changed: leftovers are removed, what the run does not go on from is moved aside
 *
 * Invariants
 *   1. Nothing below run.dir is changed, cut or removed before `done`: a run that is refused leaves it as it was.
 *   2. What was not read is never removed: it keeps its name or gets another (.aside-N).
 * Floor 8. Order: Collective(world) unless said otherwise; world may be NULL (one rank).
 */
#ifndef TUTTI_KEEP_RESUME_H
#define TUTTI_KEEP_RESUME_H

#include "checkpoint/ckpt.h"
#include "comm/comm.h"
#include "config/config.h"

struct resume {
    struct ckpt *ckpt; /* open on every rank; NULL: the run starts afresh */
    bool chosen;       /* a key named it, or said never */
    bool own;          /* it lies in this run's own directory of checkpoints */
};

/* checkpoint.resume: auto (the newest of root; none there: afresh), never, the name of one below root (step-00000500),
 * or a path.
 *   fails   ERR_REQUEST, ERR_CORRUPT, ERR_IO: what was to be loaded cannot be used; says why, what can be, and the key
 *           that chooses it; or a rank does not see what rank 0 sees, and is named */
int resume_choose(struct resume *r, struct comm *world, const struct config *c, const struct conf *f, const char *root,
                  struct err *e);
/* The text that ends an error: the nearest checkpoint that can be used instead of `than` (NULL: of any), of root, or of
 * where `than` lies, and the key. file (may be NULL): what is damaged of `than`; one that has the same file is no help.
 * Local. */
void resume_advise(const char *root, const char *than, const char *file, struct err *e);
/* Rank 0, when everything is loaded: cleans root, moves aside what stands in the way of the next start, or, where the
 * run does not go on from there, all of root. Local. */
int resume_done(const struct resume *r, const char *root, struct err *e);
void resume_free(struct resume *r);

#endif
