/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: lifetimes from the instructions, homes from the lifetimes, offsets by greedy packing: the largest place
 * first, each at the lowest offset where no place with a meeting lifetime lies. On transformer steps this comes
 * within a few percent of the lower bound (the largest sum of live bytes). Places of a slab never share bytes, so each
 * comes after the last. Scratch places are few at a time and many in all: those that meet a lifetime are found in a
 * tree over all places by first use. Cost O(n k log n) for n places of which k live at once, so linear in layers.
 * Rejected: first-fit in time order (fragments; 10-20 % more). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "program/place.h"

enum { PLACE_ALIGN = 64 };

const char *home_name(enum home h)
{
    static const char *const names[HOME_N] = {"act", "wgrad", "scratch", "away"};
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

/* What travels owns its bytes until it is finished. */
static void lifetimes(struct program *p)
{
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        touch_all(p, &p->code[i], i);
        if (op_row(p->code[i].op)->travels) touch_all(p, &p->code[i], p->code[i].until - 1);
    }
    program_loops_live(p);
}

static enum program_phase phase_of(const struct program *p, int instr)
{
    return instr < p->begin[PHASE_B] ? PHASE_F : instr < p->begin[PHASE_W] ? PHASE_B : PHASE_W;
}

static enum home home_of(const struct program *p, const struct place *x)
{
    enum program_phase a = phase_of(p, x->first), b = phase_of(p, x->last);
    if (x->away) return HOME_AWAY;
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

/* Slabs live across phases: their places never share bytes, whatever their lifetimes, but where there is one for both
 * (joint): a microbatch runs F, B and W in this order, whatever others do in between. Scratch shares within a phase. */
static bool clash(const struct program *p, const struct place *a, const struct place *b)
{
    bool shares = a->home == HOME_SCRATCH || (a->home != HOME_AWAY && p->joint);
    return a->home == b->home && (!shares || lives_meet(a, b));
}

static int by_offset(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_first(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x < y ? -1 : x > y;
}

static size_t align_up(size_t n) { return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN; }

/* Scratch places in the order of their first use, under a binary tree: a node says when the last of the places below it
 * that have an offset already dies. */
struct lives {
    struct place **by_first;
    int n, leaves;
    int *last; /* [2 * leaves]; node i has the children 2i and 2i + 1, leaf k is node leaves + k; -1: none has an
                  offset */
    struct place **near; /* [n] what was found */
    int n_near;
};

static void lives_init(struct lives *l, struct place *const *todo, int n)
{
    *l = (struct lives){.n = n, .leaves = 1};
    while (l->leaves < n) l->leaves *= 2;
    l->by_first = xcalloc((size_t)n + 1, sizeof *l->by_first);
    l->near = xcalloc((size_t)n + 1, sizeof *l->near);
    l->last = xmalloc(2 * (size_t)l->leaves * sizeof *l->last);
    memset(l->last, 0xff, 2 * (size_t)l->leaves * sizeof *l->last);
    if (n) memcpy(l->by_first, todo, (size_t)n * sizeof *todo);
    qsort(l->by_first, (size_t)n, sizeof *l->by_first, by_first);
}

static void lives_fini(struct lives *l)
{
    xfree(l->by_first);
    xfree(l->near);
    xfree(l->last);
}

static void lives_add(struct lives *l, const struct place *x)
{
    const struct place *const *at = bsearch(&x, l->by_first, (size_t)l->n, sizeof *l->by_first, by_first);
    for (int i = l->leaves + (int)((struct place *const *)at - l->by_first); i; i /= 2)
        if (l->last[i] < x->last) l->last[i] = x->last;
}

/* Below node i, whose leaves begin at place `from` and are n: those that begin by x's end and die at its beginning or
 * later. */
static void lives_find(struct lives *l, const struct place *x, int i, int from, int n)
{
    if (l->last[i] < x->first || l->by_first[from]->first > x->last) return;
    if (n == 1) {
        l->near[l->n_near++] = l->by_first[from];
        return;
    }
    lives_find(l, x, 2 * i, from, n / 2);
    if (from + n / 2 < l->n) lives_find(l, x, 2 * i + 1, from + n / 2, n / 2);
}

/* The lowest offset where nothing lies that lives at the same time. */
static size_t lowest(struct lives *l, const struct place *x)
{
    size_t at = 0;
    l->n_near = 0;
    lives_find(l, x, 1, 0, l->leaves);
    qsort(l->near, (size_t)l->n_near, sizeof *l->near, by_offset);
    for (int j = 0; j < l->n_near; j++) {
        if (l->near[j]->offset >= at + align_up(x->bytes)) break;
        size_t end = l->near[j]->offset + align_up(l->near[j]->bytes);
        if (end > at) at = end;
    }
    return at;
}

static void put(struct program *p, struct place *x, size_t at)
{
    size_t end = at + align_up(x->bytes);
    x->offset = at;
    if (end > p->bytes[x->home]) p->bytes[x->home] = end;
}

/* Those that need an offset: slabs' first, then scratch; returns how many, *n_slab of the former. What is away has its
 * offset here. */
static int places_todo(struct program *p, struct place **todo, int *n_slab)
{
    int n = 0;
    for (int scratch = 0; scratch < 2; scratch++) {
        for (int i = 0; i < p->n_places; i++) {
            struct place *x = &p->places[i];
            if (x->first < 0 || x->slot >= 0) continue; /* never read nor written; bound when running */
            if (x->home == HOME_AWAY && !scratch) put(p, x, p->bytes[HOME_AWAY]);
            else if (x->home != HOME_AWAY && (x->home == HOME_SCRATCH) == (scratch == 1)) todo[n++] = x;
        }
        if (!scratch) *n_slab = n;
    }
    return n;
}

/* ---- one slab for both ---- */

static int by_last(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    return x->last != y->last ? (x->last < y->last ? -1 : 1) : x < y ? -1 : x > y;
}

/* What a slab holds: from F to W; from F to B, in the order in which B uses it up; from B to W, in the order in which B
 * leaves it. The latter begins where the former does, `margin` bytes before it, and follows it as it dies. */
struct joint {
    struct place **whole, **dies, **born;
    int n_whole, n_dies, n_born;
    size_t whole_bytes, dies_bytes, born_bytes, margin;
};

static size_t sum_bytes(struct place *const *x, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += align_up(x[i]->bytes);
    return sum;
}

static void joint_init(struct joint *j, const struct program *p, struct place *const *slab, int n)
{
    struct place **list[3];
    int count[3] = {0};
    for (int k = 0; k < 3; k++) list[k] = xcalloc((size_t)n + 1, sizeof **list);
    for (int i = 0; i < n; i++) {
        int k = slab[i]->home == HOME_ACT ? 1 : phase_of(p, slab[i]->first) == PHASE_F ? 0 : 2;
        list[k][count[k]++] = slab[i];
    }
    *j = (struct joint){list[0],
                        list[1],
                        list[2],
                        count[0],
                        count[1],
                        count[2],
                        sum_bytes(list[0], count[0]),
                        sum_bytes(list[1], count[1]),
                        sum_bytes(list[2], count[2]),
                        0};
    qsort(j->dies, (size_t)j->n_dies, sizeof *j->dies, by_last);
    qsort(j->born, (size_t)j->n_born, sizeof *j->born, by_first);
    size_t dead = 0, end = 0;
    for (int i = 0, k = 0; i < j->n_born; i++) {
        for (; k < j->n_dies && j->dies[k]->last < j->born[i]->first; k++) dead += align_up(j->dies[k]->bytes);
        end += align_up(j->born[i]->bytes);
        if (end > dead + j->margin) j->margin = end - dead;
    }
}

static size_t joint_bytes(const struct joint *j)
{
    size_t first = j->margin + j->dies_bytes;
    return j->whole_bytes + (first > j->born_bytes ? first : j->born_bytes);
}

static size_t put_row(struct program *p, struct place *const *x, int n, size_t at)
{
    for (int i = 0; i < n; i++) {
        x[i]->home = HOME_ACT;
        put(p, x[i], at);
        at += align_up(x[i]->bytes);
    }
    return at;
}

/* Places the slab's places in one slab, if all slabs together are smaller so. */
static bool place_jointly(struct program *p, struct place *const *slab, int n, int64_t n_act, int64_t n_wgrad)
{
    struct joint j;
    joint_init(&j, p, slab, n);
    size_t apart = to_size(n_act) * j.dies_bytes + to_size(n_wgrad) * (j.whole_bytes + j.born_bytes);
    bool better = n_wgrad > 0 && j.n_born && to_size(n_wgrad) * joint_bytes(&j) < apart;
    if (better) {
        size_t at = put_row(p, j.whole, j.n_whole, 0);
        put_row(p, j.born, j.n_born, at);
        put_row(p, j.dies, j.n_dies, at + j.margin);
    }
    xfree(j.whole);
    xfree(j.dies);
    xfree(j.born);
    return better;
}

void program_place(struct program *p, int64_t n_act, int64_t n_wgrad)
{
    struct place **todo = xcalloc((size_t)(p->n_places + 1), sizeof *todo);
    struct lives l;
    int n_slab;
    lifetimes(p);
    for (int i = 0; i < p->n_places; i++)
        if (p->places[i].first >= 0) p->places[i].home = home_of(p, &p->places[i]);
    int n = places_todo(p, todo, &n_slab);
    qsort(todo, (size_t)n_slab, sizeof *todo, by_size);
    p->joint = place_jointly(p, todo, n_slab, n_act, n_wgrad);
    for (int i = 0; i < n_slab && !p->joint; i++) put(p, todo[i], todo[i]->bytes ? p->bytes[todo[i]->home] : 0);
    lives_init(&l, todo + n_slab, n - n_slab);
    qsort(todo + n_slab, (size_t)(n - n_slab), sizeof *todo, by_size);
    for (int i = n_slab; i < n; i++) {
        put(p, todo[i], lowest(&l, todo[i]));
        lives_add(&l, todo[i]);
    }
    lives_fini(&l);
    xfree(todo);
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
            here |=
                names_slot(p, &c->in[k], slot) || names_slot(p, &c->din[k], slot) || names_slot(p, &c->acc[k], slot);
        for (int k = 0; k < KERNEL_MAX_OUT; k++)
            here |= names_slot(p, &c->out[k], slot) || names_slot(p, &c->dout[k], slot);
        if (here) return phase_of(p, i);
    }
    return -1;
}

/* What travels is under way for as long as it says, and nothing touches its bytes meanwhile. */
static void check_travel(const struct program *p, int i)
{
    const struct instr *c = &p->code[i];
    bool travels = op_row(c->op)->travels;
    CHECK(c->until > i && c->until <= p->begin[phase_of(p, i) + 1] && (travels || c->until == i + 1),
          "instruction %d, %s, is under way until %d", i, op_row(c->op)->name, c->until);
    for (int k = i + 1; k < c->until; k++)
        CHECK(!instr_touches(&p->code[k], c), "instruction %d, %s, touches what %d, %s, has under way until %d", k,
              op_row(p->code[k].op)->name, i, op_row(c->op)->name, c->until);
    const struct operand *own[] = {&c->in[0], &c->out[0], &c->dout[0], &c->din[0], &c->acc[0]};
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        CHECK(own[k]->place < 0 || p->places[own[k]->place].last >= c->until - 1,
              "the bytes of instruction %d, %s, are somebody else's before it ends", i, op_row(c->op)->name);
}

void program_check(const struct program *p)
{
    for (int i = 0; i < p->begin[PHASE_N]; i++) check_travel(p, i);
    for (int i = 0; i < p->n_places; i++)
        for (int j = 0; j < i; j++) {
            const struct place *a = &p->places[i], *b = &p->places[j];
            if (a->first < 0 || b->first < 0 || a->slot >= 0 || b->slot >= 0 || !clash(p, a, b)) continue;
            CHECK(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset,
                  "places %d and %d overlap in %s", i, j, home_name(a->home));
        }
}

void program_free(struct program *p)
{
    if (!p) return;
    xfree(p->code);
    xfree(p->places);
    xfree(p);
}
