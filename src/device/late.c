/* SPDX-License-Identifier: Apache-2.0 */
/* A device that is late on purpose: a test of who relied on a stream that runs inline.
 *
 * Every stream is a queue, and a collective is a side of one: it may begin when what its stream held is done, and a
 * join in a queue waits until it is over. Nothing runs when it is enqueued; when something waits (stream_sync, the host
 * for other ranks, a buffer that is freed) operations run one by one, each the head of a queue drawn from the seed
 * among those that wait for no event, until what was asked for is done: other streams get as far as chance has it. The
 * arguments of an operation are copied when it is enqueued, as a launch does. Host memory is not: it has to last. A
 * copy from the host keeps what the bytes were and compares when it runs; memory on a part of the stack that was left
 * is found by its address; a copy to the host fills the destination with ones until it runs.
 *
 * Or it runs by itself, as a GPU does (device_running_new): a thread of the device's own takes operations by the same
 * rules while the host goes on, and nobody can ask it for anything but to be done.
 *
 * The order that the program asked for is checked apart (order.h), when operations are enqueued: streams, collectives
 * and the host each have a clock; an event carries its stream's, the host's goes into all that it enqueues.
 * Bytes are the cpu device's, untouchable. Cost: a copy of the arguments per operation and what order.h does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "device/inside.h"
#include "device/order.h"

enum { LATE_STREAMS = 16, LATE_MOST = 1 << 16 /* operations that wait */ };

struct mark { /* an event, recorded once */
    int refs;
    bool passed;
    struct order_clock clock;
};

struct host {      /* memory of the host that an operation uses */
    void *p, *was; /* was: the bytes when it was enqueued; NULL: the operation writes */
    size_t bytes;
};

struct waiting { /* an operation in a queue, an event to record (mark), one to wait for, or a collective to wait for */
    enum { IS_WORK, IS_RECORD, IS_WAIT, IS_JOIN } kind;
    void (*run)(struct stream *s, void *arg);
    void *arg;
    struct mark *mark;
    int side;
    struct host host;
    struct order_who who;
};

struct queue {
    struct stream *stream;
    struct waiting *list;
    int64_t n, room, done; /* list[done..n) */
    bool busy;             /* with list[done] */
    int lane;
    struct order_clock clock;
};

struct side { /* a collective */
    bool open;
    int lane;
    struct order_clock clock;
    enum { SIDE_DONE, SIDE_QUEUED, SIDE_BEGINS, SIDE_BEGUN } state;
    struct side_work work;
    void *arg;
    struct mark *after; /* what its stream held */
    uint64_t number;    /* order of forks */
    int joins;          /* in queues */
};

struct extent {
    char *p;
    size_t bytes;
    enum mem_cat cat;
};

struct late {
    struct device *dev;
    struct order *order;
    struct order_clock host;
    struct queue *queue[LATE_STREAMS];
    int n_queues;
    struct side *side; /* by name, from 1 */
    int n_sides, room_sides;
    struct extent *extent; /* live buffers */
    int n_extents, room_extents;
    uint64_t seed, drawn, number;
    int64_t n_waiting;
    char *stack_low, *stack_high; /* of the rank's thread */
    late_report_fn *report;
    void *ctx;
    /* Where it runs by itself: */
    bool running, quit;
    pthread_t thread;
    pthread_mutex_t lock; /* of all above but the clocks, which are the host's */
    pthread_cond_t changed;
    struct team *team; /* its streams' */
};

static struct late *late_of(const struct stream *s) { return s->dev->own; }
static struct queue *queue_of(const struct stream *s) { return s->own; }

static void lock(struct late *l)
{
    if (l->running) pthread_mutex_lock(&l->lock);
}

static void unlock(struct late *l)
{
    if (l->running) pthread_mutex_unlock(&l->lock);
}

