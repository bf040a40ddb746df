/* SPDX-License-Identifier: Apache-2.0 */
/* The ring. An event is told when it ends, so the one inside another comes first; writing sorts them. Rejected:
 * beginnings and ends as two events, half of which a full ring would lose. */
#include "engine/trace.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

void trace_init(struct trace *t, void *ring, size_t bytes)
{
    *t = (struct trace){.ring = ring, .room = ring ? (int64_t)(bytes / sizeof *t->ring) : 0};
}

void trace_turn(struct trace *t, bool on)
{
    if (on && !t->on) t->on_s = clock_now_s();
    t->on = on;
}

void trace_free(struct trace *t)
{
    if (t->open && t->world) comm_watch(t->world, NULL);
    if (t->open) append_close(&t->file, NULL);
    xfree(t->group);
    if (t->ends) xfree(t->ends->end);
    xfree(t->ends);
    *t = (struct trace){0};
}

struct trace_event *trace_put(struct trace *t, enum trace_kind kind, double from_s, double to_s)
{
    if (!t || !t->on || t->paused || !t->room) return NULL;
    struct trace_event *v = &t->ring[t->n++ % t->room];
    *v = (struct trace_event){.kind = (uint8_t)kind,
                              .send = -1,
                              .peer = -1,
                              .step = t->step,
                              .from_s = from_s,
                              .to_s = to_s};
    return v;
}

void trace_add(struct trace *t, enum trace_kind kind, const char *what, int64_t step, double from_s, double to_s)
{
    struct trace_event *v = trace_put(t, kind, from_s, to_s);
    if (!v) return;
    v->step = step;
    snprintf(v->what, sizeof v->what, "%s", what);
}

void trace_count(struct trace *t, enum trace_counter c, int64_t by)
{
    if (!t || !by) return;
    t->counter[c] += by;
    double now = clock_now_s();
    struct trace_event *v = trace_put(t, TRACE_COUNTER, now, now);
    if (!v) return;
    v->how = (uint8_t)c;
    v->bytes = t->counter[c];
}

int64_t trace_kept(const struct trace *t) { return t->n < t->room ? t->n : t->room; }

const struct trace_event *trace_at(const struct trace *t, int64_t i)
{
    return &t->ring[(t->n <= t->room ? i : t->n + i) % t->room];
}
