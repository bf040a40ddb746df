/* SPDX-License-Identifier: Apache-2.0 */
/* One function per row and phase, in a table. A result that must be added to a gradient that is there already lands in
 * scratch first. What is begun is finished when the program says so; work that needs nothing of it runs in between.
 * Cost: one collective each, no copies but the slices of SPREAD and COLLECT, and pieces of GATHER and SCATTER once
 * through scratch. */
#include "parallel/run.h"

#include "base/mem.h"
#include "layout/region.h"
#include "parallel/context.h"
#include "parallel/expert.h"

static size_t row_bytes(const struct view *v) { return to_size(view_cols(v)) * dtype_bytes(v->dtype); }

static int64_t numel(const struct view *v) { return view_rows(v) * view_cols(v); }

/* Rank r's rows of the piece. */
static void piece_of(const struct rows_attrs *at, int r, int64_t *lo, int64_t *hi)
{
    region_window(at->whole, r, at->over.n_parts, at->piece, at->pieces, lo, hi);
}

/* Elements of every rank's rows, or of the piece of them. */
static void counts(const struct rows_attrs *at, int64_t cols, int64_t *out)
{
    int n = at->over.n_parts;
    CHECK(n <= PAR_MAX_RANKS, "%d ranks along %s", n, axis_name(at->over.axis));
    for (int r = 0; r < n; r++) {
        int64_t lo = 0, hi = 0;
        if (at->pieces) piece_of(at, r, &lo, &hi);
        out[r] = (at->pieces ? hi - lo : op_rows_here(at, r)) * cols;
    }
}

/* `from` and `to` as the row's direction has them: whole or this rank's rows. */
typedef int64_t move_fn(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                        const struct view *to);

static int64_t all_reduce(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                          const struct view *to)
{
    (void)s;
    return comm_all_reduce(m, from->p, to->p, numel(from), from->dtype, COMM_SUM, op_row(c->op)->name);
}

static int64_t all_gather(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                          const struct view *to)
{
    (void)s;
    int64_t n[PAR_MAX_RANKS];
    counts(at_rows(&c->at), view_cols(from), n);
    return comm_all_gather_v(m, from->p, to->p, n, from->dtype, op_row(c->op)->name);
}

static int64_t reduce_scatter(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                              const struct view *to)
{
    (void)s;
    int64_t n[PAR_MAX_RANKS];
    counts(at_rows(&c->at), view_cols(from), n);
    return comm_reduce_scatter_v(m, from->p, to->p, n, from->dtype, COMM_SUM, op_row(c->op)->name);
}

/* Nothing is beside it: a few bytes, and the next row waits for them. */
static int64_t agree(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                     const struct view *to)
{
    (void)s;
    comm_wait(m, comm_all_reduce(m, from->p, to->p, numel(from), from->dtype, COMM_MAX, op_row(c->op)->name));
    return 0;
}

static int64_t slice(struct stream *s, struct comm *m, const struct kernel_call *c, const struct view *from,
                     const struct view *to)
{
    (void)m;
    const struct rows_attrs *at = at_rows(&c->at);
    int64_t before = 0, n = op_rows_here(at, at->over.part);
    for (int r = 0; r < at->over.part; r++) before += op_rows_here(at, r);
    if (from->p && to->p && n)
        stream_copy(s, to->p, (const char *)from->p + to_size(before) * row_bytes(from), to_size(n) * row_bytes(from));
    return 0;
}

struct way {
    move_fn *forward, *backward; /* NULL: nothing moves (the row is an alias) */
};
static const struct way ways[OP_N] = {
    [OP_ENTER] = {NULL, all_reduce},
    [OP_REDUCE] = {all_reduce, NULL},
    [OP_GATHER] = {all_gather, reduce_scatter},
    [OP_SCATTER] = {reduce_scatter, all_gather},
    [OP_SPREAD] = {slice, all_gather},
    [OP_COLLECT] = {all_gather, slice},
    [OP_AGREE] = {agree, NULL},
};

static void add(struct stream *s, const struct view *acc, const struct view *landed, const struct view *to)
{
    struct step_info still = {.training = false};
    struct kernel_call k = {.op = OP_ADD,
                            .phase = KERNEL_FWD,
                            .at = ATTRS(dropout, 0),
                            .step = &still,
                            .n_in = 2,
                            .n_out = 1,
                            .in = {*acc, *landed},
                            .out = {*to}};
    kernel_enqueue(s, &k);
}

/* What arrived in scratch, laid out as `to` is but dense. */
static struct view landed(const struct view *to, void *p)
{
    struct view v = *to;
    v.p = p;
    v.stride = view_cols(to);
    return v;
}

/* ---- pieces: some rows of every rank. A message has them one rank after the other; the side with all ranks' rows has
 * them apart, so it is packed before or dealt out after, through scratch: one copy of the piece. ---- */
static struct view rows_in(const struct view *v, int64_t lo, int64_t hi)
{
    struct view w = *v;
    w.n[0] = hi - lo;
    if (v->p) w.p = (char *)v->p + to_size(lo * v->stride) * dtype_bytes(v->dtype);
    return w;
}