/* ---- words ---- */
static void say_where(const struct late *l, const struct byte_span *s, struct str *out)
{
    const char *p = s->p;
    size_t all = (size_t)(s->rows - 1) * s->step + s->bytes;
    str_printf(out, "%s%s%s ", s->writes ? "writes" : "reads", s->part ? " " : "", s->part ? s->part : "");
    for (int i = 0; i < l->n_extents; i++) {
        const struct extent *x = &l->extent[i];
        if (p < x->p || p >= x->p + x->bytes) continue;
        str_printf(out, "bytes %zu..%zu of a buffer (%s, %zu bytes)", (size_t)(p - x->p), (size_t)(p - x->p) + all,
                   mem_cat_name(x->cat), x->bytes);
        if (s->rows > 1) str_printf(out, ", %lld rows of %zu bytes, %zu apart", (long long)s->rows, s->bytes, s->step);
        return;
    }
    str_printf(out, "%zu bytes at %p", all, s->p);
}

static void say_who(const struct order_who *w, struct str *out)
{
    str_printf(out, "%s%s%s (number %llu, on %s, enqueued in \"%s\")", w->op, w->tensor[0] ? " of " : "", w->tensor,
               (unsigned long long)w->number, w->lane, w->thread);
}

static void report(struct late *l, struct str *text)
{
    if (!l->report) CHECK(false, "%s", str_text(text));
    l->report(l->ctx, str_text(text));
    str_free(text);
}

static void report_race(void *ctx, const struct order_race *r)
{
    struct late *l = ctx;
    struct str text = {0};
    str_printf(&text, "a race: ");
    say_who(&r->first, &text);
    str_printf(&text, " ");
    say_where(l, &r->a, &text);
    str_printf(&text, ", and ");
    say_who(&r->second, &text);
    str_printf(&text, " ");
    say_where(l, &r->b, &text);
    str_printf(&text, ": no event, collective or wait of the host puts one before the other");
    report(l, &text);
}

static void report_host(struct late *l, const struct waiting *w, const char *what)
{
    struct str text = {0};
    str_printf(&text, "host memory did not last: ");
    say_who(&w->who, &text);
    str_printf(&text, " uses %zu bytes at %p, which %s; it belongs to the copy until the stream was waited for",
               w->host.bytes, w->host.p, what);
    report(l, &text);
}

/* ---- running ---- */
/* The thread's stack grows down: below this frame is what callers left. */
static bool left(const struct late *l, const void *p)
{
    const char *q = p;
    return q >= l->stack_low && q < l->stack_high && q < (const char *)__builtin_frame_address(0);
}

/* Whether it may run. */
static bool check_host(struct late *l, struct waiting *w)
{
    if (!w->host.p) return true;
    bool gone = !l->running && left(l, w->host.p);
    if (gone) report_host(l, w, "is on the stack of a function that has returned");
    else if (w->host.was && memcmp(w->host.p, w->host.was, w->host.bytes)) report_host(l, w, "has changed since");
    xfree(w->host.was);
    return !gone;
}

static void mark_release(struct mark *m)
{
    if (m && !--m->refs) xfree(m);
}

/* A collective that was begun may be over meanwhile. */
static bool side_over(struct side *x)
{
    if (x->state == SIDE_BEGUN && x->work.done(x->arg)) {
        x->state = SIDE_DONE;
        xfree(x->arg);
    }
    return x->state == SIDE_DONE;
}

static bool blocked(const struct late *l, const struct queue *q)
{
    const struct waiting *w = &q->list[q->done];
    if (q->busy) return true;
    if (w->kind == IS_JOIN) return !side_over(&l->side[w->side]);
    return w->kind == IS_WAIT && !w->mark->passed;
}

/* What its stream held is done, and its communicator's collectives before it have begun. */
static bool side_ready(const struct late *l, const struct side *x)
{
    if (x->state != SIDE_QUEUED || !x->after->passed) return false;
    for (int i = 0; i < l->n_sides; i++) {
        const struct side *y = &l->side[i];
        if (y->state == SIDE_QUEUED && y->work.queue == x->work.queue && y->number < x->number) return false;
    }
    return true;
}

/* The list of sides may move meanwhile. */
static void begin_side(struct late *l, int i)
{
    struct side *x = &l->side[i];
    void (*begin)(void *) = x->work.begin;
    void *arg = x->arg;
    x->state = SIDE_BEGINS;
    mark_release(x->after);
    x->after = NULL;
    unlock(l);
    begin(arg);
    lock(l);
    l->side[i].state = SIDE_BEGUN;
}

