/* SPDX-License-Identifier: Apache-2.0 */
/* The null device: it counts and does nothing else. A buffer is a number of bytes on the ledger (kept by
 * device.c, as for any device), copies move nothing, and time is a number: every stream has a clock, which a cost
 * function of its owner moves with each piece of work (device_cost_set), an event holds the virtual time of its stream,
 * and waiting moves a stream's clock forward to it; a collective has its own end, which is waited for likewise. What
 * the host reads back is zeros, so that code which looks at a loss or a flag behaves the same on every run. */
#include <string.h>

#include "base/mem.h"
#include "device/device.h"

static int null_alloc(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e)
{
    (void)d;
    (void)cat;
    (void)bytes;
    (void)e;
    *p = NULL;
    return OK;
}

static void null_release(struct device *d, enum mem_cat cat, void *p, size_t bytes)
{
    (void)d;
    (void)cat;
    (void)p;
    (void)bytes;
}

static void null_enqueue(struct stream *s, const struct stream_work *w)
{
    if (s->dev->cost) s->clock_s += s->dev->cost(s->dev->cost_ctx, s, w);
}

static void moved(struct stream *s, enum work_kind kind, const char *name, size_t bytes)
{
    if (s->dev->cost) null_enqueue(s, &(struct stream_work){.kind = kind, .name = name, .bytes = bytes});
}

static void null_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    (void)dst;
    (void)src;
    moved(s, WORK_COPY, "copy", bytes);
}

static void null_from_host(struct stream *s, void *dst, const void *host, size_t bytes)
{
    (void)dst;
    (void)host;
    moved(s, WORK_FROM_HOST, "copy from the host", bytes);
}

static void null_to_host(struct stream *s, void *host, const void *src, size_t bytes)
{
    (void)src;
    memset(host, 0, bytes);
    moved(s, WORK_TO_HOST, "copy to the host", bytes);
}

static void null_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                           int64_t n)
{
    (void)dst;
    (void)dst_step;
    (void)src;
    (void)src_step;
    moved(s, WORK_COPY, "copy of rows", bytes * (size_t)n);
}

static void null_away(struct stream *s, void *dst, const void *src, size_t bytes, bool out)
{
    (void)dst;
    (void)src;
    moved(s, out ? WORK_TO_HOST : WORK_FROM_HOST, out ? "put away" : "bring back", bytes);
}

static void null_zero(struct stream *s, void *dst, size_t bytes)
{
    (void)dst;
    moved(s, WORK_ZERO, "zero", bytes);
}

/* Work beside a stream: when it will be done. */
struct sides {
    double *end_s; /* by name, from 1; below 0: the name is free */
    int n, room;
};

static uint64_t null_fork(struct stream *s, const struct stream_work *w, uint64_t after)
{
    struct sides *x = s->dev->own;
    if (!s->dev->cost) return 0;
    if (!x) x = s->dev->own = xcalloc(1, sizeof *x);
    double from = s->clock_s;
    if (after && x->end_s[after - 1] > from) from = x->end_s[after - 1];
    int i = 0;
    while (i < x->n && x->end_s[i] >= 0) i++;
    GROW(x->end_s, i, x->room, 1);
    if (i == x->n) x->n++;
    x->end_s[i] = from + s->dev->cost(s->dev->cost_ctx, s, w);
    return (uint64_t)i + 1;
}

static void null_join(struct stream *s, uint64_t side, bool host)
{
    struct sides *x = s->dev->own;
    (void)host;
    if (s->clock_s < x->end_s[side - 1]) s->clock_s = x->end_s[side - 1];
    x->end_s[side - 1] = -1;
}

static void null_sync(struct stream *s) { (void)s; }

static void null_event_record(struct event *ev, struct stream *s) { ev->at_s = s->clock_s; }

static void null_event_wait(struct stream *s, struct event *ev)
{
    if (s->clock_s < ev->at_s) s->clock_s = ev->at_s;
}

static void null_destroy(struct device *d)
{
    struct sides *x = d->own;
    if (x) xfree(x->end_s);
    xfree(x);
    xfree(d);
}

static const struct device_ops null_ops = {
    .name = "null",
    .alloc = null_alloc,
    .host_alloc = null_alloc,
    .release = null_release,
    .copy = null_copy,
    .to_host = null_to_host,
    .from_host = null_from_host,
    .copy_rows = null_copy_rows,
    .away = null_away,
    .zero = null_zero,
    .sync = null_sync,
    .event_record = null_event_record,
    .event_wait = null_event_wait,
    .enqueue = null_enqueue,
    .fork = null_fork,
    .join = null_join,
    .destroy = null_destroy,
};

int device_null_new(struct device **d, struct err *e)
{
    (void)e;
    *d = xcalloc(1, sizeof **d);
    (*d)->ops = &null_ops;
    (*d)->counts_only = true;
    (*d)->kernels = "cpu";
    return OK;
}
