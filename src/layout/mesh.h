/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.h: the ranks as a grid. Pure arithmetic: an axis is (name, size, stride) over rank numbers.
 *
 *   dense view    rank = (((pp * DPR + dp_replicate) * DPS + dp_shard) * CP + cp) * TP + tp
 *   expert view   rank = ((pp * EDP + edp) * EP + ep) * ETP + etp
 *
 * Both are factorisations of the same ranks and share pp. Innermost axes are neighbours: put the axis that talks
 * most (tp) inside a machine. Any axis can be factored further: KV heads that are fewer than tp are sharded over
 * the outer factor of tp and replicated over the inner one (tp 8 = 2 sharded x 4 replicated).
 *
 * The mesh knows no communicator: a group is a list of ranks.
 * Floor 1; includes base only. Order: Local; the same arguments give the same mesh on every rank.
 */
#ifndef TUTTI_LAYOUT_MESH_H
#define TUTTI_LAYOUT_MESH_H

#include "base/err.h"
#include "base/str.h"
#include "layout/spmd.h"

enum mesh_view { MESH_DENSE, MESH_EXPERT };
#define MESH_VIEW_MAX 5 /* axes of a view */

struct mesh {
    int n_ranks;
    int size[AXIS_N], stride[AXIS_N];
};

/* An axis, or a factor of one: coordinate = rank / stride % size. */
struct mesh_axis {
    enum axis axis;
    int size, stride;
    int of;  /* size of the whole axis; of == size: this is the whole axis; of < size: with the next inner axis
                (mesh_axis_join) */
    int div; /* coordinate on this factor = (coordinate on the axis) / div % size */
};

/* degrees[a] is the size of axis a; -1 is what is left, once among pp, dp_replicate, dp_shard, cp, tp and once among
 * edp, ep, etp. Fails with ERR_REQUEST and the nearest legal values when the products are not n_ranks. */
int mesh_init(struct mesh *m, int n_ranks, const int degrees[AXIS_N], struct err *e);
struct mesh mesh_single(void); /* one rank, all axes of size 1 */

/* The axes of a view, outermost first; returns how many. */
int mesh_view_axes(enum mesh_view v, enum axis out[MESH_VIEW_MAX]);
int mesh_coord(const struct mesh *m, enum axis a, int rank);
/* The rank at coord[a] for the axes a of the view; the others are not read. */
int mesh_rank(const struct mesh *m, enum mesh_view v, const int coord[AXIS_N]);

struct mesh_axis mesh_axis(const struct mesh *m, enum axis a);
int mesh_axis_coord(struct mesh_axis a, int rank);
/* Factors a into outer (size n_outer) and inner; CHECKs that it divides. */
void mesh_axis_factor(struct mesh_axis a, int n_outer, struct mesh_axis *outer, struct mesh_axis *inner);
/* Outer and the axis next inside it as one; CHECKs that they are neighbours. Where either has size 1, the other. */
struct mesh_axis mesh_axis_join(struct mesh_axis outer, struct mesh_axis inner);
/* "tp", "dp_shard+" (joined with the axis inside it), "tp/4" (outer factor), "tp%4" (inner factor), "tp/2%2"; out holds
 * 48 chars. */
char *mesh_axis_print(char out[48], struct mesh_axis a);

/* Ranks that differ from `rank` along these axes only, itself included. The first axis is outermost: out[0] has
 * coordinate 0 on all of them. Returns the product of sizes; out (may be NULL) holds as many. */
int mesh_group(const struct mesh_axis *axes, int n_axes, int rank, int *out);
int mesh_group_at(const struct mesh_axis *axes, int n_axes, int rank, int i); /* out[i] alone */

/* "8 ranks: dp_shard 2 x tp 4; experts: edp 8" (axes of size 1 left out; experts: whether there are any). */
void mesh_print(const struct mesh *m, bool experts, struct str *out);

#endif
