/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, addresses, parameters and small sums; gradients are state/reduce.c.
 *
 * One operation per parameter and step of the way, because a piece is a box of its parameter: no packing, and the same
 * element is summed in the same order whatever the zero level. Norm weights make small messages; on a shared-memory
 * transport they cost microseconds. Rejected: packing a unit rank by rank (a copy of all gradients, and bits that
 * depend on it). */
#include "state/exchange.h"

#include <string.h>

#include "base/mem.h"
#include "state/packed.h"

static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }

bool exchange_is_active(const struct exchange *x)
{
    bool any = size_of(x->shard) > 1 || size_of(x->expert) > 1 || size_of(x->replicate) > 1;
    for (int a = 0; a < AXIS_N; a++) any |= size_of(x->across[a]) > 1;
    return any || (x->s->has_grad && store_grad_is_temporary(x->s)) || (x->exact && x->tree.n_runs > 1);
}

static int64_t largest_travelling(const struct store *s)
{
    int64_t most = 0;
    for (int u = 0; u < s->units.n; u++)
        if (store_unit_travels(s, u) && s->units.unit[u].numel > most) most = s->units.unit[u].numel;
    return most;
}

int exchange_slots(struct exchange *x, int param_slots, int grad_slots, struct err *e)
{
    CHECK(!x->param_slot && !x->grad_slot, "slots are there already");
    x->param_slot = xcalloc((size_t)param_slots + 1, sizeof *x->param_slot);
    x->grad_slot = xcalloc((size_t)grad_slots + 1, sizeof *x->grad_slot);
    const struct units *u = &x->s->units;
    struct device *d = x->s->dev;
    size_t grad = dtype_bytes(x->s->grad_dtype);
    int rc = OK;
    for (int i = 0; !rc && i < param_slots; i++, x->n_param_slots += !rc)
        rc = buffer_new(&x->param_slot[i], d, fetch_on(x) ? MEM_PARAM : MEM_COMM,
                        to_size(largest_travelling(x->s)) * dtype_bytes(x->s->dtype) + fetch_room(x), e);
    for (int i = 0; !rc && i < grad_slots; i++, x->n_grad_slots += !rc)
        rc = buffer_new(&x->grad_slot[i], d, MEM_COMM, to_size(u->largest_moved) * 4, e);
    bool each = grad_slots && store_reduces_each(x->s);
    if (!rc && each && x->s->grad_dtype != DT_F32)
        rc = buffer_new(&x->wire, d, MEM_COMM, to_size(u->largest_moved) * grad, e);
    if (!rc && each && x->s->many && !coded_grads(x))
        rc = buffer_new(&x->landing, d, MEM_COMM, to_size(u->largest_moved_shard) * grad, e);
    return rc ? rc : coded_buffers(x, param_slots, e);
}

int exchange_init(struct exchange *x, struct store *s, const struct exchange_config *c, struct err *e)
{
    *x = (struct exchange){.s = s,
                           .stream = c->stream,
                           .shard = c->shard,
                           .replicate = c->replicate,
                           .expert = c->expert,
                           .sums = c->sums,
                           .host_shard = c->host_shard,
                           .host_replicate = c->host_replicate,
                           .coding = {.grad = c->grad, .param = c->param}};
    CHECK(size_of(c->shard) == size_of(c->host_shard) && size_of(c->replicate) == size_of(c->host_replicate),
          "ranks without their hosts");
    const struct units *u = &s->units;
    x->counts = xcalloc((size_t)(u->n_ranks + u->n_expert_ranks) + 1, sizeof *x->counts);
    x->gathered = xcalloc((size_t)u->n + 1, sizeof *x->gathered);
    x->unit = xcalloc((size_t)u->n + 1, sizeof *x->unit);
    x->added = xcalloc((size_t)s->table->n + 1, sizeof *x->added);
    x->landing_units = xcalloc((size_t)u->n + 1, sizeof *x->landing_units);
    int rc = fetch_init(x, e);
    if (!rc && c->exact && s->has_grad) {
        rc = exact_init(&x->tree, s, c->stream, c->n_microbatches, size_of(c->shard), size_of(c->replicate), e);
        x->exact = !rc;
    }
    if (rc) exchange_fini(x);
    return rc;
}

/* What was sent of a unit is here. */
static void arrived(struct exchange *x, int unit)
{
    if (x->gathered[unit]) comm_wait(exchange_group(x, x->s->units.unit[unit].first), x->gathered[unit]);
    coded_gather_wait(x, unit);
}

void exchange_fini(struct exchange *x)
{
    for (int u = 0; x->gathered && u < x->s->units.n; u++) arrived(x, u);
    fetch_fini(x);
    for (int i = 0; i < x->n_param_slots; i++) buffer_free(&x->param_slot[i]);
    for (int i = 0; i < x->n_grad_slots; i++) buffer_free(&x->grad_slot[i]);
    buffer_free(&x->wire);
    buffer_free(&x->landing);
    if (x->exact) exact_fini(&x->tree);
    coded_fini(x);
    xfree(x->param_slot);
    xfree(x->grad_slot);
    xfree(x->counts);
    xfree(x->gathered);
    xfree(x->unit);
    xfree(x->added);
    xfree(x->landing_units);
    memset(x, 0, sizeof *x);
}

