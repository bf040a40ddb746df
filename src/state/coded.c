/* SPDX-License-Identifier: Apache-2.0 */
/* Every exchange here is a few parameters, each cut into one part per rank of a group: pieces, where ranks share out
 * state; equal numbers of rows, where replicas share out the work of adding. A rank's parts of all parameters lie one
 * after the other in a buffer, the ranks' runs one after the other: what is written for others, and what is gathered.
 * What arrives to be added are runs of one length, this rank's, from all ranks. */
#include "state/coded.h"

#include <string.h>

#include "base/mem.h"
#include "kernel/codec_rows.h"
#include "layout/region.h"
#include "state/exchange.h"

static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }
static struct comm *group_of(const struct exchange *x, int unit)
{
    return exchange_group(x, x->s->units.unit[unit].first);
}

bool coded_grads(const struct exchange *x) { return x->coding.grad != CODEC_KEPT; }
bool coded_params(const struct exchange *x, int unit)
{
    return x->coding.param != CODEC_KEPT && !x->s->units.unit[unit].frozen && size_of(group_of(x, unit)) > 1;
}

/* ---- parameters in parts ---- */
struct parts {
    struct comm *group;
    enum codec codec;
    enum dtype t;
    int unit, slot, first, n; /* parameters [first, first + n) */
    bool pieces;              /* cut as state is; else into equal rows of this rank's piece, */
    bool held;                /* or of all that it holds */
    coded_where_fn *whole;    /* a parameter's numbers of all parts, one after the other */
    coded_where_fn *own;      /* of this rank's part alone; NULL: among those */
    const bool *leaves;       /* by parameter: these only; NULL: all of them */
    void *v;                  /* coded_sum: of its one parameter, */
    int64_t v_n;              /* and how many */
};

static int64_t stretch_of(const struct exchange *x, const struct parts *p, int param)
{
    return p->v_n ? p->v_n : p->held ? x->s->table->p[param].held : x->s->units.piece[param].n;
}

/* Elements of every rank's part, into x->coding.count. */
static const int64_t *count_parts(struct exchange *x, const struct parts *p, int param)
{
    int64_t *count = x->coding.count, lo, hi;
    const struct param *of = &x->s->table->p[param];
    if (p->pieces) {
        units_counts(&x->s->units, param, count);
        return count;
    }
    int64_t row = of->nd > 1 ? of->ln[of->nd - 1] : 1, n = stretch_of(x, p, param);
    for (int r = 0; r < size_of(p->group); r++) {
        region_split(row ? n / row : 0, r, size_of(p->group), &lo, &hi);
        count[r] = (hi - lo) * row;
    }
    return count;
}

/* n elements of a parameter, whole rows of it, as they are written. */
static struct codec_args args_of(const struct exchange *x, const struct parts *p, int param, int64_t n)
{
    const struct param *of = &x->s->table->p[param];
    struct codec_args a = {.codec = CODEC_KEPT, .shape = {1, n, 0}, .t = p->t, .parts = 1};
    if (of->nd < 2) return a;
    int64_t cols = of->ln[of->nd - 1];
    a.codec = p->codec;
    a.shape = (struct codec_rows){cols ? n / cols : 0, cols, of->lo[of->nd - 1]};
    return a;
}

static int64_t bytes_of(const struct exchange *x, const struct parts *p, int param, int64_t n)
{
    struct codec_args a = args_of(x, p, param, n);
    return (int64_t)codec_bytes(a.codec, &a.shape, a.t);
}

static bool takes_part(const struct exchange *x, const struct parts *p, int param)
{
    return x->s->table->p[param].held && (!p->leaves || p->leaves[param]);
}