/* NULL: all of each rank's rows. */
static const struct rows_attrs *cut_of(const struct kernel_call *c)
{
    return c->at.kind == ATTRS_ROWS && at_rows(&c->at)->pieces ? at_rows(&c->at) : NULL;
}

static int64_t piece_rows(const struct rows_attrs *at)
{
    int64_t n = 0, lo, hi;
    for (int r = 0; r < at->over.n_parts; r++) {
        piece_of(at, r, &lo, &hi);
        n += hi - lo;
    }
    return n;
}

static void copy_rows(struct stream *s, const struct view *from, const struct view *to)
{
    size_t each = dtype_bytes(from->dtype);
    stream_copy_rows(s, to->p, to_size(to->stride) * each, from->p, to_size(from->stride) * each, row_bytes(from),
                     from->n[0]);
}

/* Between all ranks' rows and scratch, where the piece lies one rank after the other. acc: added on the way out. */
static void deal(struct stream *s, const struct kernel_call *c, const struct view *all, const struct view *acc,
                 bool out)
{
    const struct rows_attrs *cut = cut_of(c);
    int64_t lo, hi;
    char *at = c->scratch;
    for (int r = 0; r < cut->over.n_parts && all->p; r++) {
        piece_of(cut, r, &lo, &hi);
        struct view here = rows_in(all, lo, hi), there = landed(&here, at), more = acc ? rows_in(acc, lo, hi) : here;
        at += to_size(hi - lo) * row_bytes(all);
        if (hi == lo) continue;
        if (!out) copy_rows(s, &here, &there);
        else if (acc) add(s, &more, &there, &here);
        else copy_rows(s, &there, &here);
    }
}

static bool gathers(const struct kernel_call *c) { return (c->op == OP_GATHER) == (c->phase == KERNEL_FWD); }

/* Where a gradient lands that is added to another. */
static void *landing(const struct kernel_call *c)
{
    const struct view *all = &c->dout[0];
    const struct rows_attrs *cut = cut_of(c);
    return cut && c->scratch ? (char *)c->scratch + to_size(piece_rows(cut)) * row_bytes(all) : c->scratch;
}

size_t par_run_scratch(const struct kernel_table *kt, const struct kernel_call *c)
{
    if (c->op == OP_DISPATCH || c->op == OP_COMBINE) return expert_scratch(c);
    const struct rows_attrs *cut = cut_of(c);
    if (cut) return to_size(piece_rows(cut)) * row_bytes(c->phase == KERNEL_FWD ? &c->in[0] : &c->dout[0]);
    return c->op == OP_CONTEXT ? context_scratch(kt, c) : 0;
}

static void finish(void *ctx, struct stream *s, const struct kernel_call *c, int64_t ticket);

static int64_t begin(void *ctx, struct stream *s, const struct kernel_call *c)
{
    struct par_run *x = ctx;
    if (c->op == OP_CONTEXT) {
        context_run(x, s, c);
        return 0;
    }
    if (c->op == OP_DISPATCH || c->op == OP_COMBINE) return expert_begin(x, s, c);
    struct comm *m = x->axis[at_over(&c->at)->axis];
    const struct way *w = &ways[c->op];
    bool forward = c->phase == KERNEL_FWD;
    struct view from = forward ? c->in[0] : c->dout[0], to = forward ? c->out[0] : c->din[0];
    CHECK(m && (forward ? w->forward : w->backward), "%s: nothing does this over %s", op_row(c->op)->name,
          axis_name(at_over(&c->at)->axis));
    if (!forward && c->acc[0].p) to.p = landing(c);
    if (cut_of(c) && gathers(c)) {
        to.p = c->scratch;
    } else if (cut_of(c)) {
        deal(s, c, &from, NULL, false);
        from.p = c->scratch;
    }
    int64_t ticket = (forward ? w->forward : w->backward)(s, m, c, &from, &to);
    if (!ticket) finish(ctx, s, c, 0);
    return ticket;
}

static void finish(void *ctx, struct stream *s, const struct kernel_call *c, int64_t ticket)
{
    struct par_run *x = ctx;
    bool forward = c->phase == KERNEL_FWD;
    if (c->op == OP_DISPATCH || c->op == OP_COMBINE) {
        expert_end(x, s, c, ticket);
        return;
    }
    if (ticket) comm_wait(x->axis[at_over(&c->at)->axis], ticket);
    const struct view *to = forward ? &c->out[0] : &c->din[0], *acc = !forward && c->acc[0].p ? &c->acc[0] : NULL;
    if (cut_of(c) && gathers(c)) {
        deal(s, c, to, acc, true);
    } else if (acc) {
        struct view there = landed(to, landing(c));
        add(s, acc, &there, to);
    }
}

/* With inline progress (comm_config) the rank itself moves the bytes: here, or else not before somebody waits. */
static void poll(void *ctx, const struct kernel_call *c, int64_t ticket)
{
    struct par_run *x = ctx;
    (void)comm_done(x->axis[at_over(&c->at)->axis], ticket);
}

static int64_t rounds(void *ctx, struct stream *s, const struct kernel_call *c) { return expert_rounds(ctx, s, c); }

struct carrier par_run_carrier(struct par_run *x)
{
    return (struct carrier){.begin = begin, .end = finish, .poll = poll, .rounds = rounds, .ctx = x};
}
