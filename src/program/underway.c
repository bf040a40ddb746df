/* SPDX-License-Identifier: Apache-2.0 */
/* How long a row that travels (op_row.travels) may be under way: it is begun in its turn and finished before the first
 * instruction that touches what it reads or writes, or at the end of the phase. Whole places are compared, not bytes:
 * what is cut into pieces (pieces.c) says itself that its pieces do not meet. Cost: O(instructions) per such row. */
#include "program/place.h"

bool instr_same_memory(const struct operand *a, const struct operand *b)
{
    return a->place >= 0 ? a->place == b->place
                         : a->place == OPERAND_SLOT && b->place == OPERAND_SLOT && a->slot == b->slot;
}

static bool touches(const struct instr *i, const struct operand *o)
{
    bool any = false;
    for (int k = 0; k < KERNEL_MAX_IN; k++)
        any |= instr_same_memory(o, &i->in[k]) || instr_same_memory(o, &i->din[k]) || instr_same_memory(o, &i->acc[k]);
    for (int k = 0; k < KERNEL_MAX_OUT; k++)
        any |= instr_same_memory(o, &i->out[k]) || instr_same_memory(o, &i->dout[k]);
    return any;
}

bool instr_touches(const struct instr *i, const struct instr *c)
{
    const struct operand *own[] = {&c->in[0], &c->out[0], &c->dout[0], &c->din[0], &c->acc[0]};
    if (c->run && c->run == i->run && c->piece != i->piece) return false;
    bool any = false;
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) any |= touches(i, own[k]);
    return any;
}

static void finish_late(struct program *p, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        struct instr *c = &p->code[i];
        int most = c->until > i && c->until < end ? c->until : end, first, over;
        program_loop(p, i, &first, &over);
        if (c->loop && over < most) most = over;
        c->until = i + 1;
        if (!op_row(c->op)->travels) continue;
        while (c->until < most && !instr_touches(&p->code[c->until], c)) c->until++;
    }
}

void program_finish_late(struct program *p)
{
    for (int ph = 0; ph < PHASE_N; ph++) finish_late(p, p->begin[ph], p->begin[ph + 1]);
}
