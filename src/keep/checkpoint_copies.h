/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_copies.h: copies of a run's finished checkpoints elsewhere (checkpoint.copy_to), made by a thread of rank
 * 0, which no step waits for; and the newest of them back when it is newer than what the run's own disk has.
 *
 * The newest checkpoint is copied; one that is published meanwhile follows, those between are not copied, and said.
 * What fails is said and tried again, every retry_s, with whatever is the newest then; it never ends a run. Floor 8.
 * Order: Local, rank 0.
 */
#ifndef TUTTI_KEEP_CHECKPOINT_COPIES_H
#define TUTTI_KEEP_CHECKPOINT_COPIES_H

#include "keep/copy_place.h"

struct copies;
enum { COPIES_PASSED = 16 };
/* What the start found there. */
struct copies_found {
    bool fetched;                  /* a copy is below root now */
    uint64_t run;                  /* whose it is; 0: nothing was fetched, or it names no run */
    int64_t passed[COPIES_PASSED]; /* steps of copies that were read, are damaged and later than what is here now */
    int n_passed;
};
struct copies_config {
    const char *to, *root, *run_dir; /* where copies go; checkpoints of the run; its folder */
    uint64_t run;                    /* its name; 0: none yet */
    bool takes;                      /* a person said so: whatever run's copies are there */
    bool damaged;                    /* the newest below root was read, and is damaged */
    int64_t keep;                    /* newest ones that stay there; 0: all */
    double retry_s;
    const struct copies_found *found; /* for copies_begin; NULL: nobody looked */
    const struct remote_options *remote;
};
/* Before the run looks for the newest. Where the newest copy was published later than everything below root, or is
 * whole where the same is damaged here, it is below root afterwards; where that copy is damaged, the next one. A place
 * that cannot be read wholly is a warning where what is below root is known and whole.
 *   fails   ERR_REQUEST: another run's copies; ERR_IO, ERR_CORRUPT: it cannot be known what is there, or none of it can
 *           be used, and nothing here is known to be the newest */
int copies_fetch(const struct copies_config *c, struct copies_found *found, struct err *e);
/* Begins the thread, which copies the newest of root if it is not there. The run has a name now.
 *   fails   ERR_REQUEST: another run's copies are there, or what was published later than anything of this run, so this
 *           run's copies would never be the newest; what cannot be asked is said, and tried again by the thread */
int copies_begin(struct copies **out, const struct copies_config *c, struct err *e);
/* A checkpoint was published. */
void copies_offer(struct copies *x, int64_t step);
/* The step that is being copied, -1 none: for ckpt_info.in_use. */
const atomic_llong *copies_in_use(const struct copies *x);
/* Waits until the newest is copied, or could not be; `at_once`: gives up and says so. NULL is fine. */
void copies_end(struct copies *x, bool at_once);

#endif