/* Bytes of every rank's run, into x->coding.bytes; all of them. */
static int64_t count_bytes(struct exchange *x, const struct parts *p)
{
    int64_t all = 0, *bytes = x->coding.bytes;
    int size = size_of(p->group);
    memset(bytes, 0, to_size(size) * sizeof *bytes);
    for (int i = p->first; i < p->first + p->n; i++) {
        if (!takes_part(x, p, i)) continue;
        const int64_t *count = count_parts(x, p, i);
        for (int r = 0; r < size; r++) bytes[r] += bytes_of(x, p, i, count[r]);
    }
    for (int r = 0; r < size; r++) all += bytes[r];
    return all;
}

static void *element(const void *p, int64_t i, enum dtype t)
{
    return p ? (char *)(uintptr_t)p + to_size(i) * dtype_bytes(t) : NULL;
}

static void *whole_of(const struct exchange *x, const struct parts *p, int param)
{
    return p->v ? p->v : p->whole(x, p->unit, param, p->slot);
}

/* Where the part of rank `rank` lies that begins at element lo of the parameter. */
static void *part_of(const struct exchange *x, const struct parts *p, int param, int64_t lo, bool mine)
{
    if (mine && p->own) return p->own(x, p->unit, param, p->slot);
    return element(whole_of(x, p, param), lo, p->t);
}

enum pass { WRITE_ALL, WRITE_OWN, READ_ALL };

/* One pass over all parts, of all ranks or of this one; `bytes` is what count_bytes says. */
static void walk(struct exchange *x, const struct parts *p, const struct buffer *b, enum pass pass)
{
    int64_t *at = x->coding.at, *bytes = x->coding.bytes, from = 0;
    int size = size_of(p->group), rank = p->group ? comm_rank(p->group) : 0;
    if (x->s->dev->counts_only) return;
    for (int r = 0; r < size; from += bytes[r++]) at[r] = from;
    for (int i = p->first; i < p->first + p->n; i++) {
        if (!takes_part(x, p, i)) continue;
        const int64_t *count = count_parts(x, p, i);
        int64_t lo = 0;
        for (int r = 0; r < size; lo += count[r++]) {
            struct codec_args a = args_of(x, p, i, count[r]);
            a.codes = (char *)b->p + at[r];
            at[r] += bytes_of(x, p, i, count[r]);
            if (!count[r] || (pass == WRITE_OWN && r != rank)) continue;
            a.x = part_of(x, p, i, lo, pass == WRITE_OWN);
            if (pass == READ_ALL) codec_decode(x->stream, &a);
            else codec_encode(x->stream, &a);
        }
    }
}

/* This rank's parts are the sums of what all ranks wrote of them; add, by parameter: added to what is there. */
static void add_up(struct exchange *x, const struct parts *p, const struct buffer *in, const bool *add)
{
    int size = size_of(p->group), rank = p->group ? comm_rank(p->group) : 0;
    int64_t at = 0, mine = x->coding.bytes[rank];
    if (x->s->dev->counts_only) return;
    for (int i = p->first; i < p->first + p->n; i++) {
        if (!takes_part(x, p, i)) continue;
        const int64_t *count = count_parts(x, p, i);
        int64_t lo = 0;
        for (int r = 0; r < rank; r++) lo += count[r];
        struct codec_args a = args_of(x, p, i, count[rank]);
        a.parts = size;
        a.stride = to_size(mine);
        a.add = add && add[i];
        a.codes = (char *)in->p + at;
        a.x = part_of(x, p, i, lo, true);
        at += bytes_of(x, p, i, count[rank]);
        if (count[rank]) codec_decode(x->stream, &a);
    }
}

static const char *name_of(const struct exchange *x, const struct parts *p) { return x->s->table->p[p->first].name; }

/* Everybody's parts to their ranks. */
static int64_t deal(struct exchange *x, const struct parts *p, struct coded_set *set)
{
    count_bytes(x, p);
    walk(x, p, &set->out, WRITE_ALL);
    for (int r = 0; r < size_of(p->group); r++) x->coding.each[r] = x->coding.bytes[comm_rank(p->group)];
    return comm_all_to_all_v(p->group, set->out.p, set->in.p, x->coding.bytes, x->coding.each, DT_U8, name_of(x, p));
}

