/* SPDX-License-Identifier: Apache-2.0 */
/* Records the convolution and the scan over the ranks of cp: the rows that make what travels, the gather, and the rows
 * that take from it. On cp of size 1 a piece is a whole sequence and nothing travels: rows are whole, under another
 * type. */
#include "parallel/scan.h"

#include <stdio.h>

#include "kernel/pieces.h"

/* The same memory, over cp of another type. */
static tid as(struct tape *t, tid x, enum spmd on_cp)
{
    char was[TAPE_NAME];
    if (t->err.code || x < 0) return x;
    snprintf(was, sizeof was, "%s", tape_tensor(t, x)->name);
    return tape_retype(t, x, AXIS_CP, on_cp, was);
}

static bool lies_on_cp(struct tape *t, tid x, const char *what)
{
    char type[128];
    if (t->err.code) return false;
    if (tape_tensor(t, x)->type.on[AXIS_CP] == SPMD_S0) return true;
    err_set(&t->err, ERR_REQUEST, "%s wants tokens split over cp, got %s (%s)", what, tape_tensor(t, x)->name,
            spmd_print(type, tape_tensor(t, x)->type));
    return false;
}

static struct sequence_rows rows_here(const struct par *p, struct sequence_rows a)
{
    a.parts = p->size[AXIS_CP];
    a.part = p->rank[AXIS_CP];
    return a;
}

/* All ranks' rows of what travels, rank after rank. */
static tid from_all(struct tape *t, const struct par *p, tid x)
{
    int64_t rows = t->err.code ? 0 : tensor_rows(tape_tensor(t, x)) * p->size[AXIS_CP];
    return par_gather(t, p, x, AXIS_CP, rows);
}

tid par_conv(struct tape *t, const struct par *p, tid x_TC, tid w_CK, tid b_C, tid doc_W, struct conv_attrs a,
             const char *name)
{
    bool forgets = !t->err.code && ++t->n_changes == p->forget;
    a.at = rows_here(p, a.at);
    if (forgets) return op_conv(t, x_TC, w_CK, b_C, doc_W, TID_NONE, a, name);
    if (!lies_on_cp(t, x_TC, name)) return TID_NONE;
    if (a.at.parts == 1) return as(t, op_conv(t, as(t, x_TC, SPMD_R), w_CK, b_C, doc_W, TID_NONE, a, name), SPMD_S0);
    struct halo_attrs h = {a.at, to_int(tape_tensor(t, w_CK)->n[1]) - 1};
    tid halo = as(t, op_halo(t, from_all(t, p, op_tails(t, x_TC, h, "conv.tails")), h, "conv.halo"), SPMD_S0);
    return op_conv(t, x_TC, w_CK, b_C, doc_W, halo, a, name);
}

tid par_scan(struct tape *t, const struct par *p, tid x, tid bc, tid s, tid skip_H, tid doc_W, struct scan_attrs a,
             const char *name)
{
    bool forgets = !t->err.code && ++t->n_changes == p->forget;
    a.at = rows_here(p, a.at);
    if (forgets) return op_scan(t, x, bc, s, skip_H, doc_W, TID_NONE, a, name);
    if (!lies_on_cp(t, x, name)) return TID_NONE;
    if (a.at.parts == 1) {
        x = as(t, x, SPMD_R);
        bc = as(t, bc, SPMD_R);
        s = as(t, s, SPMD_R);
        return as(t, op_scan(t, x, bc, s, skip_H, doc_W, TID_NONE, a, name), SPMD_S0);
    }
    tid ends = from_all(t, p, op_scan_end(t, x, bc, s, doc_W, a, "scan.end"));
    tid before = as(t, op_carry(t, ends, (struct carry_attrs){a.at, a.heads}, "scan.before"), SPMD_S0);
    return op_scan(t, x, bc, s, skip_H, doc_W, before, a, name);
}
