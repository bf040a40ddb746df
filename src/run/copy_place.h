/* SPDX-License-Identifier: Apache-2.0 */
/* copy_place.h: where copies of checkpoints lie, a folder (another disk, a shared file system) or s3://BUCKET/PREFIX,
 * and what is done there: which there are, making one, taking one back, removing the oldest. In a folder they are what
 * checkpoints are anywhere; in a bucket the same files are objects PREFIX/step-00000500/NAME, and the manifest, written
 * last, makes one complete. Floor 8. Order: Local; one thread at a time.
 */
#ifndef TUTTI_RUN_COPY_PLACE_H
#define TUTTI_RUN_COPY_PLACE_H

#include "checkpoint/ckpt.h"
#include "remote/remote.h"

struct copy_place {
    char *to;         /* as it was given, without a slash at its end */
    char *shown;      /* for messages */
    struct remote *r; /* NULL: a folder */
};

/* ERR_REQUEST: an address that cannot be written to. No request is made. Close it in any case. */
int copy_place_open(struct copy_place *p, const char *to, const struct remote_options *o, struct err *e);
void copy_place_close(struct copy_place *p);

struct copy_at {               /* a complete copy */
    int64_t step, publication; /* -1: there is none */
    uint64_t hash;             /* of its manifest's bytes */
};
/* The one that was published last. Of what is not complete nothing is said: it is being written, or was left. */
int copy_place_newest(struct copy_place *p, struct copy_at *newest, struct err *e);
/* The checkpoint in directory `from`, every byte compared with its checksum before it leaves; files that the place's
 * newest has, too (by all their checksums), are copied or linked there. Then the oldest but `keep` go (0: none).
 * *made: it was written; false: its newest is this very one. */
int copy_place_put(struct copy_place *p, const char *from, int keep, bool *made, struct err *e);
/* What a process that was killed had begun there and not ended is given up; what cannot be is said. */
void copy_place_tidy(struct copy_place *p);
/* The copy of that step as a published checkpoint of root. */
int copy_place_take(struct copy_place *p, int64_t step, const char *root, struct err *e);

#endif