/* This rank's parts to everybody. */
static int64_t collect(struct exchange *x, const struct parts *p, const struct buffer *b)
{
    int64_t from = 0;
    count_bytes(x, p);
    walk(x, p, b, WRITE_OWN);
    for (int r = 0; r < comm_rank(p->group); r++) from += x->coding.bytes[r];
    return comm_all_gather_v(p->group, b->p ? (char *)b->p + from : NULL, b->p, x->coding.bytes, DT_U8, name_of(x, p));
}

static void read_all(struct exchange *x, const struct parts *p, const struct buffer *b)
{
    count_bytes(x, p);
    walk(x, p, b, READ_ALL);
}

/* ---- gradients ---- */
static void *piece_grad(const struct exchange *x, int unit, int param, int slot)
{
    (void)unit, (void)slot;
    return store_piece_grad(x->s, param);
}
static void *whole_grad(const struct exchange *x, int unit, int param, int slot)
{
    (void)unit, (void)slot;
    return store_grad_ptr(x->s, param);
}

static struct parts grads_of(const struct exchange *x, int unit, struct comm *group)
{
    const struct unit *u = &x->s->units.unit[unit];
    return (struct parts){.group = group,
                          .codec = x->coding.grad,
                          .t = x->s->grad_dtype,
                          .unit = unit,
                          .first = u->first,
                          .n = u->n};
}

static struct parts shard_parts(const struct exchange *x, int unit)
{
    struct parts p = grads_of(x, unit, group_of(x, unit));
    p.pieces = true;
    p.own = piece_grad;
    return p;
}

static struct parts leaving_parts(const struct exchange *x, int unit)
{
    struct parts p = shard_parts(x, unit);
    p.leaves = x->unit[unit].leaves;
    return p;
}

static struct parts replicate_parts(const struct exchange *x, int unit)
{
    struct parts p = grads_of(x, unit, x->replicate);
    p.whole = piece_grad;
    return p;
}

int64_t coded_shard_begin(struct exchange *x, int unit, int slot, coded_where_fn *source)
{
    struct parts p = leaving_parts(x, unit);
    p.whole = source;
    p.slot = slot;
    return deal(x, &p, &x->coding.shard);
}

void coded_shard_end(struct exchange *x, int unit, const bool *add)
{
    struct parts p = leaving_parts(x, unit);
    count_bytes(x, &p);
    add_up(x, &p, &x->coding.shard.in, add);
}

int64_t coded_replicate_begin(struct exchange *x, int unit)
{
    struct parts p = replicate_parts(x, unit);
    return deal(x, &p, &x->coding.replicate);
}

int64_t coded_replicate_back(struct exchange *x, int unit)
{
    struct parts p = replicate_parts(x, unit);
    count_bytes(x, &p);
    add_up(x, &p, &x->coding.replicate.in, NULL);
    return collect(x, &p, &x->coding.replicate.out);
}

void coded_replicate_end(struct exchange *x, int unit)
{
    struct parts p = replicate_parts(x, unit);
    read_all(x, &p, &x->coding.replicate.out);
}

int64_t coded_spread_begin(struct exchange *x, int unit)
{
    struct parts p = shard_parts(x, unit);
    return collect(x, &p, &x->coding.spread.out);
}

void coded_spread_end(struct exchange *x, int unit)
{
    struct parts p = shard_parts(x, unit);
    p.whole = whole_grad;
    read_all(x, &p, &x->coding.spread.out);
}

void coded_round(struct exchange *x, int unit)
{
    struct parts p = grads_of(x, unit, NULL); /* all of this rank's pieces, for itself */
    p.whole = piece_grad;
    count_bytes(x, &p);
    walk(x, &p, &x->coding.spread.out, WRITE_ALL);
    walk(x, &p, &x->coding.spread.out, READ_ALL);
}

