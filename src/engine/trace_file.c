/* SPDX-License-Identifier: Apache-2.0 */
/* One file for all ranks. Each makes text of its own events; rank 0 asks for the texts one after the other and writes
 * them behind one another, a line per event, so that a file that ends anywhere can be read up to there.
 *
 * Clocks. Rank 0 sends a ping and gets the other's time back; half the way there and back is how far the answer may be
 * wrong (Cristian 1989), and the shortest of several ways counts. An offset that is within its error is taken for none:
 * threads and processes of one host share a clock. Measured before and after what is collected; between, clocks are
 * taken to drift evenly. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/trace.h"

enum { PINGS = 10, ROW_THREAD = 1, ROW_GROUPS = 100, FORMAT = 1 };
static const char own[] = "trace:"; /* messages of the trace itself begin so, and are left out of it */

/* ---- groups ---- */
/* "0-3", "0-6/2", "0,3,4": the ranks of c in the world. */
static void print_ranks(const struct comm *c, char *out, size_t room)
{
    size_t at = 0;
    int n = comm_size(c);
    out[0] = 0;
    for (int i = 0, k; i < n && at + 16 < room; i += k) {
        int first = comm_world_rank(c, i), step = i + 1 < n ? comm_world_rank(c, i + 1) - first : 0;
        for (k = 1; i + k < n && comm_world_rank(c, i + k) == first + k * step;) k++;
        if (k == 2 && step != 1) k = 1;
        int used = snprintf(out + at, room - at, "%s%d", i ? "," : "", first);
        if (k > 1) used += snprintf(out + at + used, room - at - (size_t)used, "-%d", first + (k - 1) * step);
        if (k > 1 && step != 1) used += snprintf(out + at + used, room - at - (size_t)used, "/%d", step);
        at += (size_t)used;
    }
}

/* Groups with the same ranks and name are made in the same order by all their ranks: so they are numbered. */
static void name_group(struct trace *t, int i)
{
    struct trace_group *g = &t->group[i];
    char ranks[35], text[TRACE_GROUP];
    print_ranks(g->c, ranks, sizeof ranks);
    snprintf(text, sizeof text, "%.30s %.34s", comm_name(g->c), ranks);
    int same = 1;
    snprintf(g->name, sizeof g->name, "%s", text);
    for (int k = 0; k < i; k++)
        if (!strcmp(t->group[k].name, g->name)) snprintf(g->name, sizeof g->name, "%.65s (%d)", text, ++same);
}

static struct trace_group *group_of(struct trace *t, const struct comm *c)
{
    for (int i = 0; i < t->n_groups; i++)
        if (t->group[i].c == c) return &t->group[i];
    return NULL;
}

static void find_groups(struct trace *t, struct comm *world)
{
    while (comm_nth(world, t->n_groups)) t->n_groups++;
    t->group = xcalloc((size_t)t->n_groups, sizeof *t->group);
    for (int i = 0; i < t->n_groups; i++) {
        t->group[i].c = comm_nth(world, i);
        for (int k = 0; k < TRACE_LANES; k++) t->group[i].lane_ns[k] = INT64_MIN;
        name_group(t, i);
    }
}

/* ---- what comm tells ---- */
static void over(void *ctx, const struct comm_event *v)
{
    struct trace *t = ctx;
    struct trace_group *g = group_of(t, v->c);
    if (!g || !strncmp(v->what, own, sizeof own - 1)) return;
    /* Collectives of one group run one after the other: before the one before it was over, this one waited in line. */
    double from = v->send < 0 && g->over_s > v->asked_s ? g->over_s : v->asked_s;
    if (v->send < 0) g->over_s = v->over_s;
    struct trace_event *x = v->over_s >= t->on_s ? trace_put(t, TRACE_COMM, from, v->over_s) : NULL;
    if (!x) return;
    x->asked_s = v->asked_s;
    x->how = (uint8_t)v->op;
    x->send = (int8_t)v->send;
    x->dtype = (uint8_t)v->dtype;
    x->group = g;
    x->algorithm = v->algorithm;
    x->ticket = v->ticket;
    x->number = v->number;
    x->bytes = v->bytes;
    x->sent = v->sent;
    x->peer = v->peer < 0 ? -1 : comm_world_rank(v->c, v->peer);
    x->program = g->program[v->ticket % 256];
    x->instr = g->instr[v->ticket % 256];
    snprintf(x->what, sizeof x->what, "%s", v->what);
}

