/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, the ledger, and the calls that every device shares.
 *
 * The accounting is here, above the devices, so that the cpu and the null device cannot disagree: both count the
 * bytes that were asked for. A device adds only what differs (where bytes come from, how they move). Every range
 * is checked against its buffer. Cost: O(categories) per buffer. Rejected: counting rounded-up pages, because
 * the plan should say what the program asked for on any machine. */
#include "device/device.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "device/order.h"

const char *mem_cat_name(enum mem_cat c)
{
    static const char *const names[MEM_N] = {"param", "master", "grad",    "optimizer", "activation", "wgrad",
                                             "comm",  "data",   "scratch", "host",      "disk",       "kept"};
    return names[c];
}

static bool of_device(enum mem_cat c) { return c < MEM_HOST; }

static void ledger_add(struct ledger *l, enum mem_cat c, size_t bytes)
{
    bool own = of_device(c);
    l->now[c] += bytes;
    if (own) l->now_total += bytes;
    if (l->now[c] > l->peak[c]) l->peak[c] = l->now[c];
    if (!own) l->at_peak[c] = l->peak[c]; /* beside the device's peak: all there ever was */
    if (l->now_total <= l->peak_total) return;
    l->peak_total = l->now_total;
    for (int i = 0; i < MEM_N; i++)
        if (of_device((enum mem_cat)i)) l->at_peak[i] = l->now[i];
}

static void ledger_remove(struct ledger *l, enum mem_cat c, size_t bytes)
{
    CHECK(l->now[c] >= bytes, "%s: freeing %zu of %zu bytes", mem_cat_name(c), bytes, l->now[c]);
    l->now[c] -= bytes;
    if (of_device(c)) l->now_total -= bytes;
}

/* Memory that the tier takes for a buffer there: checksums, and with the first what its threads need. */
static size_t tier_memory(const struct device *d, size_t bytes)
{
    return tier_sums(bytes) + (d->n_on_disk ? 0 : TIER_ROOMS);
}

static void count_tier(struct device *d, size_t bytes)
{
    ledger_add(&d->ledger, MEM_DATA, tier_memory(d, bytes));
    d->n_on_disk++;
}

static void uncount_tier(struct device *d, size_t bytes)
{
    d->n_on_disk--;
    ledger_remove(&d->ledger, MEM_DATA, tier_memory(d, bytes));
}

static int new_buffer(struct buffer *b, struct device *d, enum mem_cat cat, size_t bytes, bool host, struct err *e)
{
    *b = (struct buffer){.dev = d, .bytes = bytes, .cat = cat, .host = host};
    if (bytes) {
        int rc = (host ? d->ops->host_alloc : d->ops->alloc)(d, cat, bytes, &b->p, e);
        if (rc) {
            char held[32];
            memset(b, 0, sizeof *b);
            err_prefix(e, "%s (this rank holds %s so far)", mem_cat_name(cat),
                       str_bytes(held, (double)d->ledger.now_total));
            return rc;
        }
    }
    ledger_add(&d->ledger, cat, bytes);
    if (cat == MEM_DISK && bytes) count_tier(d, bytes);
    return OK;
}

int buffer_new(struct buffer *b, struct device *d, enum mem_cat cat, size_t bytes, struct err *e)
{
    return new_buffer(b, d, cat, bytes, false, e);
}

int buffer_new_host(struct buffer *b, struct device *d, enum mem_cat cat, size_t bytes, struct err *e)
{
    return new_buffer(b, d, cat, bytes, true, e);
}

void buffer_free(struct buffer *b)
{
    if (!b->dev) return;
    ledger_remove(&b->dev->ledger, b->cat, b->bytes);
    if (b->cat == MEM_DISK && b->bytes) uncount_tier(b->dev, b->bytes);
    if (b->bytes) b->dev->ops->release(b->dev, b->cat, b->p, b->bytes);
    memset(b, 0, sizeof *b);
}

void device_hold(struct device *d, enum mem_cat cat, size_t bytes) { ledger_add(&d->ledger, cat, bytes); }