static struct parts sum_parts(const struct exchange *x, struct comm *c, int param, void *v, int64_t n)
{
    struct parts p = grads_of(x, x->s->units.of_param[param], c);
    p.first = param;
    p.n = 1;
    p.v = v;
    p.v_n = n;
    return p;
}

void coded_sum(struct exchange *x, struct comm *c, int param, void *v, int64_t n)
{
    struct parts p = sum_parts(x, c, param, v, n);
    struct coded_set *set = &x->coding.replicate;
    CHECK(set->unit < 0, "unit %d is still summed over replicas", set->unit);
    comm_wait(c, deal(x, &p, set));
    add_up(x, &p, &set->in, NULL);
    comm_wait(c, collect(x, &p, &set->out));
    read_all(x, &p, &set->out);
}

/* ---- parameters ---- */
static void *piece_param(const struct exchange *x, int unit, int param, int slot)
{
    (void)unit, (void)slot;
    return store_piece_param(x->s, param);
}
static void *whole_param(const struct exchange *x, int unit, int param, int slot)
{
    (void)unit;
    return exchange_param_ptr(x, param, slot);
}

static struct parts param_parts(const struct exchange *x, int unit, int slot)
{
    const struct unit *u = &x->s->units.unit[unit];
    return (struct parts){.group = group_of(x, unit),
                          .codec = x->coding.param,
                          .t = x->s->dtype,
                          .unit = unit,
                          .slot = slot,
                          .first = u->first,
                          .n = u->n,
                          .pieces = true,
                          .whole = whole_param,
                          .own = piece_param};
}

void coded_round_params(struct exchange *x)
{
    bool travels = !store_state_is_whole(x->s) && store_param_is_whole(x->s);
    for (int u = 0; travels && u < x->s->units.n; u++) {
        if (!coded_params(x, u)) continue;
        struct parts p = param_parts(x, u, -1);
        p.group = NULL;
        p.pieces = false;
        p.held = true;
        p.own = NULL;
        count_bytes(x, &p);
        walk(x, &p, &x->coding.wire[0].bytes, WRITE_ALL);
        walk(x, &p, &x->coding.wire[0].bytes, READ_ALL);
    }
}

static void arrive(struct exchange *x, struct coded_wire *w)
{
    if (w->unit < 0) return;
    struct parts p = param_parts(x, w->unit, w->slot);
    comm_wait(p.group, w->ticket);
    read_all(x, &p, &w->bytes);
    w->unit = -1;
}

int64_t coded_gather(struct exchange *x, int unit, int slot)
{
    struct coding *k = &x->coding;
    struct coded_wire *w = &k->wire[slot >= 0 ? slot : k->next];
    if (slot < 0) k->next = (k->next + 1) % k->n_wires;
    arrive(x, w);
    struct parts p = param_parts(x, unit, slot);
    *w = (struct coded_wire){w->bytes, unit, slot, collect(x, &p, &w->bytes)};
    return w->ticket;
}

void coded_gather_wait(struct exchange *x, int unit)
{
    for (int i = 0; i < x->coding.n_wires; i++)
        if (x->coding.wire[i].unit == unit) arrive(x, &x->coding.wire[i]);
}

/* ---- memory ---- */
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

struct room { /* of a set, of its largest exchange */
    int64_t out, in;
};

static void make_room(struct exchange *x, const struct parts *p, struct room *r)
{
    r->out = most(r->out, count_bytes(x, p));
    r->in = most(r->in, size_of(p->group) * x->coding.bytes[p->group ? comm_rank(p->group) : 0]);
}

static int new_set(struct exchange *x, struct coded_set *set, const struct room *r, struct err *e)
{
    int rc = r->out ? buffer_new(&set->out, x->s->dev, MEM_COMM, to_size(r->out), e) : OK;
    return rc || !r->in ? rc : buffer_new(&set->in, x->s->dev, MEM_COMM, to_size(r->in), e);
}

