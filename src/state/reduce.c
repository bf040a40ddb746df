/* SPDX-License-Identifier: Apache-2.0 */
/* A unit's gradients on their way, in up to three stages, each enqueued when the one before it is done:
 *
 *   SHARD      over dp_shard: into pieces, or everywhere at once (zero 0 with nothing else to do)
 *   REPLICATE  the pieces over dp_replicate, after the last contribution of the step; encoded (coded.h) it is two
 *              messages, terms there and sums BACK
 *   SPREAD     zero 0: the finished pieces to all ranks of dp_shard
 *
 * Stages move on when another unit wants the landing or a slot, which happens at the same place of the program on every
 * rank, and at the end of the step: so every group sees one order of operations. Replicas sum pieces, never wholes: N
 * times fewer bytes.
 *
 * A unit may leave in several goes, each of some of its parameters (norms after B, products after W): each parameter is
 * sent once, and what comes after the last go is of the whole unit. */
#include <string.h>

#include "base/mem.h"
#include "kernel/flat.h"
#include "state/exchange.h"

static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }
static bool counts_only(const struct exchange *x) { return x->s->dev->counts_only; }

/* Element `i` of a unit, in a buffer that holds one unit. */
static void *in_unit(const struct buffer *b, int64_t i, enum dtype t)
{
    return b->p ? (char *)b->p + to_size(i) * dtype_bytes(t) : NULL;
}

/* Over which ranks a unit is shared out. */
static struct comm *group_of(const struct exchange *x, int unit)
{
    return exchange_group(x, x->s->units.unit[unit].first);
}

/* The unit's pieces lie one after the other in the gradient buffer. */
static bool pieces_in_a_row(const struct exchange *x, int unit)
{
    return !store_grad_is_whole(x->s) || size_of(group_of(x, unit)) == 1;
}

static void *landing_of(const struct exchange *x, int unit, int param)
{
    const struct units *u = &x->s->units;
    return in_unit(&x->landing, u->piece[param].offset - u->unit[unit].shard_offset, x->s->grad_dtype);
}

/* What is sent for a parameter: out of the store, of the temporary, or of the temporary rounded to bf16. */
static const void *source_of(const struct exchange *x, int unit, int param, int slot)
{
    const struct store *s = x->s;
    if (!store_reduces_each(s)) return store_grad_ptr(s, param);
    if (s->grad_dtype == DT_F32) return exchange_grad_ptr(x, param, slot);
    return in_unit(&x->wire, s->table->p[param].offset - s->units.unit[unit].offset, s->grad_dtype);
}

/* The next stretch, from *i on, of the unit's parameters that this reduction hands on: neighbours that are alike in
 * whether the store holds something of their gradients already. Returns the first of them and, through *n, how many;
 * -1: there are no more. */
static int next_run(const struct exchange *x, int unit, int *i, int *n)
{
    const struct unit *u = &x->s->units.unit[unit];
    const bool *leaves = x->unit[unit].leaves;
    int end = u->first + u->n;
    while (*i < end && leaves && !leaves[*i]) ++*i;
    int first = *i;
    while (*i < end && (!leaves || leaves[*i]) && x->added[*i] == x->added[first]) ++*i;
    *n = *i - first;
    return *n ? first : -1;
}

/* From now on the store holds something of all parameters that this reduction has handed on. */
static void set_added(struct exchange *x, int unit)
{
    const struct unit *u = &x->s->units.unit[unit];
    const bool *leaves = x->unit[unit].leaves;
    for (int i = u->first; i < u->first + u->n; i++) x->added[i] |= !leaves || leaves[i];
}

static bool leaves_now(const struct exchange *x, int unit, int param)
{
    const bool *leaves = x->unit[unit].leaves;
    return x->s->table->p[param].held && (!leaves || leaves[param]);
}

/* One all-reduce brings the sum to everybody, for nothing else happens to it here. */
static bool in_one_go(const struct exchange *x, int unit)
{
    return store_state_is_whole(x->s) && !store_reduces_each(x->s) && size_of(x->replicate) == 1 && !coded_grads(x) &&
           !(x->exact && size_of(group_of(x, unit)) > 2);
}

/* ---- units on their way to a landing, or out of a slot ---- */
static void landing_add(struct exchange *x, int unit)
{
    int at = x->n_landing_units++;
    for (; at > 0 && x->landing_units[at - 1] > unit; at--) x->landing_units[at] = x->landing_units[at - 1];
    x->landing_units[at] = unit;
}

static void landing_remove(struct exchange *x, int unit)
{
    int n = 0;
    for (int i = 0; i < x->n_landing_units; i++)
        if (x->landing_units[i] != unit) x->landing_units[n++] = x->landing_units[i];
    CHECK(n == x->n_landing_units - 1, "unit %d was not on its way", unit);
    x->n_landing_units = n;
}