#define MOVED_S 2e-6 /* looking whether something moved is not worth a box when it was shorter */
static void stayed(void *ctx, const struct comm *c, int64_t ticket, enum comm_stay why, double from_s, double to_s)
{
    struct trace *t = ctx;
    struct trace_group *g = group_of(t, c);
    if (!g || t->paused || (why == COMM_MOVES && to_s - from_s < MOVED_S)) return;
    if (why == COMM_STARTS) {
        g->program[ticket % 256] = t->instr ? t->program : NULL;
        g->instr[ticket % 256] = t->instr;
    }
    struct trace_event *x = trace_put(t, TRACE_CALL, from_s, to_s);
    if (!x) return;
    x->how = (uint8_t)why;
    x->group = g;
    x->ticket = ticket;
}

/* ---- clocks ---- */
static double now(const struct trace *t) { return clock_now_s() + t->info.skew_s; }

static void exchange(struct comm *w, bool send, double *v, int peer)
{
    comm_wait(w, send ? comm_send(w, v, 1, DT_F64, peer, "trace: clocks")
                      : comm_recv(w, v, 1, DT_F64, peer, "trace: clocks"));
}

static struct trace_clock ask(const struct trace *t, struct comm *w, int rank)
{
    struct trace_clock best = {.error_s = INFINITY};
    for (int i = 0; i < PINGS; i++) {
        double there = 0, from = now(t);
        exchange(w, true, &from, rank);
        exchange(w, false, &there, rank);
        double to = now(t), error = (to - from) / 2;
        if (error < best.error_s)
            best = (struct trace_clock){.at_s = there, .offset_s = there - (from + to) / 2, .error_s = error};
    }
    if (fabs(best.offset_s) <= best.error_s) best.offset_s = 0;
    exchange(w, true, &best.at_s, rank);
    exchange(w, true, &best.offset_s, rank);
    exchange(w, true, &best.error_s, rank);
    return best;
}

static struct trace_clock answer(const struct trace *t, struct comm *w)
{
    struct trace_clock c;
    for (int i = 0; i < PINGS; i++) {
        double ping, here;
        exchange(w, false, &ping, 0);
        here = now(t);
        exchange(w, true, &here, 0);
    }
    exchange(w, false, &c.at_s, 0);
    exchange(w, false, &c.offset_s, 0);
    exchange(w, false, &c.error_s, 0);
    return c;
}

static struct trace_clock measure(const struct trace *t, struct comm *w)
{
    if (w && comm_rank(w)) return answer(t, w);
    for (int r = 1; w && r < comm_size(w); r++) ask(t, w, r);
    return (struct trace_clock){.at_s = now(t)};
}

/* ---- through rank 0 ---- */
typedef void take_fn(struct trace *t, const char *bytes, size_t n);

static void write_text(struct trace *t, const char *text, size_t n)
{
    struct err e = {0};
    if (t->failed || !n) return;
    t->failed = append_add(&t->file, text, n, &e) != OK;
    if (t->failed) log_warn("the trace ends here: %s", e.text);
}

static void take_ends(struct trace *t, const char *bytes, size_t n)
{
    struct trace_end e;
    for (size_t i = 0; i + sizeof e <= n; i += sizeof e) {
        memcpy(&e, bytes + i, sizeof e);
        trace_ends_add(t->ends, &e);
    }
}

