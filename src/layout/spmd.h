/* SPDX-License-Identifier: Apache-2.0 */
/* spmd.h: the type of a tensor on the mesh, one letter per axis, and the rules by which operations combine them.
 *
 *   I   invariant    every rank of the axis holds the same values; the gradient is the same on every rank too
 *   R   replicated   every rank holds the same values; each rank's gradient is only its own part of the sum
 *   S0..S3 sharded   rank i holds the i-th piece along that dimension
 *   V   varying      each rank holds other values (its part of the batch); no dimension is named
 *   P   partial      the true value is the sum of what the ranks hold
 *
 * Backward's type is the dual of forward's: I<->I, R<->P, S<->S, V<->V. An operation whose inputs do not fit is
 * refused when it is recorded ("rmsnorm got x partial over tp"), so a forgotten collective is found before the
 * first step, also when every axis has size 1, because types do not depend on sizes.
 *
 * The idea follows the placement types of DTensor and sail-sg/spmd_types. Floor 1; includes base only. Local.
 */
#ifndef TUTTI_LAYOUT_SPMD_H
#define TUTTI_LAYOUT_SPMD_H

#include <stdint.h>

/* The axes of the mesh. Two factorisations of the same ranks: dense (pp, dp_replicate, dp_shard, cp, tp) and
 * expert (pp, edp, ep, etp). Both are always present; most have size 1. */
enum axis { AXIS_PP, AXIS_DP_REPLICATE, AXIS_DP_SHARD, AXIS_CP, AXIS_TP, AXIS_EDP, AXIS_EP, AXIS_ETP, AXIS_N };
const char *axis_name(enum axis a);

enum spmd { SPMD_I, SPMD_R, SPMD_S0, SPMD_S1, SPMD_S2, SPMD_S3, SPMD_V, SPMD_P, SPMD_N };
const char *spmd_name(enum spmd s);
static inline int spmd_is_shard(enum spmd s) { return s >= SPMD_S0 && s <= SPMD_S3; }
enum spmd spmd_dual(enum spmd s);

struct spmd_type {
    uint8_t on[AXIS_N]; /* enum spmd */
};
struct spmd_type spmd_all(enum spmd s); /* the same letter on every axis */
struct spmd_type spmd_with(struct spmd_type t, enum axis a, enum spmd s);
int spmd_equal(struct spmd_type a, struct spmd_type b);
/* "dp_shard:V tp:S1" (axes at I are left out; "I" when all are). out holds 128 chars. */
char *spmd_print(char out[128], struct spmd_type t);
/* Only of axes whose bit (1 << axis) is set; "" when these are all at I. */
char *spmd_print_on(char out[128], struct spmd_type t, unsigned axes);

#endif
