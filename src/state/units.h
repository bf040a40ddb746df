/* SPDX-License-Identifier: Apache-2.0 */
/* units.h: how the table of parameters is cut: into units that travel together, and each parameter into the pieces that
 * data-parallel ranks own. On paper only.
 *
 * Parameters of experts that ranks of ep hold a part of are shared out over other ranks than the rest: those that hold
 * the same experts (edp). They are units of their own.
 *
 * A unit is a stretch of the table with one layer number: a transformer block, the embeddings, the head. It is what is
 * gathered before use, and what is reduced as soon as its last gradient is there.
 *
 * The piece of a rank is its box in the layout in which the parameter is stepped (param_stepped): rows of the box held
 * here, any remainder, empty pieces too; of a matrix that is owned (own.h) all that is held here, or nothing. Pieces of
 * one rank, in the table's order, make up its shard.
 *
 * Invariants
 *   1. The pieces of all ranks tile each parameter, in rank order; a piece is contiguous in the parameter.
 *   2. A shard holds its pieces without padding: shard elements = sum of piece elements.
 * Source: ZeRO (Rajbhandari et al. 2020) for what is shared; FSDP2 for cutting each parameter along dim 0 instead of
 * flattening them together. Floors 0-1. Order: Same(table).
 */
#ifndef TUTTI_STATE_UNITS_H
#define TUTTI_STATE_UNITS_H

#include "state/param.h"

struct unit {
    int first, n;                      /* parameters [first, first + n) */
    int64_t offset, numel;             /* held elements: where it begins, how many */
    int64_t shard_offset, shard_numel; /* the same in this rank's shard */
    bool frozen;                       /* all of it: gathered, never reduced, stepped or published */
    bool packed;                       /* some of it (param.h): it is used in a slot, in every layout */
};

struct piece {
    int64_t lo, n;  /* elements of the held box: [lo, lo + n) */
    int64_t offset; /* in this rank's shard */
};

struct units {
    const struct param_table *table; /* borrowed */
    bool shared;
    int n_ranks, n_expert_ranks; /* that share out a parameter, and one with `expert`; 1: none do */
    struct unit *unit;
    int n;
    int *of_param;       /* parameter -> unit */
    struct piece *piece; /* by parameter: this rank's */
    int64_t shard_numel, largest_unit;
    int64_t largest_moved, largest_moved_shard; /* of the units that are not frozen */
};

/* shared: state is shared out as the layouts say; else each rank steps, or keeps for who does, all that it holds. */
void units_init(struct units *u, const struct param_table *t, bool shared);
void units_fini(struct units *u);
/* Elements of every rank's piece of a parameter; out holds as many as there are. */
void units_counts(const struct units *u, int param, int64_t *out);

#endif