/* Rank 0 takes the bytes of all ranks, one after the other. */
static void gather(struct trace *t, struct comm *world, const struct str *mine, take_fn *take)
{
    int size = world ? comm_size(world) : 1, rank = world ? comm_rank(world) : 0;
    int64_t *n = xcalloc((size_t)size, sizeof *n), here = (int64_t)mine->n;
    if (world) comm_wait(world, comm_all_gather(world, &here, n, 1, DT_I64, "trace: lengths"));
    if (rank == 0) take(t, str_text(mine), mine->n);
    for (int r = 1; r < size; r++) {
        if (rank == r && here) comm_wait(world, comm_send(world, str_text(mine), here, DT_U8, 0, "trace: events"));
        if (rank || n[r] <= 0 || comm_status(world, NULL)) continue;
        char *more = xmalloc(to_size(n[r]));
        comm_wait(world, comm_recv(world, more, n[r], DT_U8, r, "trace: events"));
        if (!comm_status(world, NULL)) take(t, more, to_size(n[r]));
        xfree(more);
    }
    xfree(n);
}

/* ---- what is said about the events ---- */
static struct json_out begin_meta(struct str *out, const char *name, int rank, int row)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_string(&o, "name", name);
    json_put_string(&o, "ph", "M");
    json_put_int(&o, "pid", rank);
    json_put_int(&o, "tid", row);
    json_begin_object(&o, "args");
    return o;
}

static void end_meta(struct json_out *o)
{
    json_end_object(o);
    json_end_object(o);
    str_puts(o->s, ",\n");
}

static void print_name(struct str *out, const char *what, const char *name, int rank, int row)
{
    struct json_out o = begin_meta(out, what, rank, row);
    json_put_string(&o, "name", name);
    end_meta(&o);
}

static void print_clock(struct json_out *o, const struct trace *t)
{
    json_put_real_digits(o, "clock_offset_us", 1e6 * t->clock[1].offset_s, 12);
    json_put_real_digits(o, "clock_error_us", 1e6 * t->clock[1].error_s, 6);
}

static void print_rank(const struct trace *t, int rank, struct str *out)
{
    char host[65] = "", name[200];
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    snprintf(name, sizeof name, "rank %d%s%s%.120s", rank, *t->info.place ? " (" : "", t->info.place,
             *t->info.place ? ")" : "");
    print_name(out, "process_name", name, rank, 0);
    print_name(out, "thread_name", "steps, layers, kernels, waits", rank, ROW_THREAD);
    struct json_out o = begin_meta(out, "process_sort_index", rank, 0);
    json_put_int(&o, "sort_index", rank);
    end_meta(&o);
    o = begin_meta(out, "thread_sort_index", rank, ROW_THREAD);
    json_put_int(&o, "sort_index", 0);
    end_meta(&o);
    o = begin_meta(out, "tutti.rank", rank, 0);
    json_put_string(&o, "host", host);
    json_put_string(&o, "place", t->info.place);
    json_put_int(&o, "pp", t->info.stage_rank);
    json_put_int(&o, "ring_bytes", t->room * (int64_t)sizeof *t->ring);
    json_put_string(&o, "clock", "monotonic; ts is microseconds of rank 0's clock since the trace was opened");
    print_clock(&o, t);
    end_meta(&o);
}

/* What the rank has allocated: planned before the run, and the same in each step (docs/traces.md). */
static void print_memory(const struct trace *t, int rank, int64_t ns, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_string(&o, "name", "memory allocated");
    json_put_string(&o, "cat", "counter");
    json_put_string(&o, "ph", "C");
    json_put_int(&o, "pid", rank);
    json_put_int(&o, "tid", ROW_THREAD);
    json_put_real(&o, "ts", (double)ns / 1e3);
    json_begin_object(&o, "args");
    for (int c = 0; c < MEM_N; c++) json_put_int(&o, mem_cat_name((enum mem_cat)c), (int64_t)t->info.ledger->now[c]);
    json_end_object(&o);
    json_end_object(&o);
    str_puts(out, ",\n");
}

/* ---- a rank's events as text ---- */
struct drawn { /* an event, ready to be sorted */
    const struct trace_event *v;
    int64_t from_ns, to_ns, i;
};

/* Parents before children: who begins first, then who ends last, then who was told last. */
static int by_time(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;
    if (x->from_ns != y->from_ns) return x->from_ns < y->from_ns ? -1 : 1;
    if (x->to_ns != y->to_ns) return x->to_ns > y->to_ns ? -1 : 1;
    return x->i > y->i ? -1 : 1;
}

