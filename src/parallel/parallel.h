/* parallel.h: collectives as operations on the tape. A layer says where the type of a tensor changes on an axis; the
 * change tells the collective, its conjugate in backward, and, on an axis of size 1, that the memory is the same.
 *
 *   call           forward      collective      backward     (conjugate)
 *   par_enter      I -> R       none            P -> I       all-reduce     ("f" of Megatron-LM)
 *   par_reduce     P -> I       all-reduce      I -> R       none           ("g" of Megatron-LM)
 *
 * Layers call these in every layout: the types are checked also where the axis has size 1, so a forgotten one is an
 * error on a single rank. Floors 0-3. Order: Collective over the axis when the program runs.
 */
#ifndef TUTTI_PARALLEL_PARALLEL_H
#define TUTTI_PARALLEL_PARALLEL_H

#include "tape/tape.h"

/* Ranks along each axis; this rank's coordinate. */
struct par {
    int size[AXIS_N];
    int rank[AXIS_N];
};
struct par par_single(void); /* one rank */

tid par_enter(struct tape *t, const struct par *p, tid x, enum axis a);
tid par_reduce(struct tape *t, const struct par *p, tid x, enum axis a);

#endif
