/* SPDX-License-Identifier: Apache-2.0 */
/* layout_canvas.h: what the parts of a picture of a layout share: where columns stand, and how a box is drawn. Private
 * to explain/layout_*.c. Floor 11. Order: Local. */
#ifndef TUTTI_EXPLAIN_LAYOUT_CANVAS_H
#define TUTTI_EXPLAIN_LAYOUT_CANVAS_H

#include "base/str.h"
#include "explain/layout_books.h"
#include "explain/layout_fold.h"

enum { CANVAS_BOX = 74 }; /* the width of a column's boxes, in pixels */
#define CANVAS_HELD "#8ecae6"
#define CANVAS_KEPT "#1d6fa5"
#define CANVAS_NOTHING "#f3f3f3"

struct canvas {
    const struct config *c;
    struct library books;
    struct layout_fold fold;
    const struct book **rank; /* [fold.drawn]: the ranks drawn, ascending */
    int *x;                   /* [fold.drawn]: where each has its column */
    int y, width;
    struct str *out;
};

void canvas_box(struct canvas *v, double x, double y, double w, double h, const char *fill);
void canvas_frame(struct canvas *v, double x, double y, double w, double h);
/* At the left of a row: a name, and in grey what is to be said of it. */
void canvas_label(struct canvas *v, int y, const char *name, const char *more);
void canvas_heading(struct canvas *v, const char *text, const char *more);
/* A part of a box that is there is seen, however small it is. */
static inline double canvas_seen(double size) { return size > 0 && size < 1.2 ? 1.2 : size; }
const char *canvas_fill(const struct book *b); /* of what it computes with */

/* Parameters, one layer of each kind, experts that lie alike in one row (layout_params.c). */
void canvas_params(struct canvas *v);

#endif
