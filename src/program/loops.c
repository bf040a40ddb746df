/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that are run in rounds. A round writes all that it reads but what comes from outside, so places of its
 * own live and share bytes as ever; a place that somebody else touches too must last from the loop's first instruction
 * to its last, because the next round touches it again. Cost: O(instructions x operands). */
#include "program/place.h"

void program_loop(const struct program *p, int instr, int *begin, int *end)
{
    int loop = p->code[instr].loop;
    *begin = instr;
    *end = instr + 1;
    while (loop && *begin > 0 && p->code[*begin - 1].loop == loop) --*begin;
    while (loop && *end < p->begin[PHASE_N] && p->code[*end].loop == loop) ++*end;
}

static void outlive(struct program *p, int place, int begin, int end)
{
    if (place < 0) return;
    struct place *x = &p->places[place];
    if (x->first >= begin && x->last < end) return;
    if (x->first > begin) x->first = begin;
    if (x->last < end - 1) x->last = end - 1;
}

static void outlive_all(struct program *p, const struct instr *c, int begin, int end)
{
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        outlive(p, c->in[k].place, begin, end);
        outlive(p, c->din[k].place, begin, end);
        outlive(p, c->acc[k].place, begin, end);
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        outlive(p, c->out[k].place, begin, end);
        outlive(p, c->dout[k].place, begin, end);
    }
}

void program_loops_live(struct program *p)
{
    for (int i = 0, begin, end; i < p->begin[PHASE_N]; i = end) {
        program_loop(p, i, &begin, &end);
        for (int k = begin; p->code[i].loop && k < end; k++) outlive_all(p, &p->code[k], begin, end);
    }
}
