/* SPDX-License-Identifier: Apache-2.0 */
/* param.h: the one table of parameters. Models declare rows here; initialisation, placement, gradient norm, clipping,
 * the optimizer, checkpoints and plans all read it.
 *
 * Every rank declares the whole model and says which box of each parameter it holds for computing: all of it, its part
 * along tp (some rows or some columns), or nothing (a layer of another stage, an expert of another rank).
 *
 * Invariants
 *   1. Names are unique (CHECKed), shapes are global, order of declaration is order in memory: rows that a model wants to use
 *      as one matrix (q, k, v; gate, up) are declared one after the other and share a buffer without padding.
 *   2. The initial value of an element is f(seed, name, global index): the same in every layout.
 *   3. What a rank holds of a parameter is one box, row-major and dense in memory; offsets count held elements.
 *   4. A parameter that is R on an axis has a gradient that is a sum over the axis (state/exchange.h adds it up); one
 *      that is I or S has not.
 * Floors 0-2. Order: Same(mesh).
 */
#ifndef TUTTI_STATE_PARAM_H
#define TUTTI_STATE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "layout/region.h"
#include "layout/spmd.h"

enum { PARAM_NAME = 64, PARAM_MAX_DIM = 4 };
enum param_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL };
/* What an optimizer is chosen for. Vectors have one dim; embeddings are the tables at both ends, which are matrices of no layer. */
enum param_group { PARAM_MATRICES, PARAM_EMBEDDINGS, PARAM_VECTORS, PARAM_GROUPS };
enum { PARAM_ALL_GROUPS = (1 << PARAM_GROUPS) - 1 };

struct param {
    char name[PARAM_NAME];
    int nd;
    int64_t n[PARAM_MAX_DIM]; /* global shape */
    int64_t numel;
    int64_t lo[PARAM_MAX_DIM], ln[PARAM_MAX_DIM]; /* the box held here: from lo, ln long */
    int64_t held;             /* its elements */
    int64_t offset;           /* held elements before it in the table */
    bool expert;              /* summed and shared out over edp, not over the dense data axes (units.h) */
    bool counted;             /* this rank is the one of its replicas along tp and pp that counts it in norms and saves it */
    enum param_init init;
    double std;               /* INIT_NORMAL */
    bool decay;               /* weight decay applies */
    enum param_group group;
    bool stepped;             /* by the optimizer; false: it has no gradient, somebody else moves it (run/balance.h) */
    int layer;                /* which layer it belongs to, negative none; neighbours with one number are the unit of
                               * gathering and bucketing */
    struct spmd_type type;    /* how compute sees it on the mesh */
};

struct param_table {
    struct param *p;
    int n, room;
    int *bucket, n_buckets; /* rows by name: index + 1, 0 where free (param.c) */
    int64_t numel; /* of all */
    int64_t held;  /* on this rank */
};
void param_table_free(struct param_table *t);
/* Appends; returns its index. decay and group follow from nd and layer, it is stepped; all may be
 * changed in the row. */
int param_add(struct param_table *t, const char *name, int nd, const int64_t *n, enum param_init init, double std,
              int layer, struct spmd_type type);
/* The parameter added last is held here along this dim only from lo, n long (0: nothing of it is here). */
void param_hold(struct param_table *t, int dim, int64_t lo, int64_t n);
/* Nothing is here of the parameters with drop[i] (they belong to other pipeline stages); what lies behind them moves up. One pass over
 * the table, so drop all at once. */
void param_drop(struct param_table *t, const bool *drop);
/* Rows [first, first + n) of the held box as a box of the global parameter. */
struct region param_rows(const struct param *p, int64_t first, int64_t n);
int64_t param_row_numel(const struct param *p); /* held elements per row; 1 where nothing is held */
int param_find(const struct param_table *t, const char *name); /* index or -1; by hash */
/* Writes elements [lo, lo + n) of the initial value of what is held here. */
void param_init_fill(const struct param *p, uint64_t seed, int64_t lo, int64_t n, float *out, struct team *team);

#endif
