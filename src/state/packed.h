/* SPDX-License-Identifier: Apache-2.0 */
/* packed.h: frozen matrices in few bits (QLoRA, Dettmers et al. 2023). They have no weights and no master: what is
 * kept, saved and shared out are codes and scales (layout/packing.h), rows of the store's table like all others. Their
 * numbers exist in a slot of their unit, in the type that is computed in, from before the first use in a phase until
 * after the last (exchange.h); so of all matrices as many are numbers at a time as there are slots.
 *
 *   row            of            holds
 *   base_codes     row block 2   two codes a byte; int8: row block, one
 *   base_scales    row block     a byte for each block
 *   base_groups    groups        nf4: fp32 for each group of scales, and their mean; on every holder
 *
 * Invariants
 *   1. What is packed depends on the matrix's numbers alone, not on the layout.
 *   2. At zero 3 a rank has the codes of its pieces, makes numbers of them and sends these: what travels is as many
 *      bytes as of weights that are not packed.
 * Floors 0-2. Order: Local unless said otherwise.
 */
#ifndef TUTTI_STATE_PACKED_H
#define TUTTI_STATE_PACKED_H

#include "state/store.h"

enum { PACKED_CODES, PACKED_SCALES, PACKED_GROUPS, PACKED_ARRAYS };

/* Marks what of the frozen parameters is packed: matrices of layers, but for routers. Refuses columns that are cut
 * inside of a block. Order: Same(table). */
int packed_mark(struct param_table *t, enum packing p, struct err *e);
/* The same of a model that nobody trains (`--weights`): every matrix of its layers but routers, which becomes frozen,
 * and of int8 the head where it is a matrix of its own. Products are made straight from what is kept: there are no
 * slots, and nothing is gathered. */
int packed_mark_weights(struct param_table *t, enum packing p, struct err *e);
/* The rows of the store's table, whose names are those of a checkpoint's groups; returns how many. */
int packed_arrays(enum packing p, struct array_row rows[PACKED_ARRAYS]);

/* Whoever has the numbers: rows [first, first + n) of the whole matrix, all columns, as fp32. */
typedef int packed_read_fn(void *ctx, int64_t first, int64_t n, float *out, struct err *e);
/* Where it lies: codes, scales, groups; NULL on the null device, and where the packing has none. */
void packed_places(const struct store *s, int param, void *out[PACKED_ARRAYS]);
/* Bytes of a matrix, all of it, as it is kept. */
int64_t packed_bytes(enum packing p, const struct param *x);
/* What this rank holds of a matrix, from its numbers, read in stretches of rows: all of them where scales have groups,
 * which are of the whole matrix; else the rows that are held. Refuses numbers that are not finite. */
int packed_fill(struct store *s, struct stream *st, int param, packed_read_fn *read, void *ctx, struct err *e);
/* All of them, from their initial values. */
void packed_init(struct store *s, struct stream *st, uint64_t seed);
/* Numbers of what this rank holds, to `to`, in the store's type. Enqueues. */
void packed_bring(const struct store *s, struct stream *st, int param, void *to);

#endif
