/* SPDX-License-Identifier: Apache-2.0 */
/* The null device: it counts and does nothing else. A buffer is a number of bytes on the ledger (kept by
 * device.c, as for any device), copies move nothing, and time is a number: every stream has a clock, an event
 * holds the virtual time of its stream, and waiting moves a stream's clock forward to it. What the host reads
 * back is zeros, so that code which looks at a loss or a flag behaves the same on every run. */
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

static void null_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    (void)s;
    (void)dst;
    (void)src;
    (void)bytes;
}

static void null_to_host(struct stream *s, void *host, const void *src, size_t bytes)
{
    (void)s;
    (void)src;
    memset(host, 0, bytes);
}

static void null_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes, int64_t n)
{
    (void)s;
    (void)dst;
    (void)dst_step;
    (void)src;
    (void)src_step;
    (void)bytes;
    (void)n;
}

static void null_zero(struct stream *s, void *dst, size_t bytes)
{
    (void)s;
    (void)dst;
    (void)bytes;
}

static void null_sync(struct stream *s)
{
    (void)s;
}

static void null_event_record(struct event *ev, struct stream *s)
{
    ev->at_s = s->clock_s;
}

static void null_event_wait(struct stream *s, struct event *ev)
{
    if (s->clock_s < ev->at_s) s->clock_s = ev->at_s;
}

static void null_destroy(struct device *d)
{
    xfree(d);
}

static const struct device_ops null_ops = {
    .name = "null",
    .alloc = null_alloc,
    .host_alloc = null_alloc,
    .release = null_release,
    .copy = null_copy,
    .to_host = null_to_host,
    .from_host = null_copy,
    .copy_rows = null_copy_rows,
    .zero = null_zero,
    .sync = null_sync,
    .event_record = null_event_record,
    .event_wait = null_event_wait,
    .destroy = null_destroy,
};

int device_null_new(struct device **d, struct err *e)
{
    (void)e;
    *d = xcalloc(1, sizeof **d);
    (*d)->ops = &null_ops;
    (*d)->counts_only = true;
    return OK;
}
