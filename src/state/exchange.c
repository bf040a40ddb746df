/* One operation per parameter and step of the way, because a piece is a box of its parameter: no packing, and the same
 * element is summed in the same order whatever the zero level. Norm weights make small messages; on a shared-memory
 * transport they cost microseconds. Rejected: packing a unit rank by rank (a copy of all gradients, and bits that depend
 * on it). */
#include "state/exchange.h"

#include <string.h>

#include "base/mem.h"

static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }

bool exchange_is_needed(const struct exchange *x)
{
    bool any = size_of(x->shard) > 1 || size_of(x->replicate) > 1;
    for (int a = 0; a < AXIS_N; a++) any |= size_of(x->across[a]) > 1;
    return any;
}

int exchange_init(struct exchange *x, struct store *s, struct comm *shard, struct comm *replicate, int param_slots,
                  int grad_slots, struct err *e)
{
    *x = (struct exchange){.s = s, .shard = shard, .replicate = replicate};
    const struct units *u = &s->units;
    x->counts = xcalloc((size_t)u->n_ranks + 1, sizeof *x->counts);
    x->ticket = xcalloc((size_t)u->n + 1, sizeof *x->ticket);
    x->pending = xcalloc((size_t)u->n + 1, sizeof *x->pending);
    x->added = xcalloc((size_t)u->n + 1, sizeof *x->added);
    x->slot_of = xcalloc((size_t)u->n + 1, sizeof *x->slot_of);
    x->param_slot = xcalloc((size_t)param_slots + 1, sizeof *x->param_slot);
    x->grad_slot = xcalloc((size_t)grad_slots + 1, sizeof *x->grad_slot);
    int rc = OK;
    for (int i = 0; !rc && i < param_slots; i++, x->n_param_slots += !rc)
        rc = buffer_new(&x->param_slot[i], s->dev, MEM_COMM, to_size(u->largest_unit) * dtype_bytes(s->dtype), e);
    for (int i = 0; !rc && i < grad_slots; i++, x->n_grad_slots += !rc)
        rc = buffer_new(&x->grad_slot[i], s->dev, MEM_COMM, to_size(u->largest_unit) * 4, e);
    if (!rc && grad_slots)
        rc = buffer_new(&x->landing, s->dev, MEM_COMM, to_size(u->largest_unit_shard) * 4, e);
    if (rc) exchange_fini(x);
    return rc;
}

void exchange_fini(struct exchange *x)
{
    for (int i = 0; i < x->n_param_slots; i++) buffer_free(&x->param_slot[i]);
    for (int i = 0; i < x->n_grad_slots; i++) buffer_free(&x->grad_slot[i]);
    buffer_free(&x->landing);
    xfree(x->param_slot);
    xfree(x->grad_slot);
    xfree(x->counts);
    xfree(x->ticket);
    xfree(x->pending);
    xfree(x->added);
    xfree(x->slot_of);
    memset(x, 0, sizeof *x);
}

/* ---- addresses ---- */
static void *in_slot(const struct exchange *x, const struct buffer *slot, int param, size_t width)
{
    const struct unit *u = &x->s->units.unit[x->s->units.of_param[param]];
    return slot->p ? (char *)slot->p + to_size(x->s->table->p[param].offset - u->offset) * width : NULL;
}

void *exchange_param_ptr(const struct exchange *x, int param, int slot)
{
    if (store_param_is_whole(x->s)) return store_param_ptr(x->s, param);
    return slot < 0 ? NULL : in_slot(x, &x->param_slot[slot], param, dtype_bytes(x->s->dtype));
}

void *exchange_grad_ptr(const struct exchange *x, int param, int slot)
{
    if (store_grad_is_whole(x->s)) return store_grad_ptr(x->s, param);
    return slot < 0 ? NULL : in_slot(x, &x->grad_slot[slot], param, 4);
}

static char *landing_ptr(const struct exchange *x, int unit, int param)
{
    const struct unit *u = &x->s->units.unit[unit];
    int64_t i = x->s->units.piece[param].offset - u->shard_offset;
    return x->landing.p ? (char *)x->landing.p + to_size(i) * 4 : NULL;
}

/* ---- parameters ---- */
static int64_t gather_param(struct exchange *x, int param, const void *piece, void *whole)
{
    units_counts(&x->s->units, param, x->counts);
    return comm_all_gather_v(x->shard, piece, whole, x->counts, x->s->dtype, x->s->table->p[param].name);
}

void exchange_gather(struct exchange *x, int unit, int slot)
{
    const struct unit *u = &x->s->units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++)
        x->ticket[unit] = gather_param(x, i, store_piece_param(x->s, i), exchange_param_ptr(x, i, slot));
}

void exchange_gather_wait(struct exchange *x, int unit)
{
    comm_wait(x->shard, x->ticket[unit]);
}

void exchange_publish(struct exchange *x)
{
    if (size_of(x->shard) == 1 || store_state_is_whole(x->s) || !store_param_is_whole(x->s)) return;
    for (int i = 0; i < x->s->table->n; i++)
        if (x->s->table->p[i].held) gather_param(x, i, store_piece_param(x->s, i), store_param_ptr(x->s, i));
    comm_sync(x->shard);
}

/* ---- gradients ---- */
static int64_t scatter_param(struct exchange *x, int param, const float *whole, float *piece)
{
    units_counts(&x->s->units, param, x->counts);
    return comm_reduce_scatter_v(x->shard, whole, piece, x->counts, DT_F32, COMM_SUM, x->s->table->p[param].name);
}

