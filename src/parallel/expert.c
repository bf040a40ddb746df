/* SPDX-License-Identifier: Apache-2.0 */
/* Rows for one rank lie together, because experts are shared out in order: what is sent needs no packing, unless it
 * goes to several ranks (etp between 1 and tp), for each of which it is packed once. What arrives lies rank after rank,
 * and each rank's part expert after expert; it lands in scratch and is dealt out by expert, block by block. On the way
 * back the blocks are collected into scratch and sent from there, and what arrives is in order; of several ranks' parts
 * the sum. Cost: U row copies and one pass over memory. Rejected: one all-to-all per expert (no copies, E times the
 * latency). */
#include "parallel/expert.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "layout/dtype.h"
#include "layout/region.h"

/* ---- recording ---- */
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static tid refuse(struct tape *t, const char *call, const char *want, tid x)
{
    char type[128];
    const struct tensor *v = tape_tensor(t, x);
    err_set(&t->err, ERR_REQUEST, "%s over ep wants %s, got %s (%s)", call, want, v->name, spmd_print(type, v->type));
    return TID_NONE;
}

static tid as(struct tape *t, tid x, enum spmd to)
{
    char name[TAPE_NAME];
    if (t->err.code) return TID_NONE;
    snprintf(name, sizeof name, "%s", tape_tensor(t, x)->name);
    return tape_retype(t, x, AXIS_EP, to, name);
}

/* The collective is over etp too, where rows go to several of its ranks. */
static void over_etp(struct tape *t, tid first, int n, enum spmd to)
{
    for (tid x = first; !t->err.code && x < first + n; x++)
        t->tensors[x].type = spmd_with(t->tensors[x].type, AXIS_ETP, to);
}

static enum spmd on_etp(const struct tape *t, tid x) { return (enum spmd)tape_tensor(t, x)->type.on[AXIS_ETP]; }

/* Microbatches of different sequences whose tokens can meet on a rank of ep: its ranks are neighbours, and so are the
 * ranks of cp and tp that share out the tokens of one. */
static int64_t batches_met(const struct par *p)
{
    int64_t n = (int64_t)p->size[AXIS_EP] * par_expert_copies(p);
    int64_t share = (int64_t)p->size[AXIS_CP] * (par_experts_apart(p) ? p->size[AXIS_TP] : 1);
    if (n % share == 0 || share % n == 0) return n < share ? 1 : n / share;
    return (n + share - 2) / share + 1; /* wherever the first of them lies */
}

struct dispatched par_dispatch(struct tape *t, const struct par *p, tid y_UD, tid rows_E,
                               const struct permute_attrs *choice, int64_t tokens)
{
    struct dispatched d = {.z_WD = y_UD, .rows_E = rows_E, .sent_E = rows_E, .from = TID_NONE};
    if (t->err.code) return d;
    if (tape_tensor(t, y_UD)->type.on[AXIS_EP] != SPMD_I) d.z_WD = refuse(t, "par_dispatch", "I", y_UD);
    if (t->err.code || ++t->n_changes == p->forget) return d;
    d.n_sent = d.n_expected = tensor_rows(tape_tensor(t, y_UD));
    int64_t lo, hi, copies = par_expert_copies(p), n = p->size[AXIS_EP] * copies;
    if (n == 1) {
        d.z_WD = as(t, y_UD, SPMD_S0);
        d.rows_E = as(t, rows_E, SPMD_S0);
        return d;
    }
    CHECK(n <= PAR_MAX_RANKS, "%lld ranks of ep", (long long)n);
    par_share(p, AXIS_EP, choice->experts, &lo, &hi);
    int64_t most = n * tokens * least(choice->top_k, hi - lo);
    if (choice->capacity) most = least(most, batches_met(p) * choice->tokens.batch * (hi - lo) * choice->capacity);
    d.at = (struct dispatch_attrs){par_ranks(p, AXIS_EP), most, choice->experts, to_int(copies)};
    struct op_attrs at = attrs_dispatch(d.at);
    d.z_WD = tape_collective_n(t, OP_DISPATCH, &at, 2, (tid[]){y_UD, rows_E}, SPMD_S0, "dispatch");
    if (t->err.code) return d;
    if (copies > 1) over_etp(t, d.z_WD, 3, SPMD_R);
    d.rows_E = d.z_WD + 1;
    d.from = d.z_WD + 2;
    d.n_expected *= copies;
    return d;
}

