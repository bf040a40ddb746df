/* SPDX-License-Identifier: Apache-2.0 */
/* Activations that wait elsewhere: what forward leaves for backward is put away in another memory after its last use in
 * forward, and fetched before its first use in backward. Copies travel beside work, like collectives:
 *
 *     F   layer 0 | layer 1 | layer 2 ...           B   ... layer 2 | layer 1 | layer 0
 *                  store 0   store 1                     fetch 1     fetch 0
 *
 * A store begins after the last instruction that touches the place and is done when the layer after the next one
 * begins; a fetch begins where the layer above its first reader's does. So scratch holds about two layers of what slabs
 * held for every microbatch. In backward the place is another one: forward's lives in F alone, backward's in B (or from
 * B to W), and homes follow from that as ever (place.c). What only W reads is fetched at the end of B, so that the slab
 * that is away is free when B is over, as one of activations is.
 *
 * No more than about AWAY_MOST copies of a direction are under way: a store is done at the latest when that many more
 * have begun, a fetch begins when that many before it were used. Small places stay: a copy of them costs as much as a
 * larger one's. Cost: O(instructions + places log places). Rejected: copies by layer as one block (places would have to
 * lie side by side in scratch, which others use in between); doing without the last layers, which backward wants at
 * once (right for one microbatch, wrong for a pipeline's first stage; a later choice by cost). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tape/lower_impl.h"

struct move { /* of a place: between instructions of one phase's list */
    int place, away;
    int at;    /* before this instruction of the old list */
    int user;  /* and who wants it: fetches; the place's last toucher: stores */
    int until; /* an instruction of the old list; 0: whatever underway.c finds */
};

struct moves {
    struct move *m;
    int n;
};

struct uses {
    int first[PHASE_N], last[PHASE_N]; /* -1: none */
};

typedef void operand_fn(struct operand *o, int at, void *ctx);

static void each_operand(struct code *c, operand_fn *fn, void *ctx)
{
    for (int i = 0; i < c->n; i++) {
        struct instr *x = &c->p[i];
        for (int k = 0; k < KERNEL_MAX_IN; k++) {
            struct operand *three[] = {&x->in[k], &x->din[k], &x->acc[k]};
            for (int j = 0; j < 3; j++)
                if (three[j]->place >= 0) fn(three[j], i, ctx);
        }
        for (int k = 0; k < KERNEL_MAX_OUT; k++) {
            if (x->out[k].place >= 0) fn(&x->out[k], i, ctx);
            if (x->dout[k].place >= 0) fn(&x->dout[k], i, ctx);
        }
    }
}

struct scan {
    struct uses *uses;
    int phase;
};

static void note_use(struct operand *o, int at, void *ctx)
{
    const struct scan *s = ctx;
    struct uses *u = &s->uses[o->place];
    if (u->first[s->phase] < 0) u->first[s->phase] = at;
    u->last[s->phase] = at;
}

static struct uses *find_uses(struct lower *l)
{
    struct uses *u = xmalloc(sizeof *u * ((size_t)l->p->n_places + 1));
    memset(u, 0xff, sizeof *u * ((size_t)l->p->n_places + 1));
    for (int ph = 0; ph < PHASE_N; ph++) each_operand(&l->code[ph], note_use, &(struct scan){u, ph});
    return u;
}

static bool goes_away(const struct lower *l, const struct uses *u, int place)
{
    const struct place *x = &l->p->places[place];
    bool waits = u->first[PHASE_F] >= 0 && (u->first[PHASE_B] >= 0 || u->first[PHASE_W] >= 0);
    return waits && x->slot < 0 && x->of >= 0 && x->bytes && x->bytes >= l->o.away.least_bytes;
}

/* ---- layers: stretches of nodes with one label ---- */
static int *stretches(const struct tape *t)
{
    int *of = xcalloc((size_t)t->n_nodes + 1, sizeof *of);
    for (int i = 1; i < t->n_nodes; i++) of[i] = of[i - 1] + (t->nodes[i].layer != t->nodes[i - 1].layer);
    return of;
}

/* By instruction, the farthest stretch so far: upwards in F, downwards in B, whatever is moved around. */
static int *farthest(const struct lower *l, enum program_phase ph)
{
    const struct code *c = &l->code[ph];
    int *of = stretches(l->t), *far = xcalloc((size_t)c->n + 1, sizeof *far);
    for (int i = 0; i < c->n; i++) {
        int here = of[c->p[i].node], last = i ? far[i - 1] : here;
        far[i] = ph == PHASE_F ? (here > last ? here : last) : here < last ? here : last;
    }
    xfree(of);
    return far;
}

/* The first instruction that is beyond this stretch; n: none. */
static int first_beyond(const int *far, int n, int stretch, bool up)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (up ? far[mid] > stretch : far[mid] <= stretch) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