static void reduce_whole(struct exchange *x, int unit)
{
    const struct unit *u = &x->s->units.unit[unit];
    float *g = store_grad_ptr(x->s, u->first);
    const char *name = x->s->table->p[u->first].name;
    if (size_of(x->shard) > 1) x->ticket[unit] = comm_all_reduce(x->shard, g, g, u->numel, DT_F32, COMM_SUM, name);
}

/* Zero 1 in place; zero 2 and 3 out of the slot, into the shard when it is empty, else to the landing. */
static void reduce_to_pieces(struct exchange *x, int unit, int slot)
{
    const struct unit *u = &x->s->units.unit[unit];
    bool land = !store_grad_is_whole(x->s) && x->added[unit];
    for (int i = u->first; i < u->first + u->n; i++) {
        const float *whole = exchange_grad_ptr(x, i, slot);
        float *to = land ? (float *)(void *)landing_ptr(x, unit, i) : store_piece_grad(x->s, i);
        x->ticket[unit] = scatter_param(x, i, whole, to);
    }
}

struct adding {
    float *to;
    const float *from;
    int64_t n;
};

static void add_member(void *arg, int member, int members)
{
    const struct adding *a = arg;
    int64_t lo, hi;
    team_split(a->n, member, members, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) a->to[i] += a->from[i];
}

static void add_landing(struct exchange *x, int unit)
{
    const struct unit *u = &x->s->units.unit[unit];
    if (!x->landing.p || !u->shard_numel) return;
    struct adding a = {store_piece_grad(x->s, u->first), (const float *)x->landing.p, u->shard_numel};
    team_run(x->s->dev->team, add_member, &a);
}

static void reduce_wait(struct exchange *x, int unit)
{
    if (!x->pending[unit]) return;
    if (size_of(x->shard) > 1) comm_wait(x->shard, x->ticket[unit]);
    if (!store_grad_is_whole(x->s)) {
        if (x->added[unit]) add_landing(x, unit);
        x->added[unit] = true;
    }
    x->pending[unit] = false;
}

void exchange_reduce(struct exchange *x, int unit, int slot)
{
    const struct store *s = x->s;
    if (!exchange_is_needed(x)) return;
    x->slot_of[unit] = slot;
    x->pending[unit] = true;
    if (!store_grad_is_whole(s)) /* the landing and the slots are few: one unit at a time */
        for (int v = 0; v < s->units.n; v++)
            if (v != unit && x->pending[v]) reduce_wait(x, v);
    if (store_state_is_whole(s)) reduce_whole(x, unit);
    else reduce_to_pieces(x, unit, slot);
}

void exchange_slot_free(struct exchange *x, int slot)
{
    for (int u = 0; u < x->s->units.n; u++)
        if (x->pending[u] && x->slot_of[u] == slot) reduce_wait(x, u);
}

void exchange_step_begin(struct exchange *x)
{
    for (int u = 0; u < x->s->units.n; u++) x->added[u] = x->pending[u] = false;
}

/* Pieces are then summed over the replicas: once a step, whatever the zero level. */
static void reduce_replicas(struct exchange *x)
{
    const struct store *s = x->s;
    if (size_of(x->replicate) == 1) return;
    if (store_state_is_whole(s)) {
        float *g = s->grad.p;
        comm_all_reduce(x->replicate, g, g, s->table->held, DT_F32, COMM_SUM, "gradients");
    } else {
        for (int i = 0; i < s->table->n; i++) {
            float *g = store_piece_grad(s, i);
            if (!s->table->p[i].held) continue;
            comm_all_reduce(x->replicate, g, g, s->units.piece[i].n, DT_F32, COMM_SUM, s->table->p[i].name);
        }
    }
    comm_sync(x->replicate);
}

/* What each rank of a model axis has only a part of. */
static void reduce_across(struct exchange *x, enum axis a)
{
    const struct store *s = x->s;
    if (size_of(x->across[a]) == 1) return;
    for (int i = 0; i < s->table->n; i++) {
        const struct param *p = &s->table->p[i];
        if (p->type.on[a] != SPMD_R || !p->held) continue;
        bool whole = store_state_is_whole(s);
        float *g = whole ? store_grad_ptr(s, i) : store_piece_grad(s, i);
        comm_all_reduce(x->across[a], g, g, whole ? p->held : s->units.piece[i].n, DT_F32, COMM_SUM, p->name);
    }
    comm_sync(x->across[a]);
}

void exchange_reduce_finish(struct exchange *x)
{
    if (!exchange_is_needed(x)) return;
    for (int u = 0; u < x->s->units.n; u++) reduce_wait(x, u);
    reduce_replicas(x);
    for (int a = 0; a < AXIS_N; a++) reduce_across(x, (enum axis)a);
}

/* ---- small sums ---- */
static void sum(struct exchange *x, void *v, int64_t n, enum dtype t)
{
    if (size_of(x->shard) > 1) comm_wait(x->shard, comm_all_reduce(x->shard, v, v, n, t, COMM_SUM, "sum"));
    if (size_of(x->replicate) > 1) comm_wait(x->replicate, comm_all_reduce(x->replicate, v, v, n, t, COMM_SUM, "sum"));
}

void exchange_sum_f64(struct exchange *x, double *v, int64_t n) { sum(x, v, n, DT_F64); }
void exchange_sum_i64(struct exchange *x, int64_t *v, int64_t n) { sum(x, v, n, DT_I64); }
