/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h: WHERE. On which ranks every number of a tensor lives.
 *
 * A layout is a global shape, the axes of one view of the mesh, and a letter per axis (spmd.h). The box of the global
 * tensor that a rank holds follows from its coordinates and from nothing else.
 *
 *   [50257, 768] tp:S0 dp_shard:R         rows over tp; every dp_shard rank has the same
 *   [50257, 768] tp:S0 dp_shard:S0        rows over tp, then each piece again over dp_shard
 *   [768] pp{0,3}:P dp_shard:P            on pipeline ranks 0 and 3 only; the sum over them and over dp_shard is owed
 *   [4096, 768] tp:S0*64                  rows over tp, 64 of a head always together
 *   [2048, 768] ep{2}:I edp:R             on rank 2 of ep only: the matrix of one expert
 *
 * Invariants
 *   1. Splitting order. Several axes may split one dim: the piece is cut by the axis that was given its S first, and
 *      that piece by the next. Axes are printed in that order.
 *   2. Any remainder is legal (region_split), empty pieces too.
 *   3. The axes multiply to the number of ranks: each rank has one coordinate on each.
 *   4. pp may be restricted to some of its coordinates (a stage's parameters; tied embeddings on two), and an axis of
 *      copies to one (the ranks that have an expert). Ranks at other coordinates hold nothing, and S over pp counts the
 *      named ones only.
 *   5. A cut may keep neighbours together (`unit` indices: the rows of a head); what it cuts is whole units.
 *
 * Values, not pointers: pass and return by value or by const pointer, compare with layout_equal.
 * Floor 1; includes base only. Order: Local; the same arguments give the same layout on every rank.
 */
#ifndef TUTTI_LAYOUT_LAYOUT_H
#define TUTTI_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "layout/mesh.h"
#include "layout/region.h"
#include "layout/shape.h"
#include "layout/spmd.h"

#define LAYOUT_MAX_PLACES 8
#define LAYOUT_MAX_ONLY 4

struct layout_place {
    struct mesh_axis on;
    enum spmd type;
    int owner;    /* c + 1: only coordinate c of `on` holds the tensor; 0: all do */
    int64_t unit; /* S: pieces are whole numbers of so many indices; 0 is 1 */
};

struct layout {
    struct shape shape; /* global */
    int n_ranks;
    int n_places;
    struct layout_place place[LAYOUT_MAX_PLACES]; /* in splitting order */
    int n_only;                                   /* 0: every pp coordinate holds it */
    int only[LAYOUT_MAX_ONLY];                    /* pp coordinates, ascending */
};

/* ---- create ---------------------------------------------------------------------------------------------- */

/* All axes of the view at type t (SPMD_I or SPMD_R as a rule). */
struct layout layout_on(const struct mesh *m, enum mesh_view v, struct shape shape, enum spmd t);
/* l with axis a (whole) at type t. A new S cuts what the axes before left: it goes to the end of the order. */
struct layout layout_with(struct layout l, enum axis a, enum spmd t);
/* The same for S, in pieces of whole units; CHECKs that what is cut has no rest. */
struct layout layout_with_unit(struct layout l, enum axis a, enum spmd t, int64_t unit);
/* l with axis a replaced by two factors of types outer and inner: layout_with_factor(l, AXIS_TP, 2, S0, R). */
struct layout layout_with_factor(struct layout l, enum axis a, int n_outer, enum spmd outer, enum spmd inner);
/* l with a and b, whole axes of which b is the next inner one, taken as one axis at type t. A new S goes to the end of
 * the order. */
struct layout layout_with_joined(struct layout l, enum axis a, enum axis b, enum spmd t);
/* l held by these pp coordinates only. */
struct layout layout_hold_on(struct layout l, const int *pp, int n);
/* l held by this coordinate of a (whole) only, along which it is I or R. */
struct layout layout_hold_at(struct layout l, enum axis a, int coord);

/* ---- inspect --------------------------------------------------------------------------------------------- */

bool layout_equal(const struct layout *a, const struct layout *b); /* the same letters in the same order */
/* Fails with ERR_REQUEST where an S names a dim the tensor lacks, an axis is missing or twice, a holder is out of
 * range: for layouts that come from files and configs. */
int layout_check(const struct layout *l, struct err *e);
enum spmd layout_type(const struct layout *l, enum axis a); /* of a whole axis; I where the view lacks it */
struct spmd_type layout_spmd(const struct layout *l);       /* whole axes only; factored ones as S if any factor is */
bool layout_has(const struct layout *l, enum spmd t);

bool layout_holds(const struct layout *l, int rank); /* false: the rank has no part in it */
/* The box of a rank (may be empty); CHECKs layout_holds. For V: the whole of what V does not name. */
struct region layout_box(const struct layout *l, int rank);
/* Along the dim that the last place of l cuts: how much of it each rank of that axis has which is otherwise where
 * `rank` is, in the axis's order. CHECKs that it cuts. Returns how many; out may be NULL. */
int layout_last_cut(const struct layout *l, int rank, int64_t *out);
/* True on exactly one of the ranks that hold copies of the same values (the lowest): what norms and checkpoints count
 * once. Axes at V and P hold different values and each count. */
bool layout_is_first(const struct layout *l, int rank);
/* Ranks whose box contains `box`, ascending; returns how many. out (may be NULL) holds n_ranks. */
int layout_holders(const struct layout *l, const struct region *box, int *out);
/* The sizes of the sums owed: product of the P axes (1: none). */
int layout_n_terms(const struct layout *l);

/* "[50257, 768] tp:S0 dp_shard:R"; axes at I are left out. */
void layout_print(const struct layout *l, struct str *out);
/* The same without the shape: "tp:S0 dp_shard:R", or "" where all axes are at I. */
void layout_print_places(const struct layout *l, struct str *out);

#endif
