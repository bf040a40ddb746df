/* SPDX-License-Identifier: Apache-2.0 */
/* Rejected: one more buffer for pieces (they have a place in the slot, where the gathering leaves them); gathering when
 * the unit is read (the host would wait for the disk before the unit at hand is computed). */
#include "state/fetch.h"

#include "base/mem.h"
#include "device/tier.h"
#include "state/exchange.h"

static const struct array *array_of(const struct exchange *x) { return &x->s->array[STORE_PARAM]; }
static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }

bool fetch_on(const struct exchange *x) { return array_of(x)->row.away != 0; }

static bool on_disk(const struct exchange *x) { return array_of(x)->row.away == MEM_DISK; }

int fetch_ahead(const struct exchange *x)
{
    return fetch_on(x) && !store_param_is_whole(x->s) && (size_of(x->shard) > 1 || size_of(x->expert) > 1) ? 2 : 1;
}

size_t fetch_room(const struct exchange *x) { return on_disk(x) ? TIER_BLOCK : 0; }

size_t fetch_shift(const struct exchange *x, int unit)
{
    const struct array *a = array_of(x);
    if (!on_disk(x) || !a->whole) return 0;
    return to_size(a->at[x->s->units.unit[unit].first]) * dtype_bytes(a->row.dtype) % TIER_BLOCK;
}

int fetch_init(struct exchange *x, struct err *e)
{
    struct fetching *f = &x->fetching;
    int n = x->s->units.n, rc = OK;
    if (!fetch_on(x)) return OK;
    CHECK(x->coding.param == CODEC_KEPT, "weights that wait elsewhere do not travel in fewer bits");
    f->unit = xcalloc((size_t)n + 1, sizeof *f->unit);
    f->queue = xcalloc((size_t)n + 1, sizeof *f->queue);
    for (int u = 0; u < n && !rc; u++) {
        f->unit[u].slot = -1;
        rc = event_new(&f->unit[u].here, x->s->dev, e);
    }
    return rc ? rc : event_new(&f->before, x->s->dev, e);
}

void fetch_fini(struct exchange *x)
{
    struct fetching *f = &x->fetching;
    if (!f->unit) return;
    if (array_of(x)->own) stream_sync(array_of(x)->own); /* slots are read into until then */
    for (int u = 0; u < x->s->units.n; u++) event_free(f->unit[u].here);
    event_free(f->before);
    xfree(f->unit);
    xfree(f->queue);
}

/* ---- copies ---- */
/* The array's stream goes on behind all that computes. */
static void come_after(struct exchange *x)
{
    event_record(x->fetching.before, x->stream);
    event_wait(array_of(x)->own, x->fetching.before);
}

static char *piece_in_slot(const struct exchange *x, int param, int slot)
{
    char *whole = exchange_param_ptr(x, param, slot);
    return whole ? whole + to_size(x->s->units.piece[param].lo) * dtype_bytes(x->s->dtype) : NULL;
}

static void read_pieces(struct exchange *x, int unit, int slot)
{
    const struct array *a = array_of(x);
    const struct unit *u = &x->s->units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++) {
        struct array_span p = store_piece(x->s, i, STORE_PARAM);
        stream_bring_back(a->own, piece_in_slot(x, i, slot), array_at(a, p.at),
                          to_size(p.n) * dtype_bytes(a->row.dtype));
    }
}

static size_t unit_bytes(const struct exchange *x, int unit)
{
    return to_size(x->s->units.unit[unit].numel) * dtype_bytes(x->s->dtype);
}

static void read_unit(struct exchange *x, int unit, int slot)
{
    const struct array *a = array_of(x);
    int first = x->s->units.unit[unit].first;
    come_after(x);
    if (a->whole)
        stream_bring_back(a->own, exchange_param_ptr(x, first, slot), array_at(a, a->at[first]), unit_bytes(x, unit));
    else read_pieces(x, unit, slot);
    event_record(x->fetching.unit[unit].here, a->own);
}

/* ---- messages ---- */
static void gather_pieces(struct exchange *x, int unit, int slot)
{
    const struct unit *u = &x->s->units.unit[unit];
    event_wait(x->stream, x->fetching.unit[unit].here);
    for (int i = u->first; i < u->first + u->n; i++) {
        struct comm *g = exchange_group(x, i);
        if (size_of(g) == 1) continue;
        units_counts(&x->s->units, i, x->counts);
        x->gathered[unit] = comm_all_gather_v(g, piece_in_slot(x, i, slot), exchange_param_ptr(x, i, slot), x->counts,
                                              x->s->dtype, x->s->table->p[i].name);
    }
}

/* Of those that were read, in their order: all up to `unit`, which is needed now, and those that have been under way
 * since the unit before this one was needed. */
static void gather_queued(struct exchange *x, int unit)
{
    struct fetching *f = &x->fetching;
    int n = 0, upto = -1;
    for (int k = 0; k < f->n_queued; k++)
        if (f->queue[k] == unit || f->unit[f->queue[k]].since + 1 < f->needed) upto = k;
    for (int k = 0; k < f->n_queued; k++) {
        struct fetched *u = &f->unit[f->queue[k]];
        if (k > upto) {
            f->queue[n++] = f->queue[k];
            continue;
        }
        gather_pieces(x, f->queue[k], u->slot);
        u->slot = -1;
    }
    f->n_queued = n;
}

/* ---- what exchange.c calls ---- */
void fetch_gather(struct exchange *x, int unit, int slot)
{
    struct fetching *f = &x->fetching;
    read_unit(x, unit, slot);
    if (array_of(x)->whole) return;
    f->unit[unit].slot = slot;
    f->unit[unit].since = f->needed;
    f->queue[f->n_queued++] = unit;
}

void fetch_gather_wait(struct exchange *x, int unit)
{
    if (!fetch_on(x)) return;
    x->fetching.needed++;
    if (array_of(x)->whole) event_wait(x->stream, x->fetching.unit[unit].here);
    else gather_queued(x, unit);
}

void fetch_publish(struct exchange *x, int unit)
{
    const struct array *a = array_of(x);
    const int first = x->s->units.unit[unit].first, slot = unit % x->n_param_slots;
    if (!unit_bytes(x, unit)) return;
    come_after(x);
    read_pieces(x, unit, slot);
    event_record(x->fetching.unit[unit].here, a->own);
    gather_pieces(x, unit, slot);
    if (x->gathered[unit]) comm_wait(exchange_group(x, first), x->gathered[unit]);
    come_after(x);
    stream_put_away(a->own, array_at(a, a->at[first]), exchange_param_ptr(x, first, slot), unit_bytes(x, unit));
}
