/* SPDX-License-Identifier: Apache-2.0 */
/* readers.h: who reads which bytes of a checkpoint. A file is one more holder of boxes: every byte of it is read once,
 * by one rank, and travels along routes (state/route_run.h) to all that hold it, whichever layout wrote it.
 *
 * A *reading* is what one checksum is about, some 4 MiB of a stored box at most (ckpt_stretch). One of the ranks that
 * hold some of it reads it: of these the one that has the fewest bytes to read so far, then the lowest; where none of
 * them can (the files of a checkpoint in memory lie on several hosts, ckpt_sees), one that can. So what only
 * one rank holds is read where it belongs and does not travel (the same layout; no replicas: reading directly is
 * cheaper), and what many hold is spread evenly over them. Readings are dealt to *rounds* in the order of arrays,
 * parameters, boxes: within a round no rank reads, and none receives, more than READERS_ROUND bytes, or what one
 * reading has.
 *
 * All of it follows from the layouts of the parameters and the checkpoint's manifest, so every rank computes the same
 * and nobody is asked. Cost: time O(readings x holders), memory O(readings). Floor 6. Order: Local; the same on every
 * rank that holds state.
 */
#ifndef TUTTI_ENGINE_READERS_H
#define TUTTI_ENGINE_READERS_H

#include "checkpoint/ckpt.h"
#include "engine/engine.h"

/* READERS_MOST: what reading takes in all, beside the arrays (loading.h). */
enum { READERS_ROUND = 32 << 20, READERS_LEAST = 64 << 10, READERS_MOST = 6 * READERS_ROUND };

struct reading {
    int which, param; /* an array of the store, a parameter */
    int64_t tensor;   /* the checkpoint's */
    int box;          /* of those that it is stored in */
    int64_t lo, n;    /* elements of the box, in its order */
    int reader, round;
    size_t at; /* of its bytes, among those that its reader reads in the round */
};

struct readers {
    struct reading *p; /* by round */
    int64_t n;
    int n_holders, n_rounds;
    int64_t bytes, sent; /* of all: read, and brought to other ranks */
    int64_t *reads;      /* by holder */
};

/* Of arrays on the engine's device, in rounds of so many bytes (READERS_ROUND). The checkpoint was checked
 * (ckpt_check).
 */
void readers_plan(struct readers *r, const struct engine *g, const struct ckpt *c, int64_t round);
void readers_free(struct readers *r);
/* "12.3 MiB, each byte once, at most 3.1 MiB by one of 4 ranks; 36.9 MiB sent in 2 rounds". */
void readers_print(const struct readers *r, struct str *out);

/* Whether an array is loaded this way: it is saved, it is here, and in the memory of the engine's device. */
bool readers_has(const struct engine *g, int which, int param);

/* The boxes that all holders (ranks of the parameters' mesh) have of a parameter's array; the last one asked for is
 * kept. */
struct boxes {
    const struct engine *g;
    int n, which, param;
    struct region *box; /* [n]; empty: nothing */
};
void boxes_open(struct boxes *h, const struct engine *g);
void boxes_close(struct boxes *h);
void boxes_look(struct boxes *h, int which, int param);

#endif
