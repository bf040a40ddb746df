/* SPDX-License-Identifier: Apache-2.0 */
/* layout_fold.h: which ranks of a layout a picture draws, and what it says of the others. On paper.
 *
 * All of them while there is room; else along each axis the first, where ranks begin that are unlike those before, and
 * as many besides as there is room for (the second, the last). Everything between is folded into bands of whole groups.
 *
 * Invariant: items in their order cover the ranks without a gap, each once.
 * Floor 11; includes base only. Order: Local.
 */
#ifndef TUTTI_EXPLAIN_LAYOUT_FOLD_H
#define TUTTI_EXPLAIN_LAYOUT_FOLD_H

#include <stdbool.h>

enum { FOLD_ROOM = 16, FOLD_AXES = 8 }; /* ranks drawn at most; axes at most */

struct fold_axis {
    int size, stride;
    bool data;          /* ranks along it have other tokens and the same model: folded before others */
    const bool *unlike; /* [size]: unlike the coordinate before; [0] is not read */
};

struct fold_item {
    int first, last; /* ranks */
    int axis;        /* that was folded; -1: one rank, drawn */
    int groups;      /* folded: so many, of the axis' stride */
    bool alike;      /* folded: they are like the group before the first of them */
};

struct layout_fold {
    struct fold_item *item;
    int n, room, drawn;
};

/* Axes from the outermost inwards: rank = first + sum of coordinate x stride. Draws `room` ranks or fewer. Appends. */
void fold_add(struct layout_fold *f, const struct fold_axis *axes, int n_axes, int first, int room);
void fold_free(struct layout_fold *f);

#endif
