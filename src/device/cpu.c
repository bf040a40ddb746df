/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: bytes are pages of this process, a stream runs inline on the calling rank, and so everything
 * enqueued is done when the call returns; sync has nothing to wait for and an event only notes the time. Pages
 * come zeroed and are touched first by the thread that fills them (NUMA placement follows use). Big copies are
 * split over the team: one core does not fill a memory bus. Copies to and from the tier (tier.h) are made by its
 * threads and waited for where the stream or an event is. Memory that the machine does not have is refused here, with
 * figures, before the kernel's overcommit can turn it into a kill later. Untouchable: the same, but one bit of every
 * address that is given out makes it fault. Rejected: a second mapping without permissions (a table to find the first
 * by, and twice the address space); the bit needs neither, and survives arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "device/inside.h"

enum { COPY_ALONE = 1 << 20 }; /* bytes under which waking the team costs more than it saves */

static bool from_elsewhere(const struct device *d, enum mem_cat cat)
{
    return d->pages.take && (d->pages.cats & 1u << cat);
}

static int cpu_host_alloc(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e)
{
    char want[32], room[32];
    struct limit l;
    bool told = limit_memory(&l), there = !told || bytes <= l.bytes || d->any_size;
    *p = !there ? NULL : from_elsewhere(d, cat) ? d->pages.take(d->pages.arg, bytes) : mem_pages_new(bytes);
    if (*p) return OK;
    if (there && !limit_addresses(&l)) l = (struct limit){.what = "the system's address space"};
    return err_set(e, ERR_MEMORY,
                   "wanted %s of memory, %s is available (%s); use a smaller model or batch.micro, or more ranks",
                   str_bytes(want, (double)bytes), str_bytes(room, (double)l.bytes), l.what);
}

static int cpu_alloc(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e)
{
    if (cat == MEM_DISK) {
        CHECK(d->tier, "%zu bytes on disk, and there is no tier", bytes);
        *p = tier_take(d->tier, bytes);
        return OK;
    }
    int rc = cpu_host_alloc(d, cat, bytes, p, e);
    if (!rc && d->untouchable) *p = (void *)((uintptr_t)*p | DEVICE_FAULTS);
    return rc;
}

static void cpu_release(struct device *d, enum mem_cat cat, void *p, size_t bytes)
{
    if (cat == MEM_DISK) tier_give(d->tier, bytes);
    else if (from_elsewhere(d, cat)) d->pages.give(d->pages.arg, device_here(p), bytes);
    else mem_pages_free(device_here(p), bytes);
}

struct move {
    char *dst;
    const char *src; /* NULL: zeros */
    size_t bytes;
};

static void move_part(void *arg, int member, int n_members)
{
    const struct move *m = arg;
    int64_t lo, hi;
    team_split((int64_t)m->bytes, member, n_members, &lo, &hi);
    if (m->src) memcpy(m->dst + lo, m->src + lo, (size_t)(hi - lo));
    else memset(m->dst + lo, 0, (size_t)(hi - lo));
}

/* Until what this stream has under way is done: an operation that runs inline comes after it. */
static void disk_wait(struct stream *s)
{
    if (s->on_disk) tier_wait(s->dev->tier, s->on_disk);
    s->on_disk = 0;
}

/* Begins a copy to or from the tier; on a stream that computes it is done at once, since what follows there is, too. */
static void disk_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    bool put = device_in_file(dst);
    CHECK(!put || !device_in_file(src), "%zu bytes from disk to disk", bytes);
    s->on_disk = put ? tier_put(s->dev->tier, dst, device_here(src), bytes)
                     : tier_get(s->dev->tier, device_here(dst), src, bytes);
    if (s->kernels) disk_wait(s);
}

static void cpu_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    if (device_in_file(dst) || device_in_file(src)) {
        disk_copy(s, dst, src, bytes);
        return;
    }
    disk_wait(s);
    struct move m = {device_here(dst), device_here(src), bytes};
    team_run(bytes < COPY_ALONE ? NULL : s->team, move_part, &m);
}

static void cpu_away(struct stream *s, void *dst, const void *src, size_t bytes, bool out)
{
    (void)out; /* its memory is the host's */
    cpu_copy(s, dst, src, bytes);
}

static void cpu_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                          int64_t n)
{
    char *to = device_here(dst);
    const char *from = device_here(src);
    CHECK(!device_in_file(dst) && !device_in_file(src), "rows on disk");
    disk_wait(s);
    for (int64_t i = 0; i < n; i++, to += dst_step, from += src_step) memcpy(to, from, bytes);
}

static void cpu_zero(struct stream *s, void *dst, size_t bytes)
{
    disk_wait(s);
    if (device_in_file(dst)) {
        tier_zero(s->dev->tier, dst, bytes);
        return;
    }
    struct move m = {device_here(dst), NULL, bytes};
    team_run(bytes < COPY_ALONE ? NULL : s->team, move_part, &m);
}

static void cpu_sync(struct stream *s) { disk_wait(s); }

static void cpu_event_record(struct event *ev, struct stream *s)
{
    ev->at_s = clock_now_s();
    ev->on_disk = s->on_disk;
}

static void cpu_event_wait(struct stream *s, struct event *ev)
{
    if (ev->on_disk) tier_wait(s->dev->tier, ev->on_disk);
    ev->on_disk = 0;
}

static void cpu_destroy(struct device *d)
{
    team_free(d->team);
    xfree(d);
}

bool cpu_owns(const struct device *d, const void *p) { return device_faults(p) == d->untouchable; }

const struct device_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .host_alloc = cpu_host_alloc,
    .release = cpu_release,
    .copy = cpu_copy,
    .to_host = cpu_copy,
    .from_host = cpu_copy,
    .copy_rows = cpu_copy_rows,
    .away = cpu_away,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .owns = cpu_owns,
    .destroy = cpu_destroy,
};

int cpu_new(struct device **d, int n_threads, bool untouchable, struct err *e)
{
    *d = NULL;
    if (n_threads < 1) return err_set(e, ERR_REQUEST, "a cpu device needs at least 1 thread, got %d", n_threads);
    struct team *team;
    int rc = team_start(&team, n_threads, e);
    if (rc) return rc;
    *d = xcalloc(1, sizeof **d);
    (*d)->ops = &cpu_ops;
    (*d)->team = team;
    (*d)->untouchable = untouchable;
    (*d)->direct = !untouchable;
    (*d)->kernels = "cpu";
    return OK;
}

int device_cpu_new(struct device **d, int n_threads, struct err *e) { return device_open(d, DEVICE_CPU, n_threads, e); }

int device_untouchable_new(struct device **d, int n_threads, struct err *e) { return cpu_new(d, n_threads, true, e); }
