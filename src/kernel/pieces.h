/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h: which rows of a call of the state spaces' rows (attrs.h) follow each other in a sequence, and where
 * documents begin among them: for shapes, costs and every kernel family.
 *
 * A piece is a run of rows whose places in their sequence follow each other: a whole sequence, or what a part has of
 * its head or of its tail. Pieces may be empty. Floors 0-1 and kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_PIECES_H
#define TUTTI_KERNEL_PIECES_H

#include "kernel/kernel.h"
#include "layout/sequence.h"

struct row_piece {
    int64_t sequence, place; /* of its first row */
    int64_t row, n;          /* its rows here */
};

static inline int64_t pieces_each(const struct sequence_rows *a) { return a->parts > 1 ? 2 : 1; }
static inline int64_t pieces_all(const struct sequence_rows *a) { return a->batch * pieces_each(a); }
static inline int64_t pieces_rows(const struct sequence_rows *a)
{
    return a->batch * context_rows(a->seq, a->parts, a->part, 1);
}

static inline struct row_piece piece_at(const struct sequence_rows *a, int64_t i)
{
    int64_t each = context_rows(a->seq, a->parts, a->part, 1), b = i / pieces_each(a), lo = 0, hi = a->seq, before = 0;
    if (a->parts > 1) context_chunk(a->seq, a->parts, a->part, false, &lo, &hi);
    if (i % pieces_each(a)) {
        before = hi - lo;
        context_chunk(a->seq, a->parts, a->part, true, &lo, &hi);
    }
    return (struct row_piece){b, lo, b * each + before, hi - lo};
}

/* Whether nothing before row i of the piece counts for it: it is the first of its sequence, or of its document. docs:
 * of all tokens of the microbatch in order; p NULL: there is none but the sequence. */
static inline bool piece_begins(const struct sequence_rows *a, const struct view *docs, const struct row_piece *p,
                                int64_t i)
{
    const int32_t *id = (const int32_t *)docs->p;
    int64_t at = p->sequence * a->seq + p->place + i;
    return p->place + i == 0 || (id && id[at] != id[at - 1]);
}

/* Rows before row i, at most `most`, that count for it. */
static inline int64_t piece_reach(const struct sequence_rows *a, const struct view *docs, const struct row_piece *p,
                                  int64_t i, int64_t most)
{
    int64_t n = 0;
    while (n < most && !piece_begins(a, docs, p, i - n)) n++;
    return n;
}

#endif