/* ---- stages, encoded ---- */
static void move_on(struct exchange *x, int unit);

/* The unit that has the buffers of a stage gives them up. */
static void take(struct exchange *x, struct coded_set *set, int unit)
{
    while (set->unit >= 0) move_on(x, set->unit);
    set->unit = unit;
}

static void *source_at(const struct exchange *x, int unit, int param, int slot)
{
    return (void *)(uintptr_t)source_of(x, unit, param, slot);
}

/* What nobody is sent is not written: a unit that is shared out over one rank. */
static void coded_shard(struct exchange *x, int unit, int slot)
{
    const struct store *s = x->s;
    const struct unit *u = &s->units.unit[unit];
    struct reduction *r = &x->unit[unit];
    if (size_of(group_of(x, unit)) > 1) {
        take(x, &x->coding.shard, unit);
        r->ticket = coded_shard_begin(x, unit, slot, source_at);
        return;
    }
    if (!store_reduces_each(s)) return;
    for (int i = u->first; i < u->first + u->n && !counts_only(x); i++)
        if (leaves_now(x, unit, i))
            flat_sum_into(x->stream, store_piece_grad(s, i), s->grad_dtype, source_of(x, unit, i, slot), s->grad_dtype,
                          s->table->p[i].held, x->added[i]);
}

static void coded_shard_over(struct exchange *x, int unit)
{
    bool each = store_reduces_each(x->s);
    if (x->coding.shard.unit == unit) {
        coded_shard_end(x, unit, each ? x->added : NULL);
        x->coding.shard.unit = -1;
    }
    if (each) set_added(x, unit);
}

/* Sums that replicas exchanged have been through the codec. */
static void coded_spread(struct exchange *x, int unit)
{
    struct reduction *r = &x->unit[unit];
    bool whole = store_state_is_whole(x->s);
    if (size_of(group_of(x, unit)) == 1 || (!whole && size_of(x->replicate) > 1)) return;
    take(x, &x->coding.spread, unit);
    if (whole) {
        r->ticket = coded_spread_begin(x, unit);
        r->stage = REDUCTION_SPREAD;
        return;
    }
    coded_round(x, unit);
    x->coding.spread.unit = -1;
}

/* ---- stages ---- */
static void start_spread(struct exchange *x, int unit)
{
    const struct store *s = x->s;
    struct reduction *r = &x->unit[unit];
    const struct unit *u = &s->units.unit[unit];
    r->stage = REDUCTION_NONE;
    r->ticket = 0;
    if (coded_grads(x)) {
        coded_spread(x, unit);
        return;
    }
    if (size_of(group_of(x, unit)) == 1 || !store_state_is_whole(s) || in_one_go(x, unit)) return;
    for (int i = u->first; i < u->first + u->n; i++) {
        if (!s->table->p[i].held) continue;
        units_counts(&s->units, i, x->counts);
        r->ticket = comm_all_gather_v(group_of(x, unit), store_piece_grad(s, i), store_grad_ptr(s, i), x->counts,
                                      s->grad_dtype, s->table->p[i].name);
    }
    r->stage = REDUCTION_SPREAD;
}

static void sum_replicas(struct exchange *x, int unit, int param, int64_t n)
{
    const struct store *s = x->s;
    void *v = store_piece_grad(s, param);
    const char *name = s->table->p[param].name;
    if (x->exact && size_of(x->replicate) > 2) exact_all_reduce(&x->tree, x->replicate, v, n, name);
    else x->unit[unit].ticket = comm_all_reduce(x->replicate, v, v, n, s->grad_dtype, COMM_SUM, name);
}

static void start_replicate(struct exchange *x, int unit)
{
    const struct unit *u = &x->s->units.unit[unit];
    x->unit[unit].stage = REDUCTION_REPLICATE;
    x->unit[unit].ticket = 0;
    if (size_of(x->replicate) == 1) {
        start_spread(x, unit);
    } else if (coded_grads(x)) {
        take(x, &x->coding.replicate, unit);
        x->unit[unit].ticket = coded_replicate_begin(x, unit);
    } else if (pieces_in_a_row(x, unit) && !x->exact) {
        sum_replicas(x, unit, u->first, u->shard_numel);
    } else {
        for (int i = u->first; i < u->first + u->n; i++)
            if (x->s->table->p[i].held) sum_replicas(x, unit, i, x->s->units.piece[i].n);
    }
}