tid par_combine(struct tape *t, const struct par *p, tid z_WD, const struct dispatched *d)
{
    if (t->err.code) return TID_NONE;
    bool shared = par_expert_copies(p) > 1;
    if (tape_tensor(t, z_WD)->type.on[AXIS_EP] != SPMD_S0) return refuse(t, "par_combine", "S0", z_WD);
    if (shared && on_etp(t, z_WD) != SPMD_P) return refuse(t, "par_combine", "P over etp", z_WD);
    if (++t->n_changes == p->forget) return z_WD;
    if (p->size[AXIS_EP] == 1 && !shared) return as(t, z_WD, SPMD_I);
    struct dispatch_attrs back = d->at;
    back.whole = d->n_sent;
    struct op_attrs at = attrs_dispatch(back);
    tid y_UD = tape_collective_n(t, OP_COMBINE, &at, 3, (tid[]){z_WD, d->sent_E, d->from}, SPMD_I, "combine");
    if (shared) over_etp(t, y_UD, 1, SPMD_I);
    return y_UD;
}

/* ---- running ---- */
struct traffic {
    int64_t sent[PAR_MAX_RANKS], got[PAR_MAX_RANKS]; /* rows to, from each rank */
    int64_t lo, n_here;                              /* experts here */
};

/* The row's sides: a buffer in the sender's order, one in the experts', numbers of both, for the host to read. */
struct sides {
    struct view ours, theirs;
    const int32_t *sent_E, *from; /* from[rank * n_here + expert]; NULL on the null device */
    struct stream *stream;
    int32_t *room; /* where they were copied to, if they had to be */
};

static int copies_of(const struct kernel_call *c)
{
    int copies = at_dispatch(&c->at)->copies;
    return copies > 1 ? copies : 1;
}
static int ranks_of(const struct kernel_call *c) { return at_over(&c->at)->n_parts * copies_of(c); }

/* Without a router to ask, the choice is even. */
static int64_t even(int64_t rows, int64_t e, int64_t experts)
{
    int64_t lo, hi;
    region_split(rows, (int)e, (int)experts, &lo, &hi);
    return hi - lo;
}

static void count(const struct kernel_call *c, const struct sides *s, struct traffic *t)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t hi, experts = at->experts;
    region_split(experts, at->over.part, at->over.n_parts, &t->lo, &hi);
    t->n_here = hi - t->lo;
    for (int r = 0; r < ranks_of(c); r++) {
        int64_t first, end;
        region_split(experts, r / copies_of(c), at->over.n_parts, &first, &end);
        t->sent[r] = t->got[r] = 0;
        for (int64_t e = first; e < end; e++) t->sent[r] += s->sent_E ? s->sent_E[e] : even(s->ours.n[0], e, experts);
        for (int64_t e = 0; e < t->n_here; e++)
            t->got[r] += s->from ? s->from[r * t->n_here + e] : even(s->ours.n[0], t->lo + e, experts);
    }
}

static void scale(int64_t *n, int parts, int64_t by)
{
    for (int r = 0; r < parts; r++) n[r] *= by;
}

/* Between the landing (rank after rank) and the buffer by expert; to_experts says which way. Returns the rows. */
static int64_t deal(const struct kernel_call *c, const struct sides *s, const struct traffic *t, char *landing,
                    bool to_experts)
{
    size_t bytes = to_size(s->theirs.n[1]) * dtype_bytes(s->theirs.dtype);
    int64_t row = 0;
    for (int64_t e = 0; e < t->n_here; e++) {
        int64_t before = 0;
        for (int r = 0; r < ranks_of(c); before += t->got[r++]) {
            int64_t at = before, n = s->from[r * t->n_here + e];
            for (int64_t i = 0; i < e; i++) at += s->from[r * t->n_here + i];
            CHECK(row + n <= s->theirs.n[0], "%lld rows for room of %lld", (long long)(row + n),
                  (long long)s->theirs.n[0]);
            char *by_expert = (char *)s->theirs.p + to_size(row) * bytes, *by_rank = landing + to_size(at) * bytes;
            if (to_experts) stream_copy(s->stream, by_expert, by_rank, to_size(n) * bytes);
            else stream_copy(s->stream, by_rank, by_expert, to_size(n) * bytes);
            row += n;
        }
    }
    return row;
}