static int by_ticket(const void *a, const void *b)
{
    const struct trace_event *x = *(const struct trace_event *const *)a, *y = *(const struct trace_event *const *)b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->ticket > y->ticket) - (x->ticket < y->ticket);
}

/* The operations that calls were about. */
struct lookup {
    const struct trace_event **comm;
    size_t n;
};

static const struct trace_event *operation_of(const struct lookup *l, const struct trace_event *call)
{
    const struct trace_event **found =
        call->kind == TRACE_CALL && l->n ? bsearch(&call, l->comm, l->n, sizeof *l->comm, by_ticket) : NULL;
    return found ? *found : NULL;
}

/* A row of the group that is free then; -1: all are taken, and the event is not drawn. */
static int lane(struct trace_group *g, const struct drawn *x)
{
    int k = 0;
    while (k < TRACE_LANES && g->lane_ns[k] > x->from_ns) k++;
    if (k == TRACE_LANES) return -1;
    g->lane_ns[k] = x->to_ns;
    return k;
}

static int row_of(struct trace *t, const struct drawn *x, int rank, struct str *out)
{
    struct trace_group *g = x->v->group;
    if (x->v->kind != TRACE_COMM) return ROW_THREAD;
    int k = lane(g, x), row = ROW_GROUPS + (int)(g - t->group) * TRACE_LANES + k;
    if (k < 0) return -1;
    for (; g->n_lanes <= k; g->n_lanes++) {
        char name[TRACE_GROUP + 32];
        snprintf(name, sizeof name, g->n_lanes ? "between ranks: %s, row %d" : "between ranks: %s", g->name,
                 g->n_lanes + 1);
        print_name(out, "thread_name", name, rank, ROW_GROUPS + (int)(g - t->group) * TRACE_LANES + g->n_lanes);
    }
    return row;
}

static void add_end(const struct drawn *x, int rank, int row, struct str *ends)
{
    struct trace_end e;
    memset(&e, 0, sizeof e); /* it travels as bytes */
    e.id = trace_id(x->v);
    e.from_ns = x->from_ns;
    e.to_ns = x->to_ns;
    e.rank = rank;
    e.row = row;
    e.send = x->v->send;
    e.of = x->v->send < 0 ? comm_size(x->v->group->c) : 2;
    str_add(ends, &e, sizeof e);
}

static void print_events(struct trace *t, int rank, struct str *out, struct str *ends)
{
    int64_t n = trace_kept(t), undrawn = 0;
    struct drawn *list = xcalloc(to_size(n) + 1, sizeof *list);
    struct lookup look = {.comm = xcalloc(to_size(n) + 1, sizeof *look.comm)};
    for (int64_t i = 0; i < n; i++) {
        const struct trace_event *v = trace_at(t, i);
        list[i] = (struct drawn){v, trace_ns(t, v->from_s), trace_ns(t, v->to_s), i};
        if (v->kind == TRACE_COMM) look.comm[look.n++] = v;
    }
    if (n) qsort(list, to_size(n), sizeof *list, by_time);
    if (look.n) qsort(look.comm, look.n, sizeof *look.comm, by_ticket);
    for (int64_t i = 0; i < n; i++) {
        int row = row_of(t, &list[i], rank, out);
        undrawn += row < 0;
        if (row < 0) continue;
        trace_event_print(t, list[i].v, operation_of(&look, list[i].v), rank, row, out);
        if (list[i].v->kind == TRACE_COMM) add_end(&list[i], rank, row, ends);
    }
    struct json_out o = begin_meta(out, "tutti.collected", rank, 0);
    json_put_int(&o, "events", n - undrawn);
    json_put_int(&o, "dropped", t->n - n + undrawn);
    json_put_real(&o, "complete_from_us", t->n > n ? (double)trace_ns(t, trace_at(t, 0)->to_s) / 1e3 : 0);
    print_clock(&o, t);
    end_meta(&o);
    t->dropped += t->n - n + undrawn;
    xfree(look.comm);
    xfree(list);
}