/* What arrived in the landing, because the store held something of it already, is added to the store. */
static void add_landing(struct exchange *x, int unit)
{
    const struct store *s = x->s;
    enum dtype t = s->grad_dtype;
    int i = s->units.unit[unit].first, n, first;
    if (counts_only(x)) return;
    while ((first = next_run(x, unit, &i, &n)) >= 0) {
        if (!x->added[first]) continue;
        int64_t row = 0;
        for (int k = first; k < first + n; k++) {
            if (pieces_in_a_row(x, unit)) row += s->units.piece[k].n;
            else
                flat_sum_into(x->stream, store_piece_grad(s, k), t, landing_of(x, unit, k), t, s->units.piece[k].n,
                              true);
        }
        if (row) flat_sum_into(x->stream, store_piece_grad(s, first), t, landing_of(x, unit, first), t, row, true);
    }
}

/* Begins the sum of a unit's gradients over the ranks that share it out. At zero 1 it runs in the store, in place; out
 * of a temporary the sum goes to the store where that holds nothing of this step yet, else to the landing. */
static void start_shard(struct exchange *x, int unit)
{
    const struct store *s = x->s;
    const struct unit *u = &s->units.unit[unit];
    struct reduction *r = &x->unit[unit];
    r->stage = REDUCTION_SHARD;
    r->ticket = 0;
    if (coded_grads(x)) {
        coded_shard(x, unit, r->slot);
        r->slot = -1; /* its numbers are written */
        return;
    }
    if (store_reduces_each(s)) landing_add(x, unit);
    struct comm *group = group_of(x, unit);
    if (size_of(group) == 1 && !store_reduces_each(s)) return; /* the pieces are where they belong */
    if (in_one_go(x, unit)) {
        void *g = store_grad_ptr(s, u->first);
        r->ticket = comm_all_reduce(group, g, g, u->numel, s->grad_dtype, COMM_SUM, s->table->p[u->first].name);
        return;
    }
    for (int i = u->first; i < u->first + u->n; i++) {
        if (!leaves_now(x, unit, i)) continue;
        bool land = store_reduces_each(s) && x->added[i];
        CHECK(!land || s->many, "unit %d is reduced twice without a landing", unit);
        const void *whole = source_of(x, unit, i, r->slot);
        void *to = land ? landing_of(x, unit, i) : store_piece_grad(s, i);
        if (size_of(group) == 1) { /* no other rank shares this unit: a copy */
            size_t bytes = to_size(s->table->p[i].held) * dtype_bytes(s->grad_dtype);
            if (whole && to && whole != to) stream_copy(x->stream, to, whole, bytes);
            continue;
        }
        if (x->exact && size_of(group) > 2) {
            exact_reduce_scatter(&x->tree, group, whole, to, i);
            continue;
        }
        units_counts(&s->units, i, x->counts);
        r->ticket = comm_reduce_scatter_v(group, whole, to, x->counts, s->grad_dtype, COMM_SUM, s->table->p[i].name);
    }
}

static void end_shard(struct exchange *x, int unit)
{
    struct reduction *r = &x->unit[unit];
    if (r->ticket) comm_wait(group_of(x, unit), r->ticket);
    if (coded_grads(x)) {
        coded_shard_over(x, unit);
    } else if (store_reduces_each(x->s)) {
        landing_remove(x, unit);
        add_landing(x, unit);
        set_added(x, unit);
    }
    r->slot = -1;
    if (r->last) start_replicate(x, unit);
    else r->stage = REDUCTION_NONE;
}

static void end_replicate(struct exchange *x, int unit)
{
    struct reduction *r = &x->unit[unit];
    if (r->ticket) comm_wait(x->replicate, r->ticket);
    if (x->coding.replicate.unit == unit && coded_grads(x)) {
        r->ticket = coded_replicate_back(x, unit);
        r->stage = REDUCTION_BACK;
    } else {
        start_spread(x, unit);
    }
}

static void end_back(struct exchange *x, int unit)
{
    comm_wait(x->replicate, x->unit[unit].ticket);
    coded_replicate_end(x, unit);
    x->coding.replicate.unit = -1;
    start_spread(x, unit);
}

static void end_spread(struct exchange *x, int unit)
{
    struct reduction *r = &x->unit[unit];
    if (r->ticket) comm_wait(group_of(x, unit), r->ticket);
    if (coded_grads(x)) {
        coded_spread_end(x, unit);
        x->coding.spread.unit = -1;
    }
    r->stage = REDUCTION_NONE;
}

/* Ends the stage that a unit is in, and starts the next. */
static void move_on(struct exchange *x, int unit)
{
    struct reduction *r = &x->unit[unit];
    switch (r->stage) {
    case REDUCTION_NONE: return;
    case REDUCTION_SHARD: end_shard(x, unit); return;
    case REDUCTION_REPLICATE: end_replicate(x, unit); return;
    case REDUCTION_BACK: end_back(x, unit); return;
    case REDUCTION_SPREAD: end_spread(x, unit); return;
    }
}