/* ---- what moves when ---- */
static int by_user(const void *a, const void *b)
{
    const struct move *x = a, *y = b;
    return x->user != y->user ? (x->user < y->user ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

/* Copies stand before or behind what runs in rounds, not between. */
static int outside(const struct code *c, int at, bool behind)
{
    while (at > 0 && at < c->n && c->p[at].loop && c->p[at].loop == c->p[at - 1].loop) at += behind ? 1 : -1;
    return at;
}

static void plan_stores(const struct lower *l, struct moves *s)
{
    int n = l->code[PHASE_F].n, *far = farthest(l, PHASE_F);
    qsort(s->m, (size_t)s->n, sizeof *s->m, by_user);
    for (int i = 0; i < s->n; i++) {
        struct move *m = &s->m[i];
        m->at = outside(&l->code[PHASE_F], m->user + 1, true);
        m->until = outside(&l->code[PHASE_F], first_beyond(far, n, far[m->user] + 1, true), true);
    }
    xfree(far);
}

static void plan_fetches(const struct lower *l, struct moves *s)
{
    int n = l->code[PHASE_B].n, *far = farthest(l, PHASE_B);
    qsort(s->m, (size_t)s->n, sizeof *s->m, by_user);
    for (int i = 0; i < s->n; i++) {
        struct move *m = &s->m[i];
        m->at = m->user < n ? first_beyond(far, n, far[m->user] + 1, false) : n;
        if (m->at > m->user) m->at = m->user;
        if (i >= AWAY_MOST && m->at < s->m[i - AWAY_MOST].user) m->at = s->m[i - AWAY_MOST].user;
        m->at = outside(&l->code[PHASE_B], m->at, false);
    }
    xfree(far);
}

/* ---- the new lists ---- */
static struct operand whole(const struct lower *l, int place)
{
    tid of = l->p->places[place].of;
    struct operand o = {.view = tensor_view(l->t, of), .place = place};
    return o;
}

static void emit(const struct lower *l, struct code *to, const struct move *m, enum op op, const struct instr *beside)
{
    struct instr *i = lower_emit(to);
    i->op = op;
    i->kphase = KERNEL_FWD;
    i->node = beside->node; /* what it stands beside: for labels of layers */
    i->again = beside->again;
    i->n_in = i->n_out = 1;
    i->in[0] = whole(l, op == OP_STORE ? m->place : m->away);
    i->out[0] = whole(l, op == OP_STORE ? m->away : m->place);
}

/* `until` in the new list: as planned, and before the one that is AWAY_MOST further begins. */
static void limit(struct code *to, const struct moves *s, const int *of_move, const int *of_old)
{
    for (int k = 0; k < s->n; k++) {
        int *until = &to->p[of_move[k]].until;
        *until = s->m[k].until ? of_old[s->m[k].until] : to->n;
        if (k + AWAY_MOST < s->n && of_move[k + AWAY_MOST] < *until) *until = of_move[k + AWAY_MOST];
    }
}

static void put_in(const struct lower *l, struct code *c, const struct moves *s, enum op op)
{
    struct code to = {0};
    int *of_old = xcalloc((size_t)c->n + 1, sizeof *of_old), *of_move = xcalloc((size_t)s->n + 1, sizeof *of_move);
    for (int i = 0, k = 0; i <= c->n; i++) {
        for (; k < s->n && s->m[k].at == i; k++) {
            of_move[k] = to.n;
            emit(l, &to, &s->m[k], op, &c->p[op == OP_STORE || i == c->n ? i - 1 : i]);
        }
        of_old[i] = to.n;
        if (i < c->n) *lower_emit(&to) = c->p[i];
    }
    limit(&to, s, of_move, of_old);
    xfree(of_old);
    xfree(of_move);
    xfree(c->p);
    *c = to;
}

static void rename_place(struct operand *o, int at, void *ctx)
{
    const int *to = ctx;
    (void)at;
    if (to[o->place] >= 0) o->place = to[o->place];
}

void lower_offload(struct lower *l)
{
    int n = l->p->n_places, *back = xmalloc(sizeof *back * 3 * ((size_t)n + 1));
    struct uses *u = find_uses(l);
    struct moves stores = {.m = xcalloc((size_t)n + 1, sizeof *stores.m)},
                 fetches = {.m = xcalloc((size_t)n + 1, sizeof *fetches.m)};
    for (int i = 0; i < 3 * (n + 1); i++) back[i] = -1;
    for (int i = 0; i < n && l->code[PHASE_B].n; i++) {
        if (!goes_away(l, &u[i], i)) continue;
        struct place x = l->p->places[i]; /* pushing moves the list */
        size_t block = l->o.away.align ? l->o.away.align : 1;
        int away = lower_place(l, x.of, x.grad, (x.bytes + block - 1) / block * block);
        l->p->places[away].away = true;
        back[i] = lower_place(l, x.of, x.grad, x.bytes);
        bool in_b = u[i].first[PHASE_B] >= 0;
        stores.m[stores.n++] = (struct move){.place = i, .away = away, .user = u[i].last[PHASE_F]};
        fetches.m[fetches.n++] =
            (struct move){.place = back[i], .away = away, .user = in_b ? u[i].first[PHASE_B] : l->code[PHASE_B].n};
    }
    each_operand(&l->code[PHASE_B], rename_place, back);
    each_operand(&l->code[PHASE_W], rename_place, back);
    plan_stores(l, &stores);
    plan_fetches(l, &fetches);
    put_in(l, &l->code[PHASE_F], &stores, OP_STORE);
    put_in(l, &l->code[PHASE_B], &fetches, OP_FETCH);
    xfree(stores.m);
    xfree(fetches.m);
    xfree(back);
    xfree(u);
}