/* ---- the calls ---- */
static int new_file(struct trace *t, int size, struct err *e)
{
    struct str text = {0};
    str_puts(&text, "[\n");
    struct json_out o = begin_meta(&text, "tutti.trace", 0, 0);
    json_put_int(&o, "version", FORMAT);
    json_put_string(&o, "program", "tutti " TUTTI_VERSION);
    json_put_int(&o, "ranks", size);
    json_put_string(&o, "schedule", t->info.schedule);
    end_meta(&o);
    t->ends = xcalloc(1, sizeof *t->ends);
    int rc = fs_write_atomic(t->info.path, str_text(&text), text.n, e);
    if (!rc) rc = append_open(&t->file, t->info.path, e);
    str_free(&text);
    return rc;
}

int trace_open(struct trace *t, const struct trace_info *info, struct comm *world, struct err *e)
{
    int rank = world ? comm_rank(world) : 0, rc = OK;
    struct comm_watch watch = {over, stayed, t};
    struct str text = {0};
    t->info = *info;
    t->world = world;
    t->paused = t->open = true;
    if (world) find_groups(t, world);
    if (rank == 0) rc = new_file(t, world ? comm_size(world) : 1, e);
    if (world) rc = comm_agree(world, rc, e);
    if (rc) return rc;
    t->clock[0] = t->clock[1] = measure(t, world);
    t->begun_s = now(t);
    if (world) comm_wait(world, comm_broadcast(world, &t->begun_s, 1, DT_F64, 0, "trace: begins"));
    print_rank(t, rank, &text);
    print_memory(t, rank, 0, &text);
    gather(t, world, &text, write_text);
    str_free(&text);
    if (world) comm_watch(world, &watch);
    t->paused = false;
    return world ? comm_status(world, e) : OK;
}

void trace_collect(struct trace *t, struct comm *world)
{
    int rank = world ? comm_rank(world) : 0;
    struct str text = {0}, ends = {0}, arrows = {0};
    if (!t->open) return;
    if (world) comm_watch_tell(world, false);
    t->paused = true;
    t->clock[1] = measure(t, world);
    /* What the file admits to is the worst look of all. */
    if (t->clock[1].error_s < t->clock[0].error_s) t->clock[1].error_s = t->clock[0].error_s;
    print_events(t, rank, &text, &ends);
    print_memory(t, rank, trace_ns(t, clock_now_s()), &text);
    gather(t, world, &text, write_text);
    gather(t, world, &ends, rank ? NULL : take_ends);
    if (rank == 0) {
        trace_ends_print(t->ends, &t->arrows, &t->arrows_lost, &arrows);
        write_text(t, str_text(&arrows), arrows.n);
    }
    t->clock[0] = t->clock[1];
    t->n = 0;
    t->paused = false;
    str_free(&text);
    str_free(&ends);
    str_free(&arrows);
}

void trace_close(struct trace *t, struct comm *world)
{
    struct str text = {0};
    struct err e = {0};
    int64_t dropped;
    if (!t->open) return;
    if (world) comm_watch_tell(world, true); /* what is still under way belongs to the last step */
    trace_collect(t, world);
    t->on = false;
    t->paused = true;
    dropped = t->dropped;
    if (world) {
        comm_watch(world, NULL);
        comm_wait(world, comm_all_reduce(world, &dropped, &dropped, 1, DT_I64, COMM_SUM, "trace: dropped"));
    }
    if (!world || comm_rank(world) == 0) {
        struct json_out o = begin_meta(&text, "tutti.end", 0, 0);
        json_put_int(&o, "dropped", dropped);
        json_put_int(&o, "arrows", t->arrows);
        json_put_int(&o, "arrows_against_time", t->arrows_lost);
        json_put_int(&o, "ends_without_another", t->ends->n);
        end_meta(&o);
        text.n -= 2; /* the last comma */
        str_puts(&text, "\n]\n");
        write_text(t, str_text(&text), text.n);
        if (append_close(&t->file, &e) && !t->failed) log_warn("the trace is not complete: %s", e.text);
        if (dropped)
            log_warn("%s: %" PRId64 " events did not fit and the oldest are missing: raise run.trace_mib, or trace "
                     "fewer steps (run.trace_steps)",
                     t->info.path, dropped);
    }
    str_free(&text);
    t->open = false;
}
