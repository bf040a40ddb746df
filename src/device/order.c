/* SPDX-License-Identifier: Apache-2.0 */
/* A list of accesses, walked from end to end: thousands in a training step of a test's size, and two comparisons rule
 * most of them out. Rows that are a step apart (the queries in a product of queries, keys and values) are compared
 * exactly, for neighbours in one tensor are what overlapping work is about. Rejected: a tree of intervals (rows would
 * be intervals of their own), and shadow bytes (8 bytes of clock for each byte of the device). */
#include "device/order.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct access {
    struct byte_span span;
    int lane;
    uint64_t seq; /* on its lane */
    struct order_who who;
};

struct order {
    order_report_fn *report;
    void *ctx;
    bool used[ORDER_LANES];
    uint64_t last[ORDER_LANES]; /* operations on a lane so far: goes on when its number is given out again */
    struct access *list;
    int64_t n, room;
};

struct order *order_new(order_report_fn *report, void *ctx)
{
    struct order *o = xcalloc(1, sizeof *o);
    o->report = report;
    o->ctx = ctx;
    return o;
}

void order_free(struct order *o)
{
    if (!o) return;
    xfree(o->list);
    xfree(o);
}

/* ---- lanes ---- */
int order_lane_new(struct order *o)
{
    int i = 0;
    while (i < ORDER_LANES && o->used[i]) i++;
    CHECK(i < ORDER_LANES, "%d streams and collectives at once", ORDER_LANES);
    o->used[i] = true;
    return i;
}

void order_lane_free(struct order *o, int lane) { o->used[lane] = false; }

void order_join(struct order_clock *to, const struct order_clock *from)
{
    for (int i = 0; i < ORDER_LANES; i++)
        if (to->at[i] < from->at[i]) to->at[i] = from->at[i];
}

static bool before(const struct access *a, const struct order_clock *c) { return a->seq <= c->at[a->lane]; }

/* ---- spans ---- */
static uintptr_t first_of(const struct byte_span *s) { return (uintptr_t)s->p; }
static uintptr_t end_of(const struct byte_span *s)
{
    return (uintptr_t)s->p + (size_t)(s->rows - 1) * s->step + s->bytes;
}
static bool dense(const struct byte_span *s) { return s->rows == 1; }

static struct byte_span normal(struct byte_span s)
{
    if (s.rows > 1 && s.step == s.bytes) {
        s.bytes *= (size_t)s.rows;
        s.rows = 1;
    }
    if (s.rows == 1) s.step = s.bytes;
    return s;
}

/* Bytes [lo, hi) and some row of s. */
static bool meets_range(const struct byte_span *s, uintptr_t lo, uintptr_t hi)
{
    uintptr_t p = first_of(s);
    if (hi <= p || lo >= end_of(s)) return false;
    size_t row = lo < p + s->bytes ? 0 : (lo - p - s->bytes) / s->step + 1; /* the first that ends beyond lo */
    return row < (size_t)s->rows && p + row * s->step < hi;
}

static bool overlap(const struct byte_span *a, const struct byte_span *b)
{
    if (end_of(a) <= first_of(b) || end_of(b) <= first_of(a)) return false;
    if (dense(a)) return meets_range(b, first_of(a), end_of(a));
    if (dense(b)) return meets_range(a, first_of(b), end_of(b));
    const struct byte_span *few = a->rows < b->rows ? a : b, *many = few == a ? b : a;
    for (int64_t i = 0; i < few->rows; i++) {
        uintptr_t lo = first_of(few) + (size_t)i * few->step;
        if (meets_range(many, lo, lo + few->bytes)) return true;
    }
    return false;
}

static bool covers(const struct byte_span *a, const struct byte_span *b)
{
    if (dense(a)) return first_of(a) <= first_of(b) && end_of(b) <= end_of(a);
    return a->p == b->p && a->bytes == b->bytes && a->step == b->step && a->rows == b->rows;
}

/* ---- what is remembered ---- */
static struct access *push(struct order *o)
{
    CHECK(o->n < 1 << 24, "%lld accesses to remember", (long long)o->n);
    GROW(o->list, o->n, o->room, 1);
    return &o->list[o->n++];
}

/* Without [lo, hi), which lies in part inside of it; the rest behind becomes an access of its own. */
static void cut(struct order *o, int64_t i, uintptr_t lo, uintptr_t hi)
{
    struct access a = o->list[i];
    uintptr_t p = first_of(&a.span), end = end_of(&a.span);
    if (p < lo && hi < end) {
        struct access *rest = push(o);
        *rest = a;
        rest->span.p = (const void *)hi;
        rest->span.bytes = rest->span.step = end - hi;
    }
    if (p < lo) a.span.bytes = a.span.step = lo - p;
    else a.span.p = (const void *)hi, a.span.bytes = a.span.step = end - hi;
    o->list[i] = a;
}

/* Who comes after a new access that covers the old one and is ordered with it, is ordered with the old one; who is not
 * ordered with the old one is not ordered with the new one either. So the old one says nothing that the new one does
 * not. */
static bool supersede(struct order *o, int64_t i, const struct byte_span *s)
{
    struct access *a = &o->list[i];
    if (a->span.writes && !s->writes) return false;
    if (covers(s, &a->span)) return true;
    if (dense(s) && dense(&a->span)) cut(o, i, first_of(s), end_of(s));
    return false;
}

static void meet(struct order *o, int lane, const struct order_clock *clock, const struct order_who *who,
                 const struct byte_span *s)
{
    int64_t there = o->n; /* pieces that are cut off come behind: they do not meet s */
    for (int64_t i = 0; i < there;) {
        struct access *a = &o->list[i];
        bool mine = a->lane == lane && a->seq == clock->at[lane]; /* the same operation */
        if (!overlap(&a->span, s) || (mine && (a->span.writes || !s->writes))) {
            i++;
            continue;
        }
        if (!mine && !before(a, clock) && (a->span.writes || s->writes)) {
            o->report(o->ctx, &(struct order_race){a->who, *who, a->span, *s});
            a = &o->list[i];
        }
        if ((mine || before(a, clock)) && supersede(o, i, s)) {
            o->list[i] = o->list[--there];
            o->list[there] = o->list[--o->n];
        } else {
            i++;
        }
    }
}

void order_next(struct order *o, int lane, struct order_clock *clock, const struct order_who *who,
                const struct byte_span *span, int n)
{
    clock->at[lane] = ++o->last[lane];
    for (int i = 0; i < n; i++) {
        struct byte_span s = normal(span[i]);
        if (!s.p || !s.bytes || s.rows < 1) continue;
        meet(o, lane, clock, who, &s);
        *push(o) = (struct access){s, lane, clock->at[lane], *who};
    }
}

void order_forget(struct order *o, const struct order_clock *clock, const struct order_who *who, const void *p,
                  size_t bytes)
{
    struct byte_span all = {.p = p, .bytes = bytes, .step = bytes, .rows = 1, .writes = true};
    for (int64_t i = 0; i < o->n;) {
        struct access *a = &o->list[i];
        if (!overlap(&a->span, &all)) {
            i++;
            continue;
        }
        if (!before(a, clock)) o->report(o->ctx, &(struct order_race){a->who, *who, a->span, all});
        o->list[i] = o->list[--o->n];
    }
}
