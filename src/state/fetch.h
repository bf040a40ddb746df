/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h: parameters that wait in slower memory (array.h: away) come to a slot of their unit before each use, and are
 * forgotten behind it, so that of the weights as many units are in memory as there are slots:
 *
 *     whole here (zero 0 to 2, one rank)       shared out (zero 3)
 *     read      0 1 | 2 | 3 ...                read      0 1 2 | 3 | 4 ...
 *     compute       | 0 | 1 ...                gather          | 1 | 2 ...    after the first, one unit ahead
 *                                              compute         | 0 | 1 ...
 *
 * A whole unit is one copy. Of a unit that is shared out a rank reads its pieces to their place in the slot, and they
 * are gathered there: it is read one unit earlier, so that both travel beside the work. What an optimizer steps goes
 * back by stretches (optim/staging.h). At zero 1 and 2, where ranks step pieces of what each keeps whole, a unit is
 * published through a slot: read, gathered, put back.
 *
 * Invariants
 *   1. All copies run on the array's own stream; a slot is read into after what was enqueued before.
 *   2. Which gatherings begin when follows from the rank's list alone, so it is the same on all ranks of a group.
 * Floors 0-2. Order: as the functions of exchange.h that call these.
 */
#ifndef TUTTI_STATE_FETCH_H
#define TUTTI_STATE_FETCH_H

#include "device/device.h"

struct exchange;

struct fetched {        /* a unit */
    struct event *here; /* what was read of it last */
    int slot;           /* where its pieces were read to and wait to be gathered; -1: they do not */
    int64_t since;      /* fetching.needed when that was read */
};
struct fetching {
    struct fetched *unit;
    int *queue, n_queued; /* units with a slot, in their order */
    int64_t needed;       /* how many units have been waited for */
    struct event *before; /* of a copy */
};

int fetch_init(struct exchange *x, struct err *e); /* nothing where parameters do not wait elsewhere */
void fetch_fini(struct exchange *x);
bool fetch_on(const struct exchange *x);
int fetch_ahead(const struct exchange *x); /* units (schedule/parts.h) */
/* Bytes of a slot beside its unit's, and where a unit begins in it: as it lies in the blocks of a disk. */
size_t fetch_room(const struct exchange *x);
size_t fetch_shift(const struct exchange *x, int unit);

void fetch_gather(struct exchange *x, int unit, int slot);
void fetch_gather_wait(struct exchange *x, int unit); /* behind it: what was gathered has to be waited for, too */
void fetch_publish(struct exchange *x, int unit);

#endif
