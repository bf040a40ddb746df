/* SPDX-License-Identifier: Apache-2.0 */
/* The door to a device's bytes: what is enqueued on a stream, with addresses of its device. On an untouchable device
 * (device.h) each operand is translated in a copy of the call, and one that is host memory is our bug. A cpu stream
 * runs it at once; a device that takes work (stream_takes_work) gets a copy of all arguments and the ranges that they
 * read and write, from the views of the call. */
#include "base/mem.h"
#include "device/order.h"
#include "kernel/codec_rows.h"
#include "kernel/exponent_bins.h"
#include "kernel/formats.h"
#include "kernel/packed_rows.h"
#include "kernel/rounded.h"
#include "kernel/update.h"

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
static struct byte_span span_of(const void *p, int64_t n, enum dtype t, bool writes, const char *part)
{
    size_t bytes = to_size(n) * dtype_bytes(t);
    return (struct byte_span){p, bytes, bytes, 1, writes, part};
}

struct spans {
    struct byte_span list[WORK_SPANS];
    int n;
};

static void add_views(struct spans *x, const struct view *v, int n, bool writes, const char *part)
{
    for (int i = 0; i < n; i++) {
        if (!v[i].p) continue;
        size_t each = dtype_bytes(v[i].dtype);
        x->list[x->n++] = (struct byte_span){v[i].p,
                                             to_size(view_cols(&v[i])) * each,
                                             to_size(v[i].nd > 1 ? v[i].stride : view_cols(&v[i])) * each,
                                             view_rows(&v[i]),
                                             writes,
                                             part};
    }
}

/* Backward reads of inputs and outputs what the row saves: the others have no address. */
static void spans_of(struct spans *x, const struct kernel_call *c)
{
    bool forward = c->phase == KERNEL_FWD;
    x->n = 0;
    add_views(x, c->in, c->n_in, op_row(c->op)->caches, "an input");
    add_views(x, c->out, c->n_out, forward, "an output");
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

/* A flat operation with its arguments, translated. */
struct flat_call {
    enum {
        FLAT_ADAMW,
        FLAT_SGD,
        FLAT_SUM_SQUARES,
        FLAT_FIND,
        FLAT_CAST,
        FLAT_INTO,
        FLAT_TREE,
        FLAT_PARTS,
        FLAT_SQUARES,
        FLAT_UPDATE,
        FLAT_ENCODE,
        FLAT_DECODE,
        FLAT_UNPACK
    } op;
    struct adamw_args adamw;
    struct sgd_args sgd;
    struct update_args update;
    struct codec_args codec;
    struct packed_args packed;
    void *to;
    const void *from;
    enum dtype t, f;
    int64_t n;
    int parts;
    bool add;
    void *result; /* the host's */
};

static void run_flat(struct stream *s, void *arg)
{
    const struct flat_call *a = arg;
    const struct flat_ops *f = s->kernels->flat;
    switch (a->op) {
    case FLAT_ADAMW: f->adamw(s->team, &a->adamw); return;
    case FLAT_SGD: f->sgd(s->team, &a->sgd); return;
    case FLAT_SUM_SQUARES: f->sum_squares(s->team, a->from, a->n, a->to ? a->to : a->result); return;
    case FLAT_FIND: *(int64_t *)a->result = f->find_nonfinite(s->team, a->from, a->f, a->n); return;
    case FLAT_CAST: f->cast(s->team, a->to, a->t, a->from, a->f, a->n); return;
    case FLAT_INTO: f->sum_into(s->team, a->to, a->t, a->from, a->f, a->n, a->add); return;
    case FLAT_TREE: f->sum_tree(s->team, a->to, a->from, a->parts, a->n); return;
    case FLAT_PARTS: f->sum_parts(s->team, a->to, a->t, a->from, a->parts, a->n); return;
    case FLAT_SQUARES: f->squares(s->team, a->from, a->n, a->to); return;
    case FLAT_UPDATE: f->update(s->team, &a->update); return;
    case FLAT_ENCODE: s->kernels->formats->encode_rows(s->team, &a->codec); return;
    case FLAT_DECODE: s->kernels->formats->decode_rows(s->team, &a->codec); return;
    case FLAT_UNPACK: s->kernels->formats->unpack(s->team, &a->packed); return;
    }
}

/* Spans as the caller has them, before translation; those without an address are left out. */
static void flat(struct stream *s, const char *name, const struct flat_call *a, const struct byte_span *span, int n)
{
    if (stream_takes_work(s))
        stream_enqueue(s, &(struct stream_work){.kind = WORK_FLAT,
                                                .name = name,
                                                .run = run_flat,
                                                .arg = a,
                                                .arg_bytes = sizeof *a,
                                                .span = span,
                                                .n_span = n});
    else if (!s->dev->counts_only) run_flat(s, (void *)(uintptr_t)a);
}

void kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    c->stream = s;
    if (stream_takes_work(s)) enqueue_call(s, c);
    if (stream_takes_work(s) && !s->dev->counts_only) return;
    if (!s->dev->untouchable) {
        kernel_run(s->kernels, c);
        return;
    }
    struct kernel_call here = entered_call(s, c);
    kernel_run(s->kernels, &here);
}