/* The queue may move meanwhile. */
static void run_head(struct late *l, struct queue *q)
{
    struct waiting w = q->list[q->done];
    if (w.kind == IS_RECORD) w.mark->passed = true;
    if (w.kind == IS_JOIN) l->side[w.side].joins--;
    mark_release(w.mark);
    if (w.kind == IS_WORK) {
        q->busy = true;
        unlock(l);
        if (check_host(l, &w)) w.run(q->stream, w.arg);
        xfree(w.arg);
        lock(l);
        q->busy = false;
    }
    l->n_waiting--;
    if (++q->done == q->n) q->done = q->n = 0;
}

/* One operation of some stream that can go on, or a collective that can begin; false: there is none. */
static bool try_one(struct late *l)
{
    struct queue *ready[LATE_STREAMS];
    int side[ORDER_LANES], n = 0, n_sides = 0;
    for (int i = 0; i < l->n_queues; i++)
        if (l->queue[i]->n > l->queue[i]->done && !blocked(l, l->queue[i])) ready[n++] = l->queue[i];
    for (int i = 0; i < l->n_sides && n_sides < ORDER_LANES; i++)
        if (side_ready(l, &l->side[i])) side[n_sides++] = i;
    if (!n && !n_sides) return false;
    int k = (int)(rng_u64(l->seed, 0, l->drawn++) % (uint64_t)(n + n_sides));
    if (k < n) run_head(l, ready[k]);
    else begin_side(l, side[k - n]);
    return true;
}

/* The same; where nothing can go on it waits for a collective that some stream waits for. */
static void run_one(struct late *l)
{
    if (try_one(l)) return;
    for (int i = 0; i < l->n_queues; i++) {
        const struct queue *q = l->queue[i];
        if (q->n == q->done || q->list[q->done].kind != IS_JOIN) continue;
        struct side *x = &l->side[q->list[q->done].side];
        if (x->state != SIDE_BEGUN) continue;
        struct side_work work = x->work;
        work.wait(x->arg); /* may run what can go on meanwhile, and move the list of sides */
        return;
    }
    CHECK(false, "every stream waits for an event that nothing records");
}

/* Until something has happened. */
static void get_on(struct late *l)
{
    if (l->running) pthread_cond_wait(&l->changed, &l->lock);
    else run_one(l);
}

static void run_all(struct late *l)
{
    while (l->n_waiting) get_on(l);
}

static void run_until(struct late *l, const struct queue *q)
{
    while (q->n > q->done) get_on(l);
}

/* ---- by itself ---- */
#define NAP_S 20e-6

/* A queue is at a collective that others have to get on with. */
static bool waits_for_side(const struct late *l)
{
    for (int i = 0; i < l->n_queues; i++) {
        const struct queue *q = l->queue[i];
        if (q->n > q->done && q->list[q->done].kind == IS_JOIN && l->side[q->list[q->done].side].state == SIDE_BEGUN)
            return true;
    }
    return false;
}

static void *running_main(void *arg)
{
    struct late *l = arg;
    thread_name_set("device");
    lock(l);
    while (!l->quit) {
        if (try_one(l)) {
            pthread_cond_broadcast(&l->changed);
        } else if (waits_for_side(l)) {
            unlock(l);
            clock_sleep_s(NAP_S);
            lock(l);
        } else {
            pthread_cond_wait(&l->changed, &l->lock);
        }
    }
    unlock(l);
    return NULL;
}

/* ---- enqueueing ---- */
static struct order_who who_of(struct late *l, const char *op, const char *tensor, const char *lane)
{
    struct order_who w = {.op = op, .number = ++l->number};
    snprintf(w.tensor, sizeof w.tensor, "%s", tensor ? tensor : "");
    snprintf(w.lane, sizeof w.lane, "%s", lane);
    thread_name_get(w.thread);
    return w;
}

static struct waiting *push(struct late *l, struct queue *q)
{
    while (l->n_waiting >= LATE_MOST) get_on(l);
    GROW(q->list, q->n, q->room, 1);
    l->n_waiting++;
    q->list[q->n] = (struct waiting){0};
    if (l->running) pthread_cond_broadcast(&l->changed); /* when the lock is given back */
    return &q->list[q->n++];
}