/* ---- calls ---- */
/* What becomes of a unit's temporary of fp32. keep: it is added to the gradients that this rank sums up in bf16; else
 * it is rounded for sending. */
static void round_unit(struct exchange *x, int unit, int slot, bool keep)
{
    const struct store *s = x->s;
    const struct unit *u = &s->units.unit[unit];
    int i = u->first, n, first;
    while (!counts_only(x) && (first = next_run(x, unit, &i, &n)) >= 0) {
        int64_t at = s->table->p[first].offset - u->offset, numel = 0;
        for (int k = first; k < first + n; k++) numel += s->table->p[k].held;
        void *to = keep ? store_grad_ptr(s, first) : in_unit(&x->wire, at, s->grad_dtype);
        flat_sum_into(x->stream, to, s->grad_dtype, in_unit(&x->grad_slot[slot], at, DT_F32), DT_F32, numel,
                      keep && x->added[first]);
    }
    if (keep) set_added(x, unit);
}

void exchange_reduce(struct exchange *x, int unit, int slot, const bool *leaves, bool last)
{
    const struct store *s = x->s;
    struct reduction *r = &x->unit[unit];
    bool each = store_reduces_each(s);
    if (!exchange_is_active(x)) return;
    if (each && (x->landing.dev || x->wire.dev)) /* there is one of them */
        while (x->n_landing_units) move_on(x, x->landing_units[0]);
    if (coded_grads(x)) take(x, &x->coding.shard, -1);
    if (each) /* what left after the other phase of this microbatch; with a landing it has been moved on already */
        while (r->stage != REDUCTION_NONE) move_on(x, unit);
    CHECK(r->stage == REDUCTION_NONE, "unit %d is reduced again before its turn", unit);
    r->leaves = leaves;
    if (s->grad_dtype != DT_F32) round_unit(x, unit, slot, !each);
    if (!each && !last) return;
    if (!each) r->leaves = NULL; /* all of it has been summed up here */
    r->slot = each && (coded_grads(x) || !x->wire.dev) ? slot : -1;
    r->last = last;
    start_shard(x, unit);
    if (size_of(group_of(x, unit)) == 1) move_on(x, unit);
}

void exchange_slot_free(struct exchange *x, int slot)
{
    for (int i = x->n_landing_units - 1; i >= 0; i--) /* one at most */
        if (x->unit[x->landing_units[i]].slot == slot) move_on(x, x->landing_units[i]);
}

void exchange_step_begin(struct exchange *x)
{
    x->n_landing_units = 0;
    memset(x->added, 0, to_size(x->s->table->n) * sizeof *x->added);
    for (int u = 0; u < x->s->units.n; u++) x->unit[u] = (struct reduction){.slot = -1};
}

/* What each rank of a model axis has only a part of. */
int64_t exchange_across(const struct exchange *x, int param, enum axis a)
{
    const struct param *p = &x->s->table->p[param];
    const struct mesh *m = &x->s->table->mesh;
    bool of_tp = !p->expert || (a == AXIS_TP && m->size[AXIS_ETP] == m->size[AXIS_TP] &&
                                layout_type(&p->layout, AXIS_ETP) == SPMD_R); /* an expert's adapter */
    if (p->type.on[a] != SPMD_R || !p->held || !of_tp || p->frozen) return 0;
    return store_state_is_whole(x->s) ? p->held : x->s->units.piece[param].n;
}

static void sum_across(struct exchange *x, enum axis a)
{
    const struct store *s = x->s;
    if (size_of(x->across[a]) == 1) return;
    for (int i = 0; i < s->table->n; i++) {
        int64_t n = exchange_across(x, i, a);
        void *g = !n ? NULL : store_state_is_whole(s) ? store_grad_ptr(s, i) : store_piece_grad(s, i);
        if (n && coded_grads(x)) coded_sum(x, x->across[a], i, g, n);
        else if (n) comm_all_reduce(x->across[a], g, g, n, s->grad_dtype, COMM_SUM, s->table->p[i].name);
    }
    comm_sync(x->across[a]);
}

void exchange_reduce_finish(struct exchange *x)
{
    for (int u = 0; u < x->s->units.n; u++) exchange_gather_wait(x, u); /* of units that no program here reads */
    for (bool busy = true; busy;) {
        busy = false;
        for (int u = 0; u < x->s->units.n; u++) {
            move_on(x, u);
            busy |= x->unit[u].stage != REDUCTION_NONE;
        }
    }
    for (int a = 0; a < AXIS_N; a++) sum_across(x, (enum axis)a);
}
