/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.h: the checkpoints that the last few layouts saved, for others to go on from; in memory that looks like files
 * where the system has some (/dev/shm), else in the directory for temporary files.
 * Floor 11. Order: Local.
 */
#ifndef TUTTI_VERIFY_SHELF_H
#define TUTTI_VERIFY_SHELF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "verify/bounds.h"

enum { SHELF_PLACES = 6 };
struct shelf_place {
    char layout[96];
    char root[128], path[160]; /* where it is saved, and the checkpoint then */
    uint64_t state;            /* hash of what was saved, as arrays of the global shapes */
    struct bounds bounds;      /* of the layout that saved it */
};
struct shelf {
    char dir[96];
    struct shelf_place place[SHELF_PLACES];
    int n; /* filled so far */
};

/* bytes: of one checkpoint, for choosing a disk with room. */
int shelf_open(struct shelf *s, int64_t bytes, struct err *e);
void shelf_close(struct shelf *s);
/* The next place, empty; the oldest goes. Its fields are the caller's to fill, but for root and path. */
int shelf_next(struct shelf *s, int64_t step, struct shelf_place **out, struct err *e);
/* A place that another layout filled; different ones in turn. NULL: there is none. After shelf_next the place that is
 * being filled is not among them. */
const struct shelf_place *shelf_pick(const struct shelf *s, const struct shelf_place *but);

#endif
