/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the store whose buffers begin at addresses that nothing has, 2^44 apart: whoever walks it (optim.c, rows.c)
 * makes calls over them, and each operand's address is a slot and an offset. */
#include "optim/update_program.h"

#include <string.h>

#include "base/mem.h"

enum { APART = 44 }; /* bits of an offset: larger than any array */
static void *begins(int slot) { return (void *)((uintptr_t)(slot + 1) << APART); }

struct writer {
    struct program *p;
    const struct kernel_table *t;
    int room;
};

static struct operand operand_of(const struct view *v)
{
    struct operand o = {.view = *v, .place = OPERAND_NONE};
    uintptr_t at = (uintptr_t)v->p;
    o.view.p = NULL;
    if (!at) return o;
    o.place = OPERAND_SLOT;
    o.slot = (int)(at >> APART) - 1;
    o.offset = at & (((uintptr_t)1 << APART) - 1);
    CHECK(o.slot >= 0 && o.slot < OPTIM_SLOTS, "an update of what is not the store's");
    return o;
}

static void write_row(void *ctx, const struct param *p, struct kernel_call *c)
{
    struct writer *w = ctx;
    struct view out[KERNEL_MAX_OUT];
    const char *why = op_row(c->op)->infer(&c->at, c->n_in, c->in, out), *family = NULL;
    CHECK(!why, "%s of %s: %s", op_row(c->op)->name, p->name, why);
    int n = w->p->begin[PHASE_N];
    GROW(w->p->code, n, w->room, 1);
    struct instr *i = &w->p->code[n];
    *i = (struct instr){.op = c->op,
                        .kphase = c->phase,
                        .what = p->name,
                        .node = -1,
                        .layer = -1,
                        .until = n + 1,
                        .at = c->at,
                        .n_in = c->n_in,
                        .n_out = c->n_out,
                        .scratch = -1};
    i->kernel = kernel_find(w->t, c, &family);
    i->family = family;
    CHECK(i->kernel, "no kernel for %s", op_row(c->op)->name);
    CHECK(!i->kernel->scratch || !i->kernel->scratch(c, w->t->n_threads), "%s wants scratch", op_row(c->op)->name);
    const struct operand none = {.place = OPERAND_NONE};
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        i->in[k] = k < c->n_in ? operand_of(&c->in[k]) : none;
        i->din[k] = i->acc[k] = none;
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        i->out[k] = k < c->n_out ? operand_of(&c->out[k]) : none;
        i->dout[k] = none;
    }
    i->flops = op_row(c->op)->flops(c);
    w->p->flops[PHASE_F] += i->flops;
    for (int ph = PHASE_F + 1; ph <= PHASE_N; ph++) w->p->begin[ph] = n + 1;
}

bool optim_lowers(const struct store *s)
{
    for (int k = 0; k < s->n_arrays; k++)
        if (array_is_here(&s->array[k]) && (s->array[k].row.away || s->array[k].own)) return false;
    return true;
}

struct program *optim_lower(const struct store *s, const struct optim_config *c, const struct kernel_table *t,
                            int first, int n)
{
    struct store paper = *s;
    struct writer w = {.p = xcalloc(1, sizeof *w.p), .t = t};
    w.p->n_slots = OPTIM_SLOTS;
    for (int k = 0; k < s->n_arrays; k++)
        if (array_is_here(&s->array[k])) paper.array[k].buf.p = begins(k);
    paper.widen.p = begins(OPTIM_SLOT_WIDEN);
    paper.wide_master.p = begins(OPTIM_SLOT_WIDE_MASTER);
    struct optim_call x = {.s = &paper, .c = c, .emit = write_row, .emit_ctx = &w};
    x.words = begins(OPTIM_SLOT_WORDS);
    optim_step_elements(&x, NULL, first, n);
    return w.p;
}

void optim_bind(void *slot[OPTIM_SLOTS], const struct store *s, const struct buffer *words)
{
    memset(slot, 0, OPTIM_SLOTS * sizeof *slot);
    for (int k = 0; k < s->n_arrays; k++)
        if (array_is_here(&s->array[k])) slot[k] = s->array[k].buf.p;
    slot[OPTIM_SLOT_WIDEN] = s->widen.p;
    slot[OPTIM_SLOT_WIDE_MASTER] = s->wide_master.p;
    slot[OPTIM_SLOT_WORDS] = words->p;
}
