/* SPDX-License-Identifier: Apache-2.0 */
/* Products with matrices in few bits, when decoding: what a layer asks for by the matrix's own tensor becomes a CODED
 * row (kernel/attrs.h) of the arrays that hold it (state/packed.h), which lie one matrix after the other as weights
 * would. Training's products have numbers, made before they are used, and come here only to be told so. */
#include "nn/layers.h"

struct matrices matrices_of(const struct layer_ctx *x, tid w, tid rows_E)
{
    const struct tensor *v = tape_tensor(x->t, w);
    struct matrices m = {.first = (v->slot - SLOT_PARAM) / 2, .times = 1};
    int n = 0;
    if (rows_E >= 0) m.times = to_int(tensor_cols(tape_tensor(x->t, rows_E)));
    for (int64_t rows = 0; rows < v->n[0] || !n; n++) rows += x->params->p[m.first + n].ln[0];
    while (n % m.times) n++; /* matrices of no rows at the end */
    m.n = n / m.times;
    return m;
}

static void part_of(const struct param *p, enum packing packing, struct coded_attrs *a)
{
    const int64_t blocks = packing_row_blocks(packing, p->n[1]), at = p->lo[1] / packing_row(packing)->block;
    a->row_blocks = blocks;
    a->part[a->n_parts++] = (struct coded_part){.rows = p->ln[0],
                                                .first = p->lo[0] * blocks + at,
                                                .n_groups = packing_groups(packing, p->n[0], p->n[1])};
}

tid coded_record(struct layer_ctx *x, tid h, tid w, tid bias, bool bias_off, tid rows_E, int64_t expected,
                 const char *name)
{
    const struct param_table *t = x->params;
    if (x->t->err.code || x->s->mode != MODEL_DECODE || t->packing == PACKING_NONE) return TID_NONE;
    const struct tensor v = *tape_tensor(x->t, w);
    const struct matrices s = matrices_of(x, w, rows_E);
    const struct param *p = &t->p[s.first];
    if (!p->packed) return TID_NONE;
    struct coded_attrs a = {.packing = t->packing, .bias_off = bias_off, .expected = expected};
    CHECK(s.n <= CODED_PARTS, "%s: %d matrices in one product", p->name, s.n);
    for (int i = 0; i < s.n; i++) part_of(p + i, t->packing, &a);
    int64_t groups = 0, k = p->ln[1];
    for (int i = 0; i < s.n; i++) groups += a.part[i].n_groups * s.times;
    struct spmd_type whole = v.type;
    for (int axis = 0; axis < AXIS_N; axis++)
        if (whole.on[axis] != SPMD_I) whole.on[axis] = SPMD_R;
    const tid in[3] = {tape_input(x->t, "codes", v.slot, DT_U8, 2,
                                  (int64_t[]){v.n[0], packing_row_bytes(t->packing, k)}, v.type),
                       tape_input(x->t, "scales", v.slot + 1, DT_U8, 2,
                                  (int64_t[]){v.n[0], packing_row_blocks(t->packing, k)}, v.type),
                       groups ? tape_input(x->t, "groups", slot_groups(t->n, to_int(x->c->layers), s.first), DT_F32, 1,
                                           &groups, whole)
                              : TID_NONE};
    return op_coded(x->t, h, in, bias, rows_E, &a, name);
}
