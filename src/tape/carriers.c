/* SPDX-License-Identifier: Apache-2.0 */
/* What carries each instruction out, decided when the program is lowered: the family and the way in it that take the
 * call's shapes, its scratch, its FLOPs. What runs later is what was chosen and planned here. */
#include <string.h>

#include "tape/lower_impl.h"

/* A collective's gradient that is added to another's lands in scratch first; a piece that is dealt out to all ranks'
 * rows lies in scratch anyhow and is added from there. */
static size_t collective_scratch(const struct lower *l, const struct kernel_table *kt, const struct instr *i,
                                 const struct kernel_call *c)
{
    size_t bytes = l->o.collective_scratch ? l->o.collective_scratch(kt, c) : 0;
    bool dealt = c->op == OP_SCATTER && at_rows(&c->at)->pieces;
    if (i->acc[0].place != OPERAND_NONE && !dealt)
        bytes += to_size(view_rows(&c->din[0]) * view_cols(&c->din[0])) * dtype_bytes(c->din[0].dtype);
    return bytes;
}

/* The call as program_run makes it, but for addresses. */
static void running_call(const struct instr *i, struct kernel_call *c)
{
    instr_call(i, c);
    c->n_in = instr_inputs(i);
    for (int k = 0; k < i->n_in; k++)
        if (instr_sums_weight(i, k)) c->acc[k] = c->din[k];
}

/* Returns the bytes of its scratch. */
static size_t choose_kernel(struct instr *i, const struct kernel_table *kt)
{
    struct kernel_call c;
    running_call(i, &c);
    i->kernel = kernel_find(kt, &c, &i->family);
    return i->kernel && i->kernel->scratch ? i->kernel->scratch(&c, kt->n_threads) : 0;
}

/* A row that the device's own family lacks, too, though it is one that is computed. */
static int lacks(const struct instr *i, const struct kernel_table *kt, struct err *e)
{
    static const char *const phase[KERNEL_N_PHASES] = {"forward", "backward", "the gradient of its weights"};
    struct kernel_call c;
    running_call(i, &c);
    if (!kernel_computes(&c)) return OK;
    const struct view *v = c.n_in ? &c.in[0] : &c.out[0];
    return err_set(e, ERR_REQUEST, "'%s': the %s device has no kernel for %s, %s, in %s", i->what, kt->device,
                   op_row(i->op)->name, phase[i->kphase], dtype_name(v->dtype));
}

int lower_choose(struct lower *l, const struct kernel_table *kt, struct err *e)
{
    struct program *p = l->p;
    int rc = OK;
    for (int ph = 0; ph < PHASE_N; ph++)
        for (int k = p->begin[ph]; k < p->begin[ph + 1]; k++) {
            struct instr *i = &p->code[k];
            struct kernel_call c;
            instr_call(i, &c);
            bool counts = !i->refill && i->when != WHEN_FALLEN; /* a round: when the choice is even */
            i->flops = op_row(i->op)->flops && counts ? op_row(i->op)->flops(&c) : 0;
            p->flops[ph] += i->flops;
            if (!i->again) p->flops_model += i->flops;
            i->pairs = op_pairs(&c);
            if (!i->again) p->flops_pairs[i->pairs] += i->flops;
            enum op_by by = op_row(i->op)->by;
            size_t bytes = by == BY_KERNEL  ? choose_kernel(i, kt)
                           : by == BY_RANKS ? collective_scratch(l, kt, i, &c)
                                            : 0;
            if (bytes) i->scratch = lower_place(l, TID_NONE, false, bytes);
            if (!rc && by == BY_KERNEL && !i->kernel) rc = lacks(i, kt, e);
        }
    return rc;
}
