/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank writes its own lane as text; rank 0 asks for the lengths, then for the texts, and writes the file. A barrier
 * before gives all lanes one moment in common, from which hosts with other clocks are lined up. */
#include "run/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

static const char *const kind_name[TRACE_N] = {"F", "B", "W", "comm", "optimizer"};
/* The viewer's own colour names, near the colours of the schedule's picture. */
static const char *const kind_colour[TRACE_N] = {"rail_response", "rail_animation", "good", "grey", "rail_load"};

void trace_free(struct trace *t)
{
    xfree(t->span);
    *t = (struct trace){0};
}

void trace_add(struct trace *t, enum trace_kind kind, const char *name, int64_t step, double from_s, double to_s)
{
    if (!t || !t->on) return;
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 256;
        t->span = xrealloc(t->span, to_size(t->room) * sizeof *t->span);
    }
    struct trace_span *x = &t->span[t->n++];
    *x = (struct trace_span){.kind = kind, .step = step, .from_s = from_s, .to_s = to_s};
    snprintf(x->name, sizeof x->name, "%s", name);
}

/* Events of one lane, each with a comma after it; shift_s is added to every time. */
static void print_lane(const struct trace *t, int rank, double shift_s, struct str *out)
{
    str_printf(out, "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": \"rank %d\"}},\n",
               rank, rank);
    for (int64_t i = 0; i < t->n; i++) {
        const struct trace_span *x = &t->span[i];
        str_printf(out,
                   "{\"name\": \"%s\", \"cat\": \"%s\", \"cname\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, "
                   "\"ts\": %.3f, \"dur\": %.3f, \"args\": {\"step\": %" PRId64 "}},\n",
                   x->name, kind_name[x->kind], kind_colour[x->kind], rank, (x->from_s + shift_s) * 1e6,
                   (x->to_s - x->from_s) * 1e6, x->step);
    }
}

/* Rank 0 gets the texts of all, one after the other. */
static void gather(struct comm *world, struct str *text)
{
    int size = comm_size(world), rank = comm_rank(world);
    int64_t *n = xcalloc((size_t)size, sizeof *n), mine = (int64_t)text->n;
    comm_wait(world, comm_all_gather(world, &mine, n, 1, DT_I64, "trace lengths"));
    for (int r = 1; r < size; r++) {
        if (rank == r) comm_wait(world, comm_send(world, str_text(text), mine, DT_U8, 0, "trace"));
        if (rank || !n[r]) continue;
        char *more = xmalloc(to_size(n[r]));
        comm_wait(world, comm_recv(world, more, n[r], DT_U8, r, "trace"));
        str_add(text, more, to_size(n[r]));
        xfree(more);
    }
    xfree(n);
}

int trace_write(const struct trace *t, struct comm *world, const char *path, struct err *e)
{
    struct str text = {0};
    double now, common;
    if (world) comm_wait(world, comm_barrier(world, "trace"));
    now = common = clock_now_s();
    if (world) comm_wait(world, comm_broadcast(world, &common, 1, DT_F64, 0, "clock of rank 0"));
    /* Threads and processes of one host share a clock: what differs is the broadcast. */
    double shift = common - now > -1 && common - now < 1 ? 0 : common - now;
    int rank = world ? comm_rank(world) : 0, rc = OK;
    print_lane(t, rank, shift, &text);
    if (world) gather(world, &text);
    if (rank == 0) {
        struct str all = {0};
        str_puts(&all, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
        str_add(&all, str_text(&text), text.n);
        str_puts(&all, "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"tutti\"}}\n]}\n");
        rc = fs_write_atomic(path, str_text(&all), all.n, e);
        str_free(&all);
    }
    str_free(&text);
    return rc;
}