/* ---- what was rounded ---- */
struct queued_count {
    struct queued_call q;
    struct rounded_counts *out;
    int64_t apart;
};

static void run_count(struct stream *s, void *arg)
{
    struct queued_count *x = arg;
    (void)s;
    if (x->q.call.step) x->q.call.step = &x->q.step;
    rounded_count(&x->q.call, x->out, x->apart);
}

void kernel_count_rounded(struct stream *s, const struct kernel_call *c, struct rounded_counts *out, int64_t apart)
{
    struct spans x;
    struct queued_count w = {.q = {.call = entered_call(s, c)}, .out = out, .apart = apart};
    w.q.call.stream = s;
    if (c->step) w.q.step = *c->step;
    if (!stream_takes_work(s)) {
        if (!s->dev->counts_only) run_count(s, &w);
        return;
    }
    spans_of(&x, c);
    for (int i = 0; i < x.n; i++) x.list[i].writes = false;
    stream_enqueue(s, &(struct stream_work){.kind = WORK_FLAT,
                                            .name = "what was rounded",
                                            .tensor = c->what,
                                            .run = run_count,
                                            .arg = &w,
                                            .arg_bytes = sizeof w,
                                            .span = x.list,
                                            .n_span = x.n});
    stream_sync(s);
}

struct queued_exponents {
    struct view v;
    int64_t *bins;
};

static void run_exponents(struct stream *s, void *arg)
{
    const struct queued_exponents *x = arg;
    (void)s;
    exponents_count(&x->v, x->bins);
}

void kernel_count_exponents(struct stream *s, const struct view *v, int64_t bins[EXPONENT_BINS])
{
    struct spans x = {.n = 0};
    struct queued_exponents w = {.v = *v, .bins = bins};
    enter_views(s, &w.v, 1, "numbers by exponent");
    if (!stream_takes_work(s)) {
        if (!s->dev->counts_only) run_exponents(s, &w);
        return;
    }
    add_views(&x, v, 1, false, "numbers");
    stream_enqueue(s, &(struct stream_work){.kind = WORK_FLAT,
                                            .name = "numbers by exponent",
                                            .run = run_exponents,
                                            .arg = &w,
                                            .arg_bytes = sizeof w,
                                            .span = x.list,
                                            .n_span = x.n});
    stream_sync(s);
}

/* ---- flat operations ---- */
void flat_adamw(struct stream *s, const struct adamw_args *a)
{
    struct flat_call x = {.op = FLAT_ADAMW, .adamw = *a};
    struct byte_span span[] = {span_of(a->master, a->n, DT_F32, true, "master"),
                               span_of(a->m, a->n, DT_F32, true, "first moment"),
                               span_of(a->v, a->n, DT_F32, true, "second moment"),
                               span_of(a->grad, a->n, DT_F32, false, "gradient"),
                               span_of(a->param, a->n, a->param ? a->param_dtype : DT_F32, true, "parameter")};
    x.adamw.master = entered(s, a->master, "adamw");
    x.adamw.m = entered(s, a->m, "adamw");
    x.adamw.v = entered(s, a->v, "adamw");
    x.adamw.grad = entered(s, a->grad, "adamw");
    x.adamw.param = entered(s, a->param, "adamw");
    flat(s, "adamw", &x, span, 5);
}

void flat_sgd(struct stream *s, const struct sgd_args *a)
{
    struct flat_call x = {.op = FLAT_SGD, .sgd = *a};
    struct byte_span span[] = {span_of(a->master, a->n, DT_F32, true, "master"),
                               span_of(a->m, a->n, DT_F32, true, "momentum"),
                               span_of(a->grad, a->n, DT_F32, false, "gradient"),
                               span_of(a->param, a->n, a->param ? a->param_dtype : DT_F32, true, "parameter")};
    x.sgd.master = entered(s, a->master, "sgd");
    x.sgd.m = entered(s, a->m, "sgd");
    x.sgd.grad = entered(s, a->grad, "sgd");
    x.sgd.param = entered(s, a->param, "sgd");
    flat(s, "sgd", &x, span, 4);
}

void flat_update(struct stream *s, const struct update_args *a)
{
    const struct update_row *row = &update_rows[a->kind];
    struct flat_call x = {.op = FLAT_UPDATE, .update = *a};
    struct byte_span span[UPDATE_OPERANDS];
    for (int k = 0; k < row->n; k++) {
        span[k] = span_of(a->at[k].p, update_elements(a, k), a->at[k].t, row->at[k].writes, row->at[k].name);
        x.update.at[k].p = entered(s, a->at[k].p, row->name);
    }
    flat(s, row->name, &x, span, row->n);
}