void device_let_go(struct device *d, enum mem_cat cat, size_t bytes) { ledger_remove(&d->ledger, cat, bytes); }

void device_pages_set(struct device *d, const struct device_pages *pages)
{
    CHECK(d->ledger.peak_total == 0, "a device takes other pages before its first buffer");
    d->pages = *pages;
}

void device_tier_set(struct device *d, struct tier *t)
{
    CHECK(!d->tier && !d->counts_only && !d->ledger.now[MEM_DISK], "%s takes no other tier", d->ops->name);
    d->tier = t;
}

int device_status(const struct device *d, struct err *e) { return d->tier ? tier_status(d->tier, e) : OK; }

void device_cost_set(struct device *d, stream_cost_fn *fn, void *ctx)
{
    CHECK(d->counts_only, "the time of %s is the clock's", d->ops->name);
    d->cost = fn;
    d->cost_ctx = ctx;
}

void device_free(struct device *d)
{
    if (!d) return;
    for (int c = 0; c < MEM_N; c++)
        CHECK(d->ledger.now[c] == 0, "device freed while %zu bytes of %s are live", d->ledger.now[c],
              mem_cat_name((enum mem_cat)c));
    CHECK(!d->n_streams && !d->n_events, "device freed while %d streams and %d events are live", d->n_streams,
          d->n_events);
    struct tier *tier = d->tier;
    d->ops->destroy(d);
    tier_close(tier);
}

/* ---- handles ---- */
int stream_new(struct stream **s, struct device *d, const char *name, struct err *e)
{
    *s = xcalloc(1, sizeof **s);
    **s = (struct stream){.dev = d, .name = name, .team = d->team};
    int rc = d->ops->stream_new ? d->ops->stream_new(*s, e) : OK;
    if (!rc) {
        d->n_streams++;
        return OK;
    }
    xfree(*s);
    *s = NULL;
    return err_prefix(e, "stream %s", name);
}

void stream_free(struct stream *s)
{
    if (!s) return;
    stream_sync(s);
    if (s->dev->ops->stream_free) s->dev->ops->stream_free(s);
    s->dev->n_streams--;
    xfree(s);
}

int event_new(struct event **ev, struct device *d, struct err *e)
{
    *ev = xcalloc(1, sizeof **ev);
    (*ev)->dev = d;
    int rc = d->ops->event_new ? d->ops->event_new(*ev, e) : OK;
    if (!rc) {
        d->n_events++;
        return OK;
    }
    xfree(*ev);
    *ev = NULL;
    return err_prefix(e, "an event");
}

void event_free(struct event *ev)
{
    if (!ev) return;
    if (ev->dev->ops->event_free) ev->dev->ops->event_free(ev);
    ev->dev->n_events--;
    xfree(ev);
}

/* Address of b[off, off + bytes); NULL on the null device. */
static char *range(const struct stream *s, const struct buffer *b, size_t off, size_t bytes)
{
    CHECK(b->dev == s->dev && !b->host, "a stream moves bytes of its own device only");
    CHECK(off <= b->bytes && bytes <= b->bytes - off, "%s: bytes %zu..%zu of a buffer of %zu", mem_cat_name(b->cat),
          off, off + bytes, b->bytes);
    return b->p ? (char *)b->p + off : NULL;
}

void device_copy(struct stream *s, struct buffer *dst, size_t dst_off, const struct buffer *src, size_t src_off,
                 size_t bytes)
{
    char *to = range(s, dst, dst_off, bytes);
    const char *from = range(s, src, src_off, bytes);
    if (bytes) s->dev->ops->copy(s, to, from, bytes);
}

void device_to_host(struct stream *s, void *host, const struct buffer *src, size_t off, size_t bytes)
{
    const char *from = range(s, src, off, bytes);
    if (bytes) s->dev->ops->to_host(s, host, from, bytes);
}

void device_from_host(struct stream *s, struct buffer *dst, size_t off, const void *host, size_t bytes)
{
    char *to = range(s, dst, off, bytes);
    if (bytes) s->dev->ops->from_host(s, to, host, bytes);
}