static void *keep(const void *p, size_t bytes)
{
    void *q = xmalloc(bytes + 1);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

static void enqueue(struct stream *s, const struct stream_work *w, struct host host)
{
    struct late *l = late_of(s);
    struct queue *q = queue_of(s);
    struct order_who who = who_of(l, w->name, w->tensor, s->name);
    order_join(&q->clock, &l->host);
    order_next(l->order, q->lane, &q->clock, &who, w->span, w->n_span);
    lock(l);
    struct waiting *x = push(l, q);
    x->run = w->run;
    x->arg = keep(w->arg, w->arg_bytes);
    x->who = who;
    x->host = host;
    unlock(l);
}

static void late_enqueue(struct stream *s, const struct stream_work *w) { enqueue(s, w, (struct host){0}); }

/* ---- copies: the cpu device's, later ---- */
struct move {
    void *dst;
    const void *src;
    size_t bytes, dst_step, src_step;
    int64_t n;
};

static void run_copy(struct stream *s, void *arg)
{
    struct move *m = arg;
    if (m->n != 1) cpu_ops.copy_rows(s, m->dst, m->dst_step, m->src, m->src_step, m->bytes, m->n);
    else if (m->src) cpu_ops.copy(s, m->dst, m->src, m->bytes);
    else cpu_ops.zero(s, m->dst, m->bytes);
    cpu_ops.sync(s); /* of the tier: done when it has run */
}

static void move(struct stream *s, enum work_kind kind, const char *name, struct move m, struct host host)
{
    struct byte_span span[2] = {{m.dst, m.bytes, m.dst_step, m.n, true, "to"},
                                {m.src, m.bytes, m.src_step, m.n, false, "from"}};
    if (kind == WORK_TO_HOST) span[0].p = NULL; /* the host's bytes are not the device's to order */
    if (kind == WORK_FROM_HOST) span[1].p = NULL;
    struct stream_work w = {.kind = kind,
                            .name = name,
                            .bytes = m.bytes * (size_t)m.n,
                            .run = run_copy,
                            .arg = &m,
                            .arg_bytes = sizeof m,
                            .span = span,
                            .n_span = 2};
    enqueue(s, &w, host);
}

static void late_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    move(s, WORK_COPY, "copy", (struct move){dst, src, bytes, bytes, bytes, 1}, (struct host){0});
}

static void late_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                           int64_t n)
{
    move(s, WORK_COPY, "copy of rows", (struct move){dst, src, bytes, dst_step, src_step, n}, (struct host){0});
}

static void late_away(struct stream *s, void *dst, const void *src, size_t bytes, bool out)
{
    move(s, WORK_COPY, out ? "put away" : "bring back", (struct move){dst, src, bytes, bytes, bytes, 1},
         (struct host){0});
}

static void late_zero(struct stream *s, void *dst, size_t bytes)
{
    move(s, WORK_ZERO, "zero", (struct move){dst, NULL, bytes, bytes, bytes, 1}, (struct host){0});
}

static void late_to_host(struct stream *s, void *host, const void *src, size_t bytes)
{
    memset(host, 0xff, bytes);
    move(s, WORK_TO_HOST, "copy to the host", (struct move){host, src, bytes, bytes, bytes, 1},
         (struct host){.p = host, .bytes = bytes});
}

static void late_from_host(struct stream *s, void *dst, const void *host, size_t bytes)
{
    move(s, WORK_FROM_HOST, "copy from the host", (struct move){dst, host, bytes, bytes, bytes, 1},
         (struct host){(void *)(uintptr_t)host, keep(host, bytes), bytes});
}

/* ---- waiting ---- */
/* A point in the queue, for somebody to keep. */
static struct mark *record(struct late *l, struct queue *q)
{
    struct mark *m = xcalloc(1, sizeof *m);
    struct waiting *w = push(l, q);
    w->kind = IS_RECORD;
    w->mark = m;
    m->refs = 2; /* his and the queue's */
    m->clock = q->clock;
    return m;
}

static void late_sync(struct stream *s)
{
    struct late *l = late_of(s);
    lock(l);
    run_until(l, queue_of(s));
    unlock(l);
    order_join(&l->host, &queue_of(s)->clock);
}

