/* SPDX-License-Identifier: Apache-2.0 */
/* The door to a device's bytes: what is enqueued on a stream, with addresses of its device. On an untouchable device
 * (device.h) each operand is translated in a copy of the call, and one that is host memory is our bug. A cpu stream
 * runs it at once; a device that takes work (stream_takes_work) gets a copy of all arguments and the ranges that they
 * read and write, from the views of the call. */
#include "base/mem.h"
#include "device/order.h"
#include "kernel/kernel.h"

void kernel_on(struct stream *s, const struct kernel_table *t)
{
    CHECK(t->dry == s->dev->counts_only, "kernels that %s on a device that %s", t->dry ? "count" : "run",
          s->dev->counts_only ? "counts" : "runs");
    s->kernels = t;
}

static void *entered(const struct stream *s, const void *p, const char *what)
{
    CHECK(!p || device_owns(s->dev, p), "%s was given an address of %s, on a device that %s", what,
          s->dev->untouchable ? "the host" : "a device", s->dev->untouchable ? "cannot be touched" : "can");
    return device_here(p);
}

static void enter_views(const struct stream *s, struct view *v, int n, const char *what)
{
    for (int i = 0; i < n; i++) v[i].p = entered(s, v[i].p, what);
}

static struct kernel_call entered_call(const struct stream *s, const struct kernel_call *c)
{
    struct kernel_call here = *c;
    const char *name = op_row(c->op)->name;
    enter_views(s, here.in, KERNEL_MAX_IN, name);
    enter_views(s, here.out, KERNEL_MAX_OUT, name);
    enter_views(s, here.dout, KERNEL_MAX_OUT, name);
    enter_views(s, here.din, KERNEL_MAX_IN, name);
    enter_views(s, here.acc, KERNEL_MAX_IN, name);
    here.scratch = entered(s, c->scratch, name);
    return here;
}

/* ---- for a device that takes work ---- */
struct spans {
    struct byte_span list[WORK_SPANS];
    int n;
};

static void add_view(struct spans *x, const struct view *v, bool writes, const char *part)
{
    if (!v->p) return;
    size_t each = dtype_bytes(v->dtype);
    x->list[x->n++] = (struct byte_span){v->p,
                                         to_size(view_cols(v)) * each,
                                         to_size(v->nd > 1 ? v->stride : view_cols(v)) * each,
                                         view_rows(v),
                                         writes,
                                         part};
}

static void add_views(struct spans *x, const struct view *v, int n, bool writes, const char *part)
{
    for (int i = 0; i < n; i++) add_view(x, &v[i], writes, part);
}

/* Backward reads of inputs and outputs what the row saves: the others have no address. */
static void spans_of(struct spans *x, const struct kernel_call *c)
{
    const struct op_row *row = op_row(c->op);
    bool forward = c->phase == KERNEL_FWD;
    x->n = 0;
    for (int i = 0; i < c->n_in; i++) add_view(x, &c->in[i], row->changes_in >> i & 1, op_part(c->op, false, i));
    for (int i = 0; i < c->n_out; i++) add_view(x, &c->out[i], forward, op_part(c->op, true, i));
    if (!forward) {
        add_views(x, c->dout, c->n_out, false, "the gradient of an output");
        add_views(x, c->acc, c->n_in, false, "what it adds to");
        add_views(x, c->din, c->n_in, true, "the gradient of an input");
    }
    if (c->scratch && c->scratch_bytes)
        x->list[x->n++] = (struct byte_span){c->scratch, c->scratch_bytes, c->scratch_bytes, 1, true, "scratch"};
}

struct queued_call {
    struct kernel_call call; /* with addresses that can be touched */
    struct step_info step;
};

static void run_call(struct stream *s, void *arg)
{
    struct queued_call *q = arg;
    if (q->call.step) q->call.step = &q->step;
    kernel_run(s->kernels, &q->call);
}

static void enqueue_call(struct stream *s, const struct kernel_call *c)
{
    struct spans x;
    struct queued_call q = {.call = entered_call(s, c)};
    if (c->step) q.step = *c->step;
    spans_of(&x, c);
    stream_enqueue(s, &(struct stream_work){.kind = WORK_KERNEL,
                                            .name = op_row(c->op)->name,
                                            .tensor = c->what,
                                            .call = c,
                                            .run = run_call,
                                            .arg = &q,
                                            .arg_bytes = sizeof q,
                                            .span = x.list,
                                            .n_span = x.n});
}

/* To a call that has no scratch of its own; one that wants none takes none. */
static void lend_room(struct stream *s, struct kernel_call *c)
{
    c->scratch_bytes = kernel_scratch(s->kernels, c);
    CHECK(c->scratch_bytes <= s->room_bytes, "%s wants %zu bytes, a stream has %zu", op_row(c->op)->name,
          c->scratch_bytes, s->room_bytes);
    if (c->scratch_bytes) c->scratch = s->room;
}

void kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    c->stream = s;
    if (!c->scratch && s->room) lend_room(s, c);
    const struct kernel_slot *way = c->kernel ? c->kernel : kernel_find(s->kernels, c, NULL);
    if (kernel_is_carried(way) && !s->dev->counts_only) {
        way->run(c);
        return;
    }
    if (stream_takes_work(s)) enqueue_call(s, c);
    if (stream_takes_work(s) && !s->dev->counts_only) return;
    if (!s->dev->untouchable) {
        kernel_run(s->kernels, c);
        return;
    }
    struct kernel_call here = entered_call(s, c);
    kernel_run(s->kernels, &here);
}