static void wait(struct comm *m, int64_t ticket)
{
    if (ticket) comm_wait(m, ticket);
}

/* ---- copies: what goes to several ranks is packed once for each, after the landing; what comes back is added up there
 * ---- */
static size_t bytes_of(const struct view *v) { return to_size(view_rows(v) * view_cols(v)) * dtype_bytes(v->dtype); }

static void *after_landing(const struct kernel_call *c, const struct sides *s)
{
    return c->scratch ? (char *)c->scratch + bytes_of(&s->theirs) : NULL;
}

/* n_of[r] elements of `bytes` for rank r, the same for all copies, one rank after the other. */
static void pack(struct stream *s, const struct kernel_call *c, const void *from, const int64_t *n_of, size_t bytes,
                 void *to)
{
    const char *at = from;
    char *out = to;
    for (int r = 0; r < ranks_of(c); r++) {
        size_t size = to_size(n_of[r]) * bytes;
        stream_copy(s, out, at, size);
        out += size;
        if (r % copies_of(c) == copies_of(c) - 1) at += size;
    }
}

/* Adds up what came back of several ranks: out of the landing's copies of each block. */
static void add_copies(const struct kernel_call *c, const struct sides *s, const int64_t *n_of)
{
    int k = copies_of(c);
    size_t width = dtype_bytes(s->ours.dtype);
    const char *from = after_landing(c, s);
    char *to = s->ours.p;
    for (int r = 0; r < ranks_of(c); r += k) {
        flat_sum_parts(s->stream, to, s->ours.dtype, from, k, n_of[r]);
        from += to_size(k * n_of[r]) * width;
        to += to_size(n_of[r]) * width;
    }
}

/* ---- rows to experts, and back ---- */
static int64_t to_experts(struct comm *m, const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    count(c, s, &t);
    scale(t.sent, ranks_of(c), s->theirs.n[1]);
    scale(t.got, ranks_of(c), s->theirs.n[1]);
    const void *send = s->ours.p;
    if (copies_of(c) > 1 && send) {
        pack(s->stream, c, send, t.sent, dtype_bytes(s->ours.dtype), after_landing(c, s));
        send = after_landing(c, s);
    }
    return comm_all_to_all_v(m, send, c->scratch, t.sent, t.got, s->ours.dtype, "dispatch");
}

static void at_experts(const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    if (!s->theirs.p) return;
    count(c, s, &t);
    int64_t used = deal(c, s, &t, c->scratch, true);
    size_t bytes = to_size(s->theirs.n[1]) * dtype_bytes(s->theirs.dtype);
    stream_zero(s->stream, (char *)s->theirs.p + to_size(used) * bytes, to_size(s->theirs.n[0] - used) * bytes);
}

static int64_t to_owners(struct comm *m, const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    count(c, s, &t);
    if (s->theirs.p) (void)deal(c, s, &t, c->scratch, false);
    scale(t.sent, ranks_of(c), s->theirs.n[1]);
    scale(t.got, ranks_of(c), s->theirs.n[1]);
    void *back = copies_of(c) > 1 ? after_landing(c, s) : s->ours.p;
    return comm_all_to_all_v(m, c->scratch, back, t.got, t.sent, s->ours.dtype, "combine");
}

static void at_owners(const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    int64_t used = 0;
    if (!s->ours.p) return;
    count(c, s, &t);
    for (int r = 0; r < ranks_of(c); r += copies_of(c)) used += t.sent[r];
    scale(t.sent, ranks_of(c), s->theirs.n[1]);
    if (copies_of(c) > 1) add_copies(c, s, t.sent);
    size_t bytes = to_size(s->theirs.n[1]) * dtype_bytes(s->ours.dtype);
    stream_zero(s->stream, (char *)s->ours.p + to_size(used) * bytes, to_size(s->ours.n[0] - used) * bytes);
}