/* to may be NULL: the result is the host's. */
static void two(struct stream *s, const char *name, struct flat_call x, int64_t n_from, int64_t n_to)
{
    struct byte_span span[] = {span_of(x.from, n_from, x.f, false, "from"), span_of(x.to, n_to, x.t, true, "to")};
    x.from = entered(s, x.from, name);
    x.to = entered(s, x.to, name);
    flat(s, name, &x, span, 2);
}

void flat_sum_squares(struct stream *s, const float *x, int64_t n, double *sum)
{
    two(s, "sum of squares",
        (struct flat_call){.op = FLAT_SUM_SQUARES, .to = sum, .t = DT_F64, .from = x, .f = DT_F32, .n = n}, n, 1);
}

double flat_sum_squares_now(struct stream *s, const float *x, int64_t n)
{
    double result = 0;
    two(s, "sum of squares",
        (struct flat_call){.op = FLAT_SUM_SQUARES, .t = DT_F64, .from = x, .f = DT_F32, .n = n, .result = &result}, n,
        0);
    stream_sync(s);
    return result;
}

int64_t flat_find_nonfinite(struct stream *s, const void *x, enum dtype dtype, int64_t n)
{
    int64_t result = -1;
    two(s, "find_nonfinite",
        (struct flat_call){.op = FLAT_FIND, .from = x, .f = dtype, .t = dtype, .n = n, .result = &result}, n, 0);
    stream_sync(s);
    return result;
}

void flat_cast(struct stream *s, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    two(s, "cast", (struct flat_call){.op = FLAT_CAST, .to = dst, .t = to, .from = src, .f = from, .n = n}, n, n);
}

void flat_sum_into(struct stream *s, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    two(s, "sum", (struct flat_call){.op = FLAT_INTO, .to = to, .t = t, .from = from, .f = f, .n = n, .add = add}, n,
        n);
}

void flat_sum_tree(struct stream *s, float *to, const float *part, int n_parts, int64_t n)
{
    two(s, "sum of a tree",
        (struct flat_call){.op = FLAT_TREE, .to = to, .t = DT_F32, .from = part, .f = DT_F32, .n = n, .parts = n_parts},
        n * n_parts, n);
}

void flat_sum_parts(struct stream *s, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    two(s, "sum of parts",
        (struct flat_call){.op = FLAT_PARTS, .to = to, .t = t, .from = part, .f = t, .n = n, .parts = n_parts},
        n * n_parts, n);
}

void flat_squares(struct stream *s, const float *x, int64_t n, int64_t *word)
{
    two(s, "squares", (struct flat_call){.op = FLAT_SQUARES, .to = word, .t = DT_I64, .from = x, .f = DT_F32, .n = n},
        n, FLAT_SQUARES_WORDS);
}

/* ---- codecs ---- */
static void codec_call(struct stream *s, const char *name, const struct codec_args *a, bool encode)
{
    struct flat_call x = {.op = encode ? FLAT_ENCODE : FLAT_DECODE, .codec = *a};
    size_t bytes = codec_bytes(a->codec, &a->shape, a->t);
    int64_t n = a->shape.rows * a->shape.cols;
    struct byte_span span[] = {span_of(a->x, n, a->t, !encode, "numbers"),
                               {a->codes, bytes, encode ? bytes : a->stride, encode ? 1 : a->parts, encode, "codes"}};
    if (!n) return;
    x.codec.x = entered(s, a->x, name);
    x.codec.codes = entered(s, a->codes, name);
    flat(s, name, &x, span, 2);
}

void codec_encode(struct stream *s, const struct codec_args *a) { codec_call(s, "encode", a, true); }
void codec_decode(struct stream *s, const struct codec_args *a) { codec_call(s, "decode", a, false); }

/* ---- matrices in few bits ---- */
void packed_unpack(struct stream *s, const struct packed_args *a)
{
    static const char name[] = "unpack";
    struct flat_call x = {.op = FLAT_UNPACK, .packed = *a};
    const int64_t n = a->rows * a->cols;
    struct byte_span span[] = {span_of(a->codes, a->rows * packing_row_bytes(a->packing, a->cols), DT_U8, false,
                                       "codes"),
                               span_of(a->scales, a->rows * packing_row_blocks(a->packing, a->cols), DT_U8, false,
                                       "scales"),
                               span_of(a->groups, a->n_groups, DT_F32, false, "scales of scales"),
                               span_of(a->x, n, a->t, true, "numbers")};
    if (!n) return;
    x.packed.codes = entered(s, a->codes, name);
    x.packed.scales = entered(s, a->scales, name);
    x.packed.groups = entered(s, a->groups, name);
    x.packed.x = entered(s, a->x, name);
    flat(s, name, &x, span, 4);
}