static void late_event_record(struct event *ev, struct stream *s)
{
    order_join(&queue_of(s)->clock, &late_of(s)->host);
    lock(late_of(s));
    struct mark *m = record(late_of(s), queue_of(s));
    mark_release(ev->own);
    ev->own = m;
    unlock(late_of(s));
}

static void late_event_wait(struct stream *s, struct event *ev)
{
    struct mark *m = ev->own;
    if (!m) return; /* never recorded: it has passed */
    order_join(&queue_of(s)->clock, &m->clock);
    lock(late_of(s));
    struct waiting *w = push(late_of(s), queue_of(s));
    w->kind = IS_WAIT;
    w->mark = m;
    m->refs++;
    unlock(late_of(s));
}

static void late_event_free(struct event *ev)
{
    lock(ev->dev->own);
    mark_release(ev->own);
    unlock(ev->dev->own);
}

static uint64_t late_fork(struct stream *s, const struct stream_work *w, uint64_t after)
{
    struct late *l = late_of(s);
    int i = 0;
    lock(l);
    while (i < l->n_sides && (l->side[i].open || l->side[i].joins || !side_over(&l->side[i]))) i++;
    if (i == l->n_sides) {
        GROW(l->side, l->n_sides, l->room_sides, 1);
        l->side[l->n_sides++] = (struct side){0};
    }
    struct side *x = &l->side[i];
    order_join(&queue_of(s)->clock, &l->host);
    x->open = true;
    x->clock = queue_of(s)->clock;
    x->lane = order_lane_new(l->order);
    if (after && l->side[after - 1].open) order_join(&x->clock, &l->side[after - 1].clock);
    struct order_who who = who_of(l, w->name, w->tensor, "a communicator");
    order_next(l->order, x->lane, &x->clock, &who, w->span, w->n_span);
    x->state = SIDE_DONE;
    if (w->side) {
        x->state = SIDE_QUEUED;
        x->work = *w->side;
        x->arg = keep(w->arg, w->arg_bytes);
        x->number = l->number;
        x->after = record(l, queue_of(s));
    } else {
        run_until(l, queue_of(s)); /* who carries it out touches the bytes from now on */
    }
    unlock(l);
    return (uint64_t)i + 1;
}

static bool late_nudge(struct device *d) { return try_one(d->own); }

static void late_reach(struct device *d, uint64_t name)
{
    struct late *l = d->own;
    lock(l);
    while (l->side[name - 1].state == SIDE_QUEUED || l->side[name - 1].state == SIDE_BEGINS) get_on(l);
    unlock(l);
}

static void late_join(struct stream *s, uint64_t name, bool host)
{
    struct late *l = late_of(s);
    lock(l);
    struct side *x = &l->side[name - 1];
    if (x->open) {
        order_join(&queue_of(s)->clock, &x->clock);
        if (host) order_join(&l->host, &x->clock);
        order_lane_free(l->order, x->lane);
        x->open = false;
        if (x->state != SIDE_DONE) {
            struct waiting *w = push(l, queue_of(s));
            w->kind = IS_JOIN;
            w->side = (int)name - 1;
            l->side[name - 1].joins++;
        }
    }
    unlock(l);
}

/* ---- handles and memory ---- */
static int late_stream_new(struct stream *s, struct err *e)
{
    struct late *l = late_of(s);
    if (l->n_queues == LATE_STREAMS)
        return err_set(e, ERR_REQUEST, "a late device has at most %d streams", LATE_STREAMS);
    struct queue *q = xcalloc(1, sizeof *q);
    q->stream = s;
    q->lane = order_lane_new(l->order);
    s->own = q;
    if (l->running) s->team = l->team;
    lock(l);
    l->queue[l->n_queues++] = q;
    unlock(l);
    return OK;
}

static void late_stream_free(struct stream *s) /* it was waited for */
{
    struct late *l = late_of(s);
    lock(l);
    for (bool any = true; any;) { /* collectives that nobody waited for begin all the same */
        any = false;
        for (int i = 0; i < l->n_sides; i++) any |= l->side[i].state == SIDE_QUEUED || l->side[i].state == SIDE_BEGINS;
        if (any) get_on(l);
    }
    struct queue *q = queue_of(s);
    int i = 0;
    while (l->queue[i] != q) i++;
    l->queue[i] = l->queue[--l->n_queues];
    unlock(l);
    order_lane_free(l->order, q->lane);
    xfree(q->list);
    xfree(q);
}