/* ---- addresses ---- */
static void *in_slot(const struct exchange *x, const struct buffer *slot, int param, size_t width, size_t from)
{
    const struct unit *u = &x->s->units.unit[x->s->units.of_param[param]];
    return slot->p ? (char *)slot->p + from + to_size(x->s->table->p[param].offset - u->offset) * width : NULL;
}

void *exchange_param_ptr(const struct exchange *x, int param, int slot)
{
    if (!store_unit_travels(x->s, x->s->units.of_param[param])) return store_param_ptr(x->s, param);
    return slot < 0 ? NULL
                    : in_slot(x, &x->param_slot[slot], param, dtype_bytes(x->s->dtype),
                              fetch_shift(x, x->s->units.of_param[param]));
}

void *exchange_grad_ptr(const struct exchange *x, int param, int slot)
{
    if (!store_grad_is_temporary(x->s)) return store_grad_ptr(x->s, param);
    return slot < 0 || x->s->table->p[param].frozen ? NULL : in_slot(x, &x->grad_slot[slot], param, 4, 0);
}

/* ---- parameters ---- */
struct comm *exchange_group(const struct exchange *x, int param)
{
    return x->s->table->p[param].expert ? x->expert : x->shard;
}

static int64_t gather_param(struct exchange *x, int param, const void *piece, void *whole)
{
    struct comm *g = exchange_group(x, param);
    if (size_of(g) == 1) { /* shared out over nobody else: here already, or in another place */
        if (piece && whole && piece != whole)
            stream_copy(x->stream, whole, piece, to_size(x->s->table->p[param].held) * dtype_bytes(x->s->dtype));
        return 0;
    }
    units_counts(&x->s->units, param, x->counts);
    return comm_all_gather_v(g, piece, whole, x->counts, x->s->dtype, x->s->table->p[param].name);
}

/* Of a unit some of which is packed: numbers to their place in the slot, and where they are shared out from there to
 * everybody. */
static void bring_param(struct exchange *x, int unit, int param, int slot)
{
    const struct store *s = x->s;
    const struct param *p = &s->table->p[param];
    const bool whole = store_param_is_whole(s);
    char *to = exchange_param_ptr(x, param, slot),
         *piece = to && !whole ? to + to_size(s->units.piece[param].lo) * dtype_bytes(s->dtype) : to;
    if (p->packed) packed_bring(s, x->stream, param, piece);
    else if (whole && to && p->held)
        stream_copy(x->stream, to, store_param_ptr(s, param), to_size(p->held) * dtype_bytes(s->dtype));
    if (!whole) x->gathered[unit] = gather_param(x, param, p->packed ? piece : store_piece_param(s, param), to);
}

void exchange_gather(struct exchange *x, int unit, int slot)
{
    const struct unit *u = &x->s->units.unit[unit];
    if (fetch_on(x)) {
        fetch_gather(x, unit, slot);
        return;
    }
    if (coded_params(x, unit)) {
        x->gathered[unit] = coded_gather(x, unit, slot);
        return;
    }
    for (int i = u->first; i < u->first + u->n; i++)
        if (u->packed) bring_param(x, unit, i, slot);
        else x->gathered[unit] = gather_param(x, i, store_piece_param(x->s, i), exchange_param_ptr(x, i, slot));
}

void exchange_gather_wait(struct exchange *x, int unit)
{
    fetch_gather_wait(x, unit);
    arrived(x, unit);
}

void exchange_publish_unit(struct exchange *x, int unit)
{
    const struct unit *u = &x->s->units.unit[unit];
    if (store_state_is_whole(x->s) || !store_param_is_whole(x->s)) return;
    if (fetch_on(x)) {
        fetch_publish(x, unit);
        return;
    }
    if (coded_params(x, unit)) {
        x->gathered[unit] = coded_gather(x, unit, -1);
        return;
    }
    for (int i = u->first; i < u->first + u->n; i++)
        if (x->s->table->p[i].held && !x->s->table->p[i].packed) /* each has its codes */
            x->gathered[unit] = gather_param(x, i, store_piece_param(x->s, i), store_param_ptr(x->s, i));
}

void exchange_publish(struct exchange *x)
{
    for (int u = 0; u < x->s->units.n; u++) exchange_publish_unit(x, u);
}

/* ---- small sums ---- */
static void sum(struct exchange *x, void *v, int64_t n, enum dtype t)
{
    const char *what = t == DT_I64 ? "counts" : "loss and counts";
    struct comm *const level[] = {x->host_shard, x->host_replicate, x->sums};
    for (int k = 0; k < 3; k++)
        if (size_of(level[k]) > 1) comm_wait(level[k], comm_all_reduce(level[k], v, v, n, t, COMM_SUM, what));
}

void exchange_sum_f64(struct exchange *x, double *v, int64_t n) { sum(x, v, n, DT_F64); }
void exchange_sum_i64(struct exchange *x, int64_t *v, int64_t n) { sum(x, v, n, DT_I64); }
