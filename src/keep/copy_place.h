/* SPDX-License-Identifier: Apache-2.0 */
/* copy_place.h: where copies of checkpoints lie, a folder (another disk, a shared file system) or s3://BUCKET/PREFIX,
 * and what is done there: what it holds, making one, taking one back, removing the oldest. In a folder they are what
 * checkpoints are anywhere; in a bucket the same files are objects PREFIX/step-00000500/NAME, and the manifest, written
 * last, makes one complete. Beside them lies whose they are (copy_owner.h).
 *
 * Invariants
 *   1. What could not be looked at is not "none": copy_held says so, and nothing is written, removed or begun beside
 *      it.
 *   2. Nothing of another run is fetched, written over or removed. Every byte of a copy was read before it has a name.
 *   3. A copy that cannot be read is never written over or removed: it keeps its name, or is moved aside.
 * Floor 8. Order: Local; one thread at a time.
 */
#ifndef TUTTI_KEEP_COPY_PLACE_H
#define TUTTI_KEEP_COPY_PLACE_H

#include "base/held.h"
#include "checkpoint/ckpt.h"
#include "remote/remote.h"
#include "keep/copy_owner.h"

struct copy_place {
    char *to;         /* as it was given, without a slash at its end */
    char *shown;      /* for messages */
    struct remote *r; /* NULL: a folder */
    uint64_t session; /* of this process, in what it says of itself there; 0: not said yet */
};

/* ERR_REQUEST: an address that cannot be written to. No request is made. Close it in any case. */
int copy_place_open(struct copy_place *p, const char *to, const struct remote_options *o, struct err *e);
void copy_place_close(struct copy_place *p);

/* -- what it holds ----------------------------------------------------------------------------------------------- */

struct copy_held {
    enum held what;
    struct err why;            /* of HELD_UNKNOWN */
    struct ckpt_listing *list; /* all copies, the last published at the end; of a store, path is its address */
    int n;
    const struct ckpt_listing *newest; /* that can be used; NULL: none can */
    bool owned;                        /* the record of whose it is was read: */
    struct copy_owner owner;
    struct remote_list objects; /* of a store */
};
/* Reads what is there, all manifests and the sizes of all files. Of copies that are damaged nothing is unknown where
 * another one can be used; they are in the list, with their problem. beside (may be NULL): a checkpoint that is whole
 * and here, so that what is certainly older is no reason to stop.
 *   HELD_UNKNOWN   the place, its owner or a manifest could not be read; a copy is of a newer tutti, and may be the
 *                  newest; all are damaged; the list lacks what was copied last; ERR_SIGNAL */
void copy_place_look(struct copy_place *p, const struct ckpt_listing *beside, struct copy_held *h);
void copy_held_free(struct copy_held *h);

/* Who asks. */
struct copy_self {
    uint64_t run;                   /* 0: it has no name yet */
    const char *dir;                /* run.dir, absolute */
    const struct ckpt_listing *own; /* what its own disk has, damaged ones too */
    int n_own;
    bool takes; /* a person said that it goes on from whatever run is there (checkpoint.resume: copy) */
};
/* Whether what was read of the place is this run's: by its owner, by the name in every manifest; without a name (of an
 * older tutti) by one that is the same here. A run without a name and without checkpoints is the owner that lost its
 * disk, if its directory has the same path. *run: whose it is then; 0: nobody's.
 *   fails   ERR_REQUEST: another run's */
int copy_held_ours(const struct copy_place *p, const struct copy_held *h, const struct copy_self *me, uint64_t *run,
                   struct err *e);

/* -- making one -------------------------------------------------------------------------------------------------- */

struct copy_put {
    struct copy_self me;   /* with its name */
    const char *from;      /* the checkpoint's directory */
    int keep;              /* then the oldest but so many of this run go; 0: none */
    const int64_t *passed; /* steps of copies that were read and found damaged, and are later than what the run went on
                              from: they are moved aside */
    int n_passed;
};
/* Every byte is compared with its checksum before it leaves; files that the place's newest has, too, are copied or
 * linked there when they were read there and are the same. The first time, what a process of this run that was killed
 * had begun there and not ended is given up. *made: it was written; false: it was there.
 *   fails   ERR_IO, ERR_SIGNAL; what copy_place_look says of an unknown place; ERR_REQUEST: another run's, or another
 *           process's by now */
int copy_place_put(struct copy_place *p, const struct copy_put *put, bool *made, struct err *e);

/* -- taking one back --------------------------------------------------------------------------------------------- */

/* The copy of that step as a published checkpoint of root: it gets its name there when every byte of it has arrived and
 * has its checksum.
 *   fails   ERR_CORRUPT: this copy is damaged; else as reading and writing do */
int copy_place_take(struct copy_place *p, int64_t step, const char *root, struct err *e);

#endif
