/* SPDX-License-Identifier: Apache-2.0 */
/* An operand in a slot lies as it does in its blocks on disk, so that whole blocks are read and written in place;
 * stretches end where blocks do. Rejected: two slots (a fetch would wait for the copy out of the same slot, which has
 * just begun); one request for all operands (they are different arrays). */
#include "optim/staging.h"

#include <string.h>

#include "base/mem.h"

enum { SLOTS = 3, LEAST = 4096 /* elements */ };
enum { OF_MASTER, OF_COPY, OF_ARRAYS, OPERANDS = OF_ARRAYS + OPTIM_MAX_ARRAYS };

struct slot {
    struct buffer memory;
    struct event *here[OPERANDS]; /* fetched; of the copy, which is not: put away */
    struct event *stepped;
    struct optim_stretch away, staged; /* the same stretch, there and in the slot */
};

struct staging {
    const struct store *s;
    struct stream *st;
    int64_t each;                   /* elements of a slot */
    size_t region[OPERANDS], bytes; /* where an operand is in it */
    struct slot slot[SLOTS];
    int turn;
    struct slot *pending; /* fetched or about to be, and not stepped */
};

static bool waits_elsewhere(const struct array *a) { return array_is_here(a) && a->row.away; }

/* The most that is stepped in one stretch: slots for three are a part of what waits elsewhere also where that is
 * little. */
static int64_t longest(const struct store *s)
{
    int64_t n = 0;
    for (int k = 0; k < s->n_arrays; k++)
        if (waits_elsewhere(&s->array[k]) && s->array[k].n > n) n = s->array[k].n;
    if (n > 8 * LEAST) n = n / 8;
    else if (n > LEAST) n = LEAST;
    return n < STORE_WIDEN ? n : STORE_WIDEN;
}

/* Arrays that may be one optimizer's. */
static int arrays_away(const struct store *s)
{
    int n = 0;
    for (int k = STORE_ROWS; k < s->n_arrays; k++) n += waits_elsewhere(&s->array[k]);
    return n;
}

/* Only what can wait elsewhere has room: whole blocks, and one for where it begins in the first. */
static void find_regions(struct staging *x)
{
    const struct store *s = x->s;
    for (int k = 0; k < OPERANDS; k++) {
        const struct array *a = k == OF_MASTER ? store_array(s, STORE_MASTER) : &s->array[STORE_PARAM];
        bool copy = array_is_here(&s->array[STORE_MASTER]);
        bool has = k >= OF_ARRAYS ? k - OF_ARRAYS < arrays_away(s) : a->row.away && (k == OF_MASTER || copy);
        size_t width = k >= OF_ARRAYS ? sizeof(float) : dtype_bytes(a->row.dtype);
        x->region[k] = x->bytes;
        if (has) x->bytes += to_size(x->each) * width + TIER_BLOCK;
    }
}

static int slot_new(struct slot *o, const struct staging *x, struct err *e)
{
    int rc = buffer_new(&o->memory, x->s->dev, MEM_SCRATCH, x->bytes, e);
    for (int k = 0; !rc && k < OPERANDS; k++) rc = event_new(&o->here[k], x->s->dev, e);
    return rc ? rc : event_new(&o->stepped, x->s->dev, e);
}

int staging_new(struct staging **out, const struct store *s, struct stream *st, struct err *e)
{
    int64_t each = longest(s);
    *out = NULL;
    if (!each) return OK;
    struct staging *x = xcalloc(1, sizeof *x);
    *x = (struct staging){.s = s, .st = st, .each = (each + TIER_BLOCK - 1) / TIER_BLOCK * TIER_BLOCK};
    find_regions(x);
    int rc = OK;
    for (int i = 0; !rc && i < SLOTS; i++) rc = slot_new(&x->slot[i], x, e);
    if (rc) staging_free(x);
    else *out = x;
    return rc;
}

void staging_free(struct staging *x)
{
    if (!x) return;
    for (int k = 0; k < x->s->n_arrays; k++) /* what is put away reads slots until then */
        if (waits_elsewhere(&x->s->array[k])) stream_sync(x->s->array[k].own);
    for (int i = 0; i < SLOTS; i++) {
        buffer_free(&x->slot[i].memory);
        for (int k = 0; k < OPERANDS; k++) event_free(x->slot[i].here[k]);
        event_free(x->slot[i].stepped);
    }
    xfree(x);
}