/* How many rows each rank has for each expert here. */
static void exchange_numbers(struct comm *m, struct stream *s, const struct kernel_call *c)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t send[PAR_MAX_RANKS], recv[PAR_MAX_RANKS], n_here = c->out[1].n[0];
    const void *numbers = c->in[1].p;
    for (int r = 0; r < ranks_of(c); r++) {
        int64_t lo, hi;
        region_split(at->experts, r / copies_of(c), at->over.n_parts, &lo, &hi);
        send[r] = hi - lo;
        recv[r] = n_here;
    }
    if (copies_of(c) > 1 && numbers) {
        pack(s, c, numbers, send, sizeof(int32_t), c->scratch);
        numbers = c->scratch;
    }
    wait(m, comm_all_to_all_v(m, numbers, c->out[2].p, send, recv, DT_I32, "dispatch numbers"));
    if (!c->out[1].p) return;
    int64_t n = ranks_of(c) * n_here;
    int32_t *room = xcalloc(to_size(n + n_here) + 1, sizeof *room), *rows_E = room + n;
    const int32_t *from = device_peek(s, c->out[2].p, to_size(n) * sizeof *from, room);
    for (int64_t e = 0; e < n_here; e++)
        for (int r = 0; r < ranks_of(c); r++) rows_E[e] += from[r * n_here + e];
    stream_from_host(s, c->out[1].p, rows_E, to_size(n_here) * sizeof *rows_E);
    stream_sync(s);
    xfree(room);
}

/* Towards the experts go dispatched rows, and backward the gradients of what is combined. */
static bool outward(const struct kernel_call *c) { return (c->op == OP_DISPATCH) == (c->phase == KERNEL_FWD); }

static const int32_t *read_numbers(struct stream *s, const struct view *v, int32_t *room)
{
    return v->p ? device_peek(s, v->p, bytes_of(v), room) : NULL;
}

/* To be given back with done_with. */
static struct sides sides_of(struct stream *st, const struct kernel_call *c)
{
    bool forward = c->phase == KERNEL_FWD;
    struct sides s = {.stream = st};
    const struct view *sent = &c->in[1], *from = c->op == OP_DISPATCH ? &c->out[2] : &c->in[2];
    s.ours = c->op == OP_DISPATCH ? (forward ? c->in[0] : c->din[0]) : (forward ? c->out[0] : c->dout[0]);
    s.theirs = c->op == OP_DISPATCH ? (forward ? c->out[0] : c->dout[0]) : (forward ? c->in[0] : c->din[0]);
    if (st->dev->untouchable) s.room = xmalloc(bytes_of(sent) + bytes_of(from) + 1);
    s.sent_E = read_numbers(st, sent, s.room);
    s.from = read_numbers(st, from, s.room ? s.room + bytes_of(sent) / sizeof *s.room : NULL);
    return s;
}

static void done_with(struct sides *s) { xfree(s->room); }

int64_t expert_begin(struct par_run *x, struct stream *st, const struct kernel_call *c)
{
    struct comm *m = x->axis[AXIS_EP];
    CHECK(m && !c->acc[0].p, "%s: no group, or a gradient that is somebody else's too", op_row(c->op)->name);
    if (c->op == OP_DISPATCH && c->phase == KERNEL_FWD) exchange_numbers(m, st, c);
    struct sides s = sides_of(st, c);
    int64_t ticket = outward(c) ? to_experts(m, c, &s) : to_owners(m, c, &s);
    done_with(&s);
    return ticket;
}

void expert_end(struct par_run *x, struct stream *st, const struct kernel_call *c, int64_t ticket)
{
    wait(x->axis[AXIS_EP], ticket);
    struct sides s = sides_of(st, c);
    if (outward(c)) at_experts(c, &s);
    else at_owners(c, &s);
    done_with(&s);
}

size_t expert_scratch(const struct kernel_call *c)
{
    bool to = c->op == OP_DISPATCH;
    size_t landing = bytes_of(to ? &c->out[0] : &c->in[0]), copies = (size_t)copies_of(c);
    size_t packed = copies > 1 ? copies * bytes_of(to ? &c->in[0] : &c->out[0]) : 0;
    size_t numbers = copies > 1 && to ? copies * (size_t)at_dispatch(&c->at)->experts * sizeof(int32_t) : 0;
    return landing + packed > numbers ? landing + packed : numbers;
}
