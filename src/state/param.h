/* param.h: the one table of parameters. Models declare rows here; initialisation, placement, gradient norm, clipping,
 * the optimizer, checkpoints and plans all read it.
 *
 * Invariants
 *   1. Names are unique, shapes are global, order of declaration is order in memory: rows that a model wants to use
 *      as one matrix (q, k, v; gate, up) are declared one after the other and share a buffer without padding.
 *   2. The initial value of an element is f(seed, name, global index): the same in every layout.
 * Floors 0-2. Order: Same(mesh).
 */
#ifndef TUTTI_STATE_PARAM_H
#define TUTTI_STATE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "layout/spmd.h"

enum { PARAM_NAME = 64, PARAM_MAX_DIM = 4 };
enum param_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL };

struct param {
    char name[PARAM_NAME];
    int nd;
    int64_t n[PARAM_MAX_DIM]; /* global shape */
    int64_t numel;
    int64_t offset;           /* elements before it in the table */
    enum param_init init;
    double std;               /* INIT_NORMAL */
    bool decay;               /* weight decay applies */
    int layer;                /* which layer it belongs to, -1 none: the unit of gathering and bucketing */
    struct spmd_type type;    /* how compute sees it on the mesh */
};

struct param_table {
    struct param *p;
    int n, room;
    int64_t numel; /* of all */
};
void param_table_free(struct param_table *t);
/* Appends; returns its index. decay follows from nd >= 2 and may be changed in the row. */
int param_add(struct param_table *t, const char *name, int nd, const int64_t *n, enum param_init init, double std,
              int layer, struct spmd_type type);
int param_find(const struct param_table *t, const char *name); /* index or -1 */
/* Writes elements [lo, lo + n) of the parameter's initial value. */
void param_init_fill(const struct param *p, uint64_t seed, int64_t lo, int64_t n, float *out, struct team *team);

#endif