/* ---- operands ---- */
/* The array of an operand; NULL: it stays where it is. */
static const struct array *array_of(const struct optim_call *call, const struct optim_stretch *r, int k)
{
    const struct store *s = call->s;
    const struct array *a = NULL;
    if (k == OF_MASTER) a = store_array(s, STORE_MASTER);
    else if (k == OF_COPY) a = r->copy ? &s->array[STORE_PARAM] : NULL;
    else if (r->array[k - OF_ARRAYS]) a = &s->array[call->which[r->group][k - OF_ARRAYS]];
    return a && a->row.away ? a : NULL;
}

static char *get_operand(const struct optim_stretch *r, int k)
{
    char *master = r->weights ? r->weights : (char *)r->master; /* in 16 bits: the weights themselves */
    return k == OF_MASTER ? master : k == OF_COPY ? r->copy : r->array[k - OF_ARRAYS];
}

static void set_operand(struct optim_stretch *r, int k, char *p)
{
    if (k == OF_MASTER && r->weights) r->weights = p;
    else if (k == OF_MASTER) r->master = (float *)(void *)p;
    else if (k == OF_COPY) r->copy = p;
    else r->array[k - OF_ARRAYS] = p;
}

static size_t bytes_of(const struct array *a, const struct optim_stretch *r)
{
    return to_size(r->n) * dtype_bytes(a->row.dtype);
}

/* ---- stretches ---- */
static void fetch(const struct staging *x, const struct optim_call *call, struct slot *o, const struct optim_stretch *r)
{
    o->away = o->staged = *r;
    for (int k = 0; k < OPERANDS; k++) {
        const struct array *a = array_of(call, r, k);
        if (!a) continue;
        char *p = get_operand(r, k), *room = (char *)o->memory.p + x->region[k];
        set_operand(&o->staged, k, room + (uintptr_t)p % TIER_BLOCK);
        if (k == OF_COPY) continue; /* is written and not read */
        stream_bring_back(a->own, get_operand(&o->staged, k), p, bytes_of(a, r));
        event_record(o->here[k], a->own);
    }
}

static void step_pending(struct staging *x, const struct optim_call *call, staging_step_fn *step)
{
    struct slot *o = x->pending;
    if (!o) return;
    for (int k = 0; k < OPERANDS; k++) {
        const struct array *a = array_of(call, &o->away, k);
        if (a) event_wait(x->st, o->here[k]);
    }
    step(call, o->staged);
    event_record(o->stepped, x->st);
    for (int k = 0; k < OPERANDS; k++) {
        const struct array *a = array_of(call, &o->away, k);
        if (!a) continue;
        event_wait(a->own, o->stepped);
        stream_put_away(a->own, get_operand(&o->away, k), get_operand(&o->staged, k), bytes_of(a, &o->away));
        if (k == OF_COPY) event_record(o->here[k], a->own);
    }
    x->pending = NULL;
}

/* Elements up to the end of a slot that begins where the block of its first operand away does. */
static int64_t room_for(const struct staging *x, const struct optim_call *call, const struct optim_stretch *r)
{
    for (int k = 0; k < OPERANDS; k++) {
        const struct array *a = array_of(call, r, k);
        if (a) return x->each - (int64_t)((uintptr_t)get_operand(r, k) % TIER_BLOCK / dtype_bytes(a->row.dtype));
    }
    return r->n;
}

void staging_stretch(struct staging *x, const struct optim_call *call, struct optim_stretch r, staging_step_fn *step)
{
    for (int64_t left = r.n, m; left > 0; left -= m) {
        struct optim_stretch piece = r;
        m = room_for(x, call, &r);
        if (m > left) m = left;
        piece.n = m;
        struct slot *o = &x->slot[x->turn++ % SLOTS];
        fetch(x, call, o, &piece);
        step_pending(x, call, step);
        x->pending = o;
        optim_advance(call, &r, m);
    }
}

void staging_finish(struct staging *x, const struct optim_call *call, staging_step_fn *step)
{
    step_pending(x, call, step);
}
