/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_write.h: the folder of the result; for dedup.c only. Order: as stated. */
#ifndef TUTTI_CURATE_DEDUP_WRITE_H
#define TUTTI_CURATE_DEDUP_WRITE_H

#include "base/fs.h"
#include "curate/dedup_impl.h"

struct dedup_folder {
    struct fs_lock lock;
    char *work; /* out/dedup.work */
    char *lock_path;
    bool finished; /* it holds a result: refused, and what a killed run had no time to remove is removed */
};
/* Makes the folder, or takes the one of an interrupted run with this key; any other that holds something is refused.
 * dedup_folder_leave follows whatever came of it. Local: rank 0. */
int dedup_folder_take(struct dedup_folder *f, const char *out, uint64_t key, struct err *e);
void dedup_folder_leave(struct dedup_folder *f, bool done); /* done: and removes the work folder */

/* Writes this rank's units that are not written yet. Local. */
int dedup_write(struct dedup_job *j, struct err *e);
/* Adds up what all units say and writes dedup.json. Local: rank 0. */
int dedup_finish(struct dedup_job *j, struct dedup_result *r, struct err *e);

#endif
