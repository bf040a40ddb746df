/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h: a tape becomes a program: instructions for forward, backward for inputs and backward for weights, with every
 * byte placed and a kernel chosen for every row.
 * Order: Local; same on all ranks of a stage. Floors 0-2.
 */
#ifndef TUTTI_TAPE_LOWER_H
#define TUTTI_TAPE_LOWER_H

#include "program/program.h"
#include "tape/recipe.h"
#include "tape/tape.h"

/* Products and the collectives beside them are done in pieces of rows, so that one piece travels while the next is
 * computed (pieces.c). Same on all ranks of the axis. */
struct pieces_rule {
    int most;           /* pieces; 0 or 1: nothing is cut */
    size_t least_bytes; /* of a message, all ranks' rows together */
    int64_t least_rows; /* of a product: fewer waste the packing of its weights, and kernels for few rows add in another
                           order */
};

/* What is kept from F to B is put away meanwhile (offload.c). */
struct away_rule {
    bool on;
    size_t least_bytes; /* of a place: what is smaller stays */
    size_t align;       /* of what is away: 1, or whole blocks of a disk */
};

struct lower_options {
    struct pieces_rule pieces;
    struct away_rule away;
    const struct recipe_rule *recipe; /* NULL: no product has fewer bits than its operands (recipe.c) */
    bool training;                    /* false: F only, nothing is kept */
    /* W is a phase of its own, for products: they are the work that is worth putting off. What would have to be kept
     * for it beyond what F keeps anyway is not put off: gains and biases of norms, embeddings, and products whose input
     * is computed once more, have their gradients in B. Without split_w all weight gradients run inside B. */
    bool split_w;
    /* With split_w: another stage of this rank has the embedding's matrix, too, and its gradients come in between. So
     * the embedding's gradient is made in W, not in B: there it keeps its place in the order of the sums. */
    bool tied;
    /* With split_w: how many microbatches are between F and B, and between F and W, at worst. One slab for both is
     * taken where all slabs together are smaller so; 0: two slabs. */
    int64_t n_act, n_wgrad;
    /* Scratch of a collective beyond the place where a gradient lands before it is added; NULL: none needs any. */
    size_t (*collective_scratch)(const struct kernel_table *kt, const struct kernel_call *c);
};
int tape_lower(struct program **p, const struct tape *t, const struct kernel_table *kt, struct lower_options o,
               struct err *e);

#endif
