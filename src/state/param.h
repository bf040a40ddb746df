/* SPDX-License-Identifier: Apache-2.0 */
/* param.h: the one table of parameters. Models declare rows here; initialisation, placement, gradient norm, clipping,
 * the optimizer, checkpoints and plans all read it.
 *
 * Every rank declares the whole model. A row is a layout on the mesh (layout/layout.h): which ranks hold which box of
 * the parameter for computing, and which of them hold the same. What a rank holds follows from its number and is
 * written down beside: all of it, its part along tp (some rows or some columns), or nothing (a layer of another stage,
 * an expert of another rank).
 *
 *   most parameters     the dense view; R over dp_replicate, dp_shard and cp, along tp whatever the layer says, pp as
 *                       stages have it
 *   experts             the expert view; R over edp (in two factors where there are replicas), on one coordinate of ep,
 *                       cut over etp
 *
 * The ranks among which a parameter is R over dp_shard and cp (of an expert: over edp's inner factor) share out its
 * state: the layout in which it is stepped (param_stepped) cuts the rows of every held box once more over them.
 *
 * Invariants
 *   1. Names are unique (CHECKed), shapes are global, order of declaration is order in memory: rows that a model wants
 *      to use as one matrix (q, k, v; gate, up) are declared one after the other and share a buffer without padding.
 *   2. The initial value of an element is f(seed, name, global index): the same in every layout.
 *   3. What a rank holds of a parameter is one box, row-major and dense in memory; offsets count held elements.
 *   4. lo, ln, held, offset, expert, counted and type are functions of the layout and of the table's rank; nobody else
 *      writes them.
 *   5. A parameter that is R on an axis has a gradient that is a sum over the axis (state/exchange.h adds it up); one
 *      that is I or S has not.
 * Floors 0-2. Order: Same(mesh).
 */
#ifndef TUTTI_STATE_PARAM_H
#define TUTTI_STATE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "layout/layout.h"
#include "layout/packing.h"

enum { PARAM_NAME = 64, PARAM_MAX_DIM = 4 };
/* DECAY: the log of a number drawn evenly from [1, 16]; STEP: what softplus makes a step of, drawn evenly by its log
 * from [0.001, 0.1] (Dao and Gu 2024's code). */
enum param_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_DECAY, INIT_STEP, INIT_N };
/* What an optimizer is chosen for. Vectors are all that has no rows and columns to it (param_group.h); embeddings are
 * the tables at both ends, which are matrices of no layer. */
enum param_group { PARAM_MATRICES, PARAM_EMBEDDINGS, PARAM_VECTORS, PARAM_GROUPS };
enum { PARAM_ALL_GROUPS = (1 << PARAM_GROUPS) - 1 };

struct param {
    char name[PARAM_NAME];
    int nd;
    int64_t n[PARAM_MAX_DIM]; /* global shape */
    int64_t numel;
    struct layout layout; /* who computes with which box of it */
    enum param_init init;
    double std; /* INIT_NORMAL */
    bool decay; /* weight decay applies */
    enum param_group group;
    int owner; /* c + 1: coordinate c of the ranks that share out its state steps all of it (own.h); 0: each its rows */
    bool stepped; /* by the optimizer; false: it has no gradient, somebody else moves it (engine/balance.h) */
    bool adapter; /* of an adapter, beside a matrix of the model (nn/adapter.h) */
    bool frozen;  /* nobody moves it: no gradient, no master, nothing of an optimizer; its unit has only such */
    /* Frozen, and kept in few bits (packed.h): its numbers exist in a slot of its unit, while it is used. */
    bool packed;
    int layer; /* which layer it belongs to, negative none; neighbours with one number are the unit of gathering and
                  bucketing */
    /* What follows for the table's rank (param_place): */
    int64_t lo[PARAM_MAX_DIM], ln[PARAM_MAX_DIM]; /* the box held here: from lo, ln long */
    int64_t held;                                 /* its elements */
    int64_t offset;                               /* held elements before it in the table */
    bool expert;  /* summed and shared out over edp, not over the dense data axes (units.h) */
    bool counted; /* this rank is the one of its replicas along tp and pp that counts it in norms and saves it */
    struct spmd_type type; /* how compute sees it on the mesh */
};

struct param_table {
    struct param *p;
    int n, room;
    int *bucket, n_buckets; /* rows by name: index + 1, 0 where free (param.c) */
    int64_t numel;          /* of all */
    struct mesh mesh;       /* of all layouts; zeros: one rank */
    int rank;               /* whose boxes are written down */
    int64_t held;           /* on this rank */
    enum packing packing;   /* of those that are packed */
};
void param_table_free(struct param_table *t);
/* Appends; returns its index. decay and group follow from nd and layer, it is stepped; all may be
 * changed in the row. */
int param_add(struct param_table *t, const char *name, struct layout l, enum param_init init, double std, int layer);
/* All of it on one rank. */
struct layout param_alone(int nd, const int64_t *n);
/* Layouts were changed, or `rank` asks: what every row says about a rank is worked out anew. */
void param_place(struct param_table *t, int rank);
/* The layout in which the ranks that share out its state step it; its last place is theirs. */
struct layout param_stepped(const struct param *p);
/* Rows [first, first + n) of the held box as a box of the global parameter. */
struct region param_rows(const struct param *p, int64_t first, int64_t n);
int64_t param_row_numel(const struct param *p);                /* held elements per row; 1 where nothing is held */
int param_find(const struct param_table *t, const char *name); /* index or -1; by hash */
/* Writes elements [lo, lo + n) of the initial value of what is held here. */
void param_init_fill(const struct param *p, uint64_t seed, int64_t lo, int64_t n, float *out, struct team *team);

#endif
