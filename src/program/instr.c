/* SPDX-License-Identifier: Apache-2.0 */
/* What one instruction says of itself. */
#include <string.h>

#include "program/program.h"

void instr_call(const struct instr *i, struct kernel_call *c)
{
    memset(c, 0, sizeof *c);
    c->op = i->op;
    c->phase = i->kphase;
    c->at = i->at;
    c->n_in = i->n_in;
    c->n_out = i->n_out;
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        c->in[k] = i->in[k].view;
        c->din[k] = i->din[k].view;
        c->acc[k] = i->acc[k].view;
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        c->out[k] = i->out[k].view;
        c->dout[k] = i->dout[k].view;
    }
}

int instr_inputs(const struct instr *i)
{
    return i->op == OP_LINEAR && i->kphase == KERNEL_FWD && at_linear(&i->at)->bias_off ? 2 : i->n_in;
}

bool instr_sums_weight(const struct instr *i, int k)
{
    bool made = i->kphase == KERNEL_BWD_W || (i->kphase == KERNEL_BWD_IN && op_row(i->op)->weight_by_in >> k & 1);
    return made && i->din[k].place == OPERAND_SLOT;
}

const char *instr_path(const struct instr *i) { return i->kernel && i->kernel->way ? i->kernel->way : ""; }

double instr_bytes(const struct instr *i)
{
    struct kernel_call c;
    instr_call(i, &c);
    return op_row(i->op)->bytes ? op_row(i->op)->bytes(&c) : 0;
}

int64_t token_rows_there(struct token_rows r, int64_t n, int64_t batch, int64_t blank)
{
    int64_t there = r.each ? (batch - blank) * r.each - r.first : n;
    return there < 0 ? 0 : there < n ? there : n;
}
