/* One function per row and phase, in a table. A result that must be added to a gradient that is there already lands in
 * scratch first. What is begun is finished when the program says so; work that needs nothing of it runs in between.
 * Cost: one collective each, no copies but the slices of SPREAD and COLLECT. */
#include "parallel/run.h"

#include <string.h>

#include "base/mem.h"

#include "parallel/context.h"
#include "parallel/expert.h"

enum { MAX_PARTS = 4096 };

static size_t row_bytes(const struct view *v)
{
    return to_size(view_cols(v)) * dtype_bytes(v->dtype);
}

static int64_t numel(const struct view *v)
{
    return view_rows(v) * view_cols(v);
}

/* Elements of every rank's rows. */
static void counts(const struct op_attrs *at, int64_t cols, int64_t *out)
{
    CHECK(at->n_parts <= MAX_PARTS, "%d ranks along %s", at->n_parts, axis_name(at->axis));
    for (int r = 0; r < at->n_parts; r++) out[r] = op_rows_here(at, r) * cols;
}

/* `from` and `to` as the row's direction has them: whole or this rank's rows. */
typedef int64_t move_fn(struct comm *m, const struct kernel_call *c, const struct view *from, const struct view *to);

static int64_t all_reduce(struct comm *m, const struct kernel_call *c, const struct view *from, const struct view *to)
{
    return comm_all_reduce(m, from->p, to->p, numel(from), from->dtype, COMM_SUM, op_row(c->op)->name);
}

static int64_t all_gather(struct comm *m, const struct kernel_call *c, const struct view *from, const struct view *to)
{
    int64_t n[MAX_PARTS];
    counts(&c->at, view_cols(from), n);
    return comm_all_gather_v(m, from->p, to->p, n, from->dtype, op_row(c->op)->name);
}

static int64_t reduce_scatter(struct comm *m, const struct kernel_call *c, const struct view *from, const struct view *to)
{
    int64_t n[MAX_PARTS];
    counts(&c->at, view_cols(from), n);
    return comm_reduce_scatter_v(m, from->p, to->p, n, from->dtype, COMM_SUM, op_row(c->op)->name);
}

static int64_t slice(struct comm *m, const struct kernel_call *c, const struct view *from, const struct view *to)
{
    (void)m;
    int64_t before = 0, n = op_rows_here(&c->at, c->at.part);
    for (int r = 0; r < c->at.part; r++) before += op_rows_here(&c->at, r);
    if (from->p && to->p && n)
        memcpy(to->p, (const char *)from->p + to_size(before) * row_bytes(from), to_size(n) * row_bytes(from));
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
};

static void add(const struct kernel_table *kt, const struct kernel_call *c, void *landed)
{
    struct step_info still = {.training = false};
    struct kernel_call k = {.op = OP_ADD, .phase = KERNEL_FWD, .step = &still, .n_in = 2, .n_out = 1, .team = c->team};
    k.in[0] = c->acc[0];
    k.in[1] = c->din[0];
    k.in[1].p = landed;
    k.in[1].stride = view_cols(&c->din[0]);
    k.out[0] = c->din[0];
    kernel_run(kt, &k);
}

size_t par_run_scratch(const struct kernel_table *kt, const struct kernel_call *c)
{
    if (c->op == OP_DISPATCH || c->op == OP_COMBINE) return expert_scratch(c);
    return c->op == OP_CONTEXT ? context_scratch(kt, c) : 0;
}

int64_t par_run_collective(void *ctx, const struct kernel_table *kt, const struct kernel_call *c)
{
    struct par_run *x = ctx;
    if (c->op == OP_CONTEXT) {
        context_run(x, kt, c);
        return 0;
    }
    if (c->op == OP_DISPATCH || c->op == OP_COMBINE) {
        expert_run(x, c);
        return 0;
    }
    struct comm *m = x->axis[c->at.axis];
    const struct way *w = &ways[c->op];
    bool forward = c->phase == KERNEL_FWD;
    struct view to = forward ? c->out[0] : c->din[0];
    CHECK(m && (forward ? w->forward : w->backward), "%s: nothing does this over %s", op_row(c->op)->name,
          axis_name(c->at.axis));
    if (!forward && c->acc[0].p) to.p = c->scratch;
    int64_t ticket = forward ? w->forward(m, c, &c->in[0], &to) : w->backward(m, c, &c->dout[0], &to);
    if (!ticket) par_run_end(ctx, kt, c, 0);
    return ticket;
}

void par_run_end(void *ctx, const struct kernel_table *kt, const struct kernel_call *c, int64_t ticket)
{
    struct par_run *x = ctx;
    if (ticket) comm_wait(x->axis[c->at.axis], ticket);
    if (c->phase != KERNEL_FWD && c->acc[0].p) add(kt, c, c->scratch);
}
