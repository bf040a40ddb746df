/* SPDX-License-Identifier: Apache-2.0 */
/* layout_books.h: what a rank holds, read off its own tables; of as many ranks as are asked for. Private to cli/.
 *
 * A rank is made on the null device as far as its paper goes (engine_new_paper): the box of each parameter that it
 * computes with (param.h), the rows that its optimizer keeps (units.h), the sequences and positions of its part of the
 * batch. Nothing here knows what a parallelism is.
 * Floor 11. Order: Local.
 */
#ifndef TUTTI_EXPLAIN_LAYOUT_BOOKS_H
#define TUTTI_EXPLAIN_LAYOUT_BOOKS_H

#include "engine/engine.h"
#include "site/site.h"

struct book {
    int rank;
    struct param *p;     /* [n_params of the library] */
    struct piece *piece; /* the same */
    bool param_whole, state_whole;
    bool computes, keeps; /* a server does not, its workers do not */
    int at[AXIS_N], part, server;
    int64_t first_seq, n_seqs; /* of the batch */
    int64_t positions;         /* of each of these */
    double held, kept;         /* elements in all */
};

struct library {
    const struct config *c;
    int n, n_params, n_workers;
    struct mesh mesh;
    struct book **book; /* in the order of asking: borrowed ones stay where they are */
    int n_books, room;
    struct stage_kind { /* [pp]: what the stages on a pipeline rank are made of */
        int dense, moe, embeds, heads;
    } * on_pipe;
};

void library_init(struct library *l, const struct config *c, int n_ranks);
void library_free(struct library *l);
/* Looked up or made. */
int library_get(struct library *l, int rank, const struct book **out, struct err *e);
/* unlike[c] for coordinates of an axis of the dense view: whether ranks at c hold other amounts (by more than 1 %) than
 * those at c - 1. Where parts along an axis only shrink (or grow), comparing ends and halving finds every change; along
 * tp, and where experts do not come out even, every coordinate is looked at; of pp, the stages are compared. [size of
 * the axis]. */
int library_unlike(struct library *l, enum axis a, bool *unlike, struct err *e);
/* The same for servers: [n_servers]. */
int library_unlike_servers(struct library *l, bool *unlike, struct err *e);

/* Elements of a parameter whose state a rank keeps: [*lo, *lo + n) of its box. */
int64_t book_kept(const struct book *b, int param, int64_t *lo);

#endif