static int late_alloc(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e)
{
    struct late *l = d->own;
    int rc = cpu_ops.alloc(d, cat, bytes, p, e);
    if (rc) return rc;
    lock(l);
    GROW(l->extent, l->n_extents, l->room_extents, 1);
    l->extent[l->n_extents++] = (struct extent){*p, bytes, cat};
    unlock(l);
    return OK;
}

static int late_host_alloc(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e)
{
    return cpu_ops.host_alloc(d, cat, bytes, p, e);
}

static void late_release(struct device *d, enum mem_cat cat, void *p, size_t bytes)
{
    struct late *l = d->own;
    struct order_who who = who_of(l, "freeing the buffer", mem_cat_name(cat), "the host");
    lock(l);
    run_all(l);
    for (int i = 0; i < l->n_queues; i++) order_join(&l->host, &l->queue[i]->clock);
    order_forget(l->order, &l->host, &who, p, bytes);
    for (int i = 0; i < l->n_extents; i++)
        if (l->extent[i].p == p) l->extent[i--] = l->extent[--l->n_extents];
    unlock(l);
    cpu_ops.release(d, cat, p, bytes);
}

static void late_destroy(struct device *d)
{
    struct late *l = d->own;
    if (l->running) {
        lock(l);
        l->quit = true;
        pthread_cond_broadcast(&l->changed);
        unlock(l);
        pthread_join(l->thread, NULL);
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
    }
    team_free(l->team);
    order_free(l->order);
    for (int i = 0; i < l->n_sides; i++)
        if (l->side[i].state != SIDE_DONE) xfree(l->side[i].arg);
    xfree(l->side);
    xfree(l->extent);
    xfree(l);
    cpu_ops.destroy(d);
}

#define OPS                                                                                                            \
    .alloc = late_alloc, .host_alloc = late_host_alloc, .release = late_release, .copy = late_copy,                    \
    .to_host = late_to_host, .from_host = late_from_host, .copy_rows = late_copy_rows, .away = late_away,              \
    .zero = late_zero, .sync = late_sync, .stream_new = late_stream_new, .stream_free = late_stream_free,              \
    .event_free = late_event_free, .event_record = late_event_record, .event_wait = late_event_wait,                   \
    .enqueue = late_enqueue, .fork = late_fork, .join = late_join, .reach = late_reach, .owns = cpu_owns,              \
    .destroy = late_destroy
static const struct device_ops late_ops = {.name = "late", .nudge = late_nudge, OPS};
static const struct device_ops running_ops = {.name = "running", OPS}; /* the host cannot lend a hand */

static void find_stack(struct late *l)
{
    pthread_attr_t a;
    void *low;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &a)) return;
    if (!pthread_attr_getstack(&a, &low, &bytes)) l->stack_low = low, l->stack_high = l->stack_low + bytes;
    pthread_attr_destroy(&a);
}

int device_late_new(struct device **d, int n_threads, uint64_t seed, late_report_fn *fn, void *ctx, struct err *e)
{
    int rc = cpu_new(d, n_threads, true, e);
    if (rc) return rc;
    struct late *l = (*d)->own = xcalloc(1, sizeof *l);
    (*d)->ops = &late_ops;
    (*d)->begins = true;
    *l = (struct late){.dev = *d, .seed = seed, .report = fn, .ctx = ctx};
    l->order = order_new(report_race, l);
    find_stack(l);
    return OK;
}

int device_running_new(struct device **d, int n_threads, uint64_t seed, late_report_fn *fn, void *ctx, struct err *e)
{
    int rc = device_late_new(d, n_threads, seed, fn, ctx, e);
    if (rc) return rc;
    struct late *l = (*d)->own;
    (*d)->ops = &running_ops;
    rc = team_start(&l->team, n_threads, e);
    if (!rc) {
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->changed, NULL);
        l->running = true;
        if (pthread_create(&l->thread, NULL, running_main, l)) l->running = false;
        if (!l->running) rc = err_set(e, ERR_MEMORY, "the device's thread could not be started");
    }
    if (rc) device_free(*d), *d = NULL;
    return rc;
}
