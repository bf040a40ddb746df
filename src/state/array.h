/* SPDX-License-Identifier: Apache-2.0 */
/* array.h: one array of the store: so many values for each parameter, what they are for, and where they lie on this
 * rank. The store is a table of these (store.h); what is in the table is allocated, planned, zeroed, saved, loaded and
 * compared between ranks by the same code, so a new kind of state is a row and nothing else.
 *
 *   row       of                      block     shared from   saved   stepped
 *   weight    the compute copy        element   zero 3        -       -
 *   master    fp32 truth              element   zero 1        yes     yes
 *   grad      gradients               element   zero 2        -       -
 *   m, v      an optimizer's own      element   zero 1        yes     yes      optim/optim.c adds them
 *   others    of whoever keeps them   any       any           any     no       e.g. the largest values of the last
 *                                                                     steps, for FP8
 *
 * Blocks. ARRAY_ELEMENT: a value per element of the parameter. It lies as the parameter does (param.h), whole or this
 * rank's piece of it (units.h), so a checkpoint that another layout wrote is read box by box. ARRAY_TENSOR: `each`
 * values per parameter, such as a history of its largest value; every rank that holds anything of the parameter has all
 * of them, and one rank writes them.
 * ARRAY_ROW_BLOCK: a value per `each` consecutive elements of a row of a matrix, the last of a row for what is left:
 * the scale of a block. It lies as the parameter does; whoever cuts columns cuts them at blocks (checked).
 *
 * ARRAY_GROUPS: what stands beside the scales of a packed matrix (layout/packing.h), of the whole of it, on every rank
 * that holds anything of it.
 *
 * ARRAY_FACTORS: a value per row and then one per column of a matrix, of the whole of it; as those of ARRAY_TENSOR all
 * of them are on every rank that holds anything of the parameter.
 *
 * Stepped or not. What an optimizer steps exists where steps are made: not on the workers of a parameter server. What
 * is not stepped exists on every rank that trains, and keeps its values until its owner changes them. Values of
 * ARRAY_TENSOR have no owner among ranks: who changes them makes the same change on all holders (engine/replicas.h
 * compares them).
 *
 * Away. Values that nobody works on all the time may wait in slower memory: what an optimizer steps (optim/staging.h),
 * weights that are gathered before they are used (exchange.h). Whoever reads or writes them copies, on the array's own
 * stream, which orders all of it.
 *
 * Invariants
 *   1. An array holds its parameters, or their pieces, in the table's order without padding: bytes = values x width.
 *   2. Parameters of groups that an array is not for, frozen ones but of weights, and packed ones but of what they are
 *      packed in, take no room in it, and have no tensor in a checkpoint.
 * Floors 0-2. Order: Local.
 */
#ifndef TUTTI_STATE_ARRAY_H
#define TUTTI_STATE_ARRAY_H

#include "device/device.h"
#include "layout/dtype.h"
#include "state/units.h"

enum array_block { ARRAY_ELEMENT, ARRAY_TENSOR, ARRAY_ROW_BLOCK, ARRAY_FACTORS, ARRAY_GROUPS };
enum { ARRAY_NEVER_SHARED = 4 }; /* for shared_from */

struct array_row {
    const char *name;  /* unique in a store; the group of a checkpoint (checkpoint/ckpt.h) */
    const char *title; /* in errors: "weights", "first moments" */
    enum mem_cat cat;
    enum dtype dtype;
    enum array_block block;
    int64_t each; /* ARRAY_TENSOR: values per parameter; ARRAY_ROW_BLOCK: elements per value; ARRAY_GROUPS: a packing */
    struct device *dev; /* NULL: the store's; another one only where nothing steps it */
    enum mem_cat away;  /* MEM_HOST or MEM_DISK: the values wait there, and only copies touch them; 0: on the device */
    int shared_from;    /* the zero level from which ranks of dp_shard share it out; ARRAY_TENSOR is never shared */
    bool saved, stepped;
    bool averages;   /* ARRAY_ELEMENT of f32: begins as the weights, not as zeros */
    bool of_frozen;  /* frozen parameters have it too (param.h) */
    bool packed;     /* packed parameters have it, and no others; else they have not */
    unsigned groups; /* bit 1u << group of the parameters that have it (param.h) */
};

struct array {
    struct array_row row;
    bool whole;         /* of each parameter all that is held here, else this rank's piece */
    int64_t *at;        /* by parameter: its first value in the buffer; -1: it has none */
    int64_t n;          /* values in the buffer */
    struct buffer buf;  /* dev NULL: the array is not here */
    struct stream *own; /* where it is on another device than the store, or away: a stream for it; else NULL */
};

/* Values [lo, lo + n) of a parameter's, in the order of its held box, or of its `each`; `at` is where they begin in the
 * buffer. */
struct array_span {
    int64_t lo, n, at;
};

/* Where everything lies, then with `here` the buffer. After a failure array_free. The row's texts are borrowed. */
int array_new(struct array *a, const struct array_row *row, const struct units *u, struct device *d, bool whole,
              bool here, struct err *e);
void array_free(struct array *a); /* also of a zeroed struct */
static inline bool array_is_here(const struct array *a) { return a->buf.dev != NULL; }
bool array_covers(const struct array_row *row, const struct param *p);

/* What this rank works on, or writes to a checkpoint: its piece, wherever it lies. Of ARRAY_TENSOR all values; `once`:
 * on one rank only. */
struct array_span array_piece(const struct array *a, const struct units *u, int param, bool once);
/* All that is here of it when it is whole, else the piece. */
struct array_span array_held(const struct array *a, const struct units *u, int param);
void *array_at(const struct array *a, int64_t value); /* on the device, or away; NULL on the null device */
/* The same values on every rank that holds anything of the parameter, however it is cut. */
static inline bool array_of_tensors(const struct array_row *row)
{
    return row->block == ARRAY_TENSOR || row->block == ARRAY_FACTORS || row->block == ARRAY_GROUPS;
}
/* The shape of a parameter's values over all ranks, and of it what belongs to a box of the parameter. */
struct shape array_shape(const struct array_row *row, const struct param *p);
struct region array_box(const struct array_row *row, const struct param *p, const struct region *box);
/* Of a parameter over all ranks. */
int64_t array_numel(const struct array_row *row, const struct param *p);

#endif
