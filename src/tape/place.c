/* Placement: lifetimes from the instructions, homes from the lifetimes, offsets by greedy packing: the largest place
 * first, each at the lowest offset where no place with a meeting lifetime lies. On transformer steps this comes
 * within a few percent of the lower bound (the largest sum of live bytes). Cost O(n^2) for n places, milliseconds.
 * Rejected: first-fit in time order (fragments; 10-20 % more). */
#include <stdlib.h>
#include <string.h>

#include "tape/lower.h"

enum { PLACE_ALIGN = 64 };

const char *home_name(enum home h)
{
    static const char *const names[HOME_N] = {"act", "wgrad", "scratch"};
    return names[h];
}

static void touch(struct program *p, int place, int at)
{
    if (place < 0) return;
    struct place *x = &p->places[place];
    if (x->first < 0 || at < x->first) x->first = at;
    if (at > x->last) x->last = at;
}

static void touch_all(struct program *p, const struct instr *c, int at)
{
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        touch(p, c->in[k].place, at);
        touch(p, c->din[k].place, at);
        touch(p, c->acc[k].place, at);
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        touch(p, c->out[k].place, at);
        touch(p, c->dout[k].place, at);
    }
    touch(p, c->scratch, at);
}

/* What a collective works on is its own until it is finished. */
static void lifetimes(struct program *p)
{
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        touch_all(p, &p->code[i], i);
        if (op_row(p->code[i].op)->collective) touch_all(p, &p->code[i], p->code[i].until - 1);
    }
}

static enum tape_phase phase_of(const struct program *p, int instr)
{
    return instr < p->begin[PHASE_B] ? PHASE_F : instr < p->begin[PHASE_W] ? PHASE_B : PHASE_W;
}

static enum home home_of(const struct program *p, const struct place *x)
{
    enum tape_phase a = phase_of(p, x->first), b = phase_of(p, x->last);
    return a == b ? HOME_SCRATCH : b == PHASE_W ? HOME_WGRAD : HOME_ACT;
}

static int by_size(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static bool lives_meet(const struct place *a, const struct place *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Slabs live across phases: their places never share bytes, whatever their lifetimes, because other microbatches run
 * in between and a slab's content must not depend on the order. Scratch shares within a phase. */
static bool clash(const struct place *a, const struct place *b)
{
    return a->home == b->home && (a->home != HOME_SCRATCH || lives_meet(a, b));
}

static int by_offset(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t align_up(size_t n)
{
    return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

void program_place(struct program *p)
{
    lifetimes(p);
    struct place **todo = xcalloc((size_t)(p->n_places + 1), sizeof *todo);
    struct place **near = xcalloc((size_t)(p->n_places + 1), sizeof *near);
    int n = 0;
    for (int i = 0; i < p->n_places; i++) {
        struct place *x = &p->places[i];
        if (x->first < 0) continue; /* never read nor written */
        x->home = home_of(p, x);
        if (x->slot >= 0) continue; /* bound when running */
        todo[n++] = x;
    }
    qsort(todo, (size_t)n, sizeof *todo, by_size);
    for (int i = 0; i < n; i++) {
        int k = 0;
        for (int j = 0; j < i; j++)
            if (clash(todo[i], todo[j])) near[k++] = todo[j];
        qsort(near, (size_t)k, sizeof *near, by_offset);
        size_t at = 0;
        for (int j = 0; j < k; j++) {
            if (near[j]->offset >= at + align_up(todo[i]->bytes)) break;
            size_t end = near[j]->offset + align_up(near[j]->bytes);
            if (end > at) at = end;
        }
        todo[i]->offset = at;
        size_t end = at + align_up(todo[i]->bytes);
        if (end > p->bytes[todo[i]->home]) p->bytes[todo[i]->home] = end;
    }
    xfree(todo);
    xfree(near);
}

static bool names_slot(const struct program *p, const struct operand *o, int slot)
{
    return o->place == OPERAND_SLOT ? o->slot == slot : o->place >= 0 && p->places[o->place].slot == slot;
}

int program_slot_last(const struct program *p, int slot)
{
    for (int i = p->begin[PHASE_N] - 1; i >= 0; i--) {
        const struct instr *c = &p->code[i];
        bool here = false;
        for (int k = 0; k < KERNEL_MAX_IN; k++)
            here |= names_slot(p, &c->in[k], slot) || names_slot(p, &c->din[k], slot) || names_slot(p, &c->acc[k], slot);
        for (int k = 0; k < KERNEL_MAX_OUT; k++)
            here |= names_slot(p, &c->out[k], slot) || names_slot(p, &c->dout[k], slot);
        if (here) return phase_of(p, i);
    }
    return -1;
}

void program_check(const struct program *p)
{
    for (int i = 0; i < p->n_places; i++)
        for (int j = 0; j < i; j++) {
            const struct place *a = &p->places[i], *b = &p->places[j];
            if (a->first < 0 || b->first < 0 || a->slot >= 0 || b->slot >= 0 || !clash(a, b)) continue;
            CHECK(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset,
                  "places %d and %d overlap in %s", i, j, home_name(a->home));
        }
}