/* What model axes have in parts (reduce.c) goes through the set of the replicas. */
static void room_across(struct exchange *x, struct room *r)
{
    const struct store *s = x->s;
    for (int a = 0; a < AXIS_N; a++)
        for (int i = 0; size_of(x->across[a]) > 1 && i < s->table->n; i++) {
            int64_t n = exchange_across(x, i, (enum axis)a);
            struct parts p = sum_parts(x, x->across[a], i, NULL, n);
            if (n) make_room(x, &p, r);
        }
}

static int grad_buffers(struct exchange *x, struct err *e)
{
    struct room shard = {0}, replicate = {0}, spread = {0};
    for (int u = 0; u < x->s->units.n; u++) {
        struct parts pieces = shard_parts(x, u), stretches = replicate_parts(x, u), own = grads_of(x, u, NULL);
        bool shared = size_of(pieces.group) > 1, whole = store_state_is_whole(x->s);
        if (x->s->units.unit[u].frozen) continue;
        if (shared) make_room(x, &pieces, &shard);
        if (size_of(x->replicate) > 1) make_room(x, &stretches, &replicate);
        if (shared && whole) make_room(x, &pieces, &spread);
        if (shared && !whole && size_of(x->replicate) == 1) make_room(x, &own, &spread);
    }
    room_across(x, &replicate);
    spread.in = 0;
    int rc = new_set(x, &x->coding.shard, &shard, e);
    if (!rc) rc = new_set(x, &x->coding.replicate, &replicate, e);
    return rc ? rc : new_set(x, &x->coding.spread, &spread, e);
}

static int param_buffers(struct exchange *x, int slots, struct err *e)
{
    struct room r = {0};
    int rc = OK, n = store_param_is_whole(x->s) ? 2 : slots;
    if (store_state_is_whole(x->s)) return OK; /* nothing travels */
    for (int u = 0; u < x->s->units.n; u++) {
        struct parts p = param_parts(x, u, -1);
        if (coded_params(x, u)) make_room(x, &p, &r);
    }
    x->coding.wire = xcalloc((size_t)n + 1, sizeof *x->coding.wire);
    for (int i = 0; !rc && r.out && i < n; i++, x->coding.n_wires += !rc) {
        rc = buffer_new(&x->coding.wire[i].bytes, x->s->dev, MEM_COMM, to_size(r.out), e);
        x->coding.wire[i].unit = -1;
    }
    return rc;
}

int coded_buffers(struct exchange *x, int param_slots, struct err *e)
{
    struct coding *k = &x->coding;
    if (k->grad == CODEC_KEPT && k->param == CODEC_KEPT) return OK;
    CHECK(!x->exact, "a codec beside numerics.exact_order");
    int size = size_of(x->shard) + size_of(x->expert) + size_of(x->replicate);
    for (int a = 0; a < AXIS_N; a++) size += size_of(x->across[a]);
    int64_t **const scratch[] = {&k->count, &k->bytes, &k->each, &k->at};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        *scratch[i] = xcalloc((size_t)size, sizeof **scratch[i]);
    k->shard.unit = k->replicate.unit = k->spread.unit = -1;
    int rc = k->grad != CODEC_KEPT && x->s->has_grad ? grad_buffers(x, e) : OK;
    return rc || k->param == CODEC_KEPT ? rc : param_buffers(x, param_slots, e);
}

void coded_fini(struct exchange *x)
{
    struct coding *k = &x->coding;
    struct coded_set *const set[] = {&k->shard, &k->replicate, &k->spread};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        buffer_free(&set[i]->out);
        buffer_free(&set[i]->in);
    }
    for (int i = 0; i < k->n_wires; i++) buffer_free(&k->wire[i].bytes);
    xfree(k->wire);
    xfree(k->count);
    xfree(k->bytes);
    xfree(k->each);
    xfree(k->at);
}