void device_zero(struct stream *s, struct buffer *dst, size_t off, size_t bytes)
{
    char *to = range(s, dst, off, bytes);
    if (bytes) s->dev->ops->zero(s, to, bytes);
}

/* An address on s's device: on an untouchable one it faults, and host memory does not. */
static const void *there(const struct stream *s, const void *p)
{
    CHECK(!p || device_in_file(p) || device_owns(s->dev, p), "an address of %s, on a device that %s",
          device_faults(p) ? "a device" : "the host", s->dev->untouchable ? "cannot be touched" : "can");
    return p;
}

void stream_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    (void)there(s, dst);
    if (bytes) s->dev->ops->copy(s, dst, there(s, src), bytes);
}

void stream_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                      int64_t n)
{
    (void)there(s, dst);
    if (bytes && n > 0) s->dev->ops->copy_rows(s, dst, dst_step, there(s, src), src_step, bytes, n);
}

void stream_put_away(struct stream *s, void *away, const void *src, size_t bytes)
{
    (void)there(s, away);
    if (bytes) s->dev->ops->away(s, away, there(s, src), bytes, true);
}

void stream_bring_back(struct stream *s, void *dst, const void *away, size_t bytes)
{
    (void)there(s, dst);
    if (bytes) s->dev->ops->away(s, dst, there(s, away), bytes, false);
}

void stream_to_host(struct stream *s, void *host, const void *src, size_t bytes)
{
    if (bytes) s->dev->ops->to_host(s, host, there(s, src), bytes);
}

void stream_from_host(struct stream *s, void *dst, const void *host, size_t bytes)
{
    (void)there(s, dst);
    if (bytes) s->dev->ops->from_host(s, dst, host, bytes);
}

void stream_zero(struct stream *s, void *dst, size_t bytes)
{
    (void)there(s, dst);
    if (bytes) s->dev->ops->zero(s, dst, bytes);
}

bool stream_takes_work(const struct stream *s)
{
    return s->dev->ops->enqueue && (!s->dev->counts_only || s->dev->cost);
}

void stream_enqueue(struct stream *s, const struct stream_work *w)
{
    CHECK(w->n_span <= WORK_SPANS, "%s touches %d ranges", w->name, w->n_span);
    s->dev->ops->enqueue(s, w);
}

bool stream_begins(const struct stream *s) { return s->dev->begins; }

bool stream_nudge(struct stream *s) { return s->dev->ops->nudge && s->dev->ops->nudge(s->dev); }

void stream_reach(struct stream *s, uint64_t side)
{
    if (side && s->dev->ops->reach) s->dev->ops->reach(s->dev, side);
}

uint64_t stream_fork(struct stream *s, const struct stream_work *w, uint64_t after)
{
    return s->dev->ops->fork ? s->dev->ops->fork(s, w, after) : 0;
}

void stream_join(struct stream *s, uint64_t side, bool host)
{
    if (side) s->dev->ops->join(s, side, host);
}

bool device_owns(const struct device *d, const void *p)
{
    return d->ops->owns ? d->ops->owns(d, p) : !device_faults(p);
}

bool device_is_direct(const struct device *d) { return d->direct; }

bool device_shows(const struct device *d, const void *p) { return device_is_direct(d) && !device_in_file(p); }

const void *device_peek(struct stream *s, const void *p, size_t bytes, void *room)
{
    if (s->dev->counts_only) return NULL;
    if (device_shows(s->dev, p)) {
        stream_sync(s);
        return p;
    }
    stream_to_host(s, room, p, bytes);
    stream_sync(s);
    return room;
}

void stream_sync(struct stream *s) { s->dev->ops->sync(s); }

void event_record(struct event *ev, struct stream *s)
{
    CHECK(ev->dev == s->dev, "an event of another device is recorded on %s", s->name);
    s->dev->ops->event_record(ev, s);
}

void event_wait(struct stream *s, struct event *ev)
{
    CHECK(ev->dev == s->dev, "%s waits for an event of another device", s->name);
    s->dev->ops->event_wait(s, ev);
}
