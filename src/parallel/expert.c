/* SPDX-License-Identifier: Apache-2.0 */
/* Rows for one rank lie together, because experts are shared out in order: what is sent needs no packing, unless it
 * goes to several ranks (etp between 1 and tp), for each of which it is packed once. What arrives lies rank after rank,
 * and each rank's part expert after expert; it lands in scratch and is dealt out by expert, block by block. On the way
 * back the blocks are collected into scratch and sent from there, and what arrives is in order; of several ranks' parts
 * the sum. Cost: U row copies and one pass over memory. Rejected: one all-to-all per expert (no copies, E times the
 * latency).
 *
 * In rounds (waves.h) what goes to a rank is a stretch of the rows for it, which follows that of the round before:
 * where there are several rounds the stretches are packed, and what comes back is put where they were. */
#include "parallel/expert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/flat.h"
#include "layout/dtype.h"
#include "layout/region.h"
#include "parallel/waves.h"

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

/* Rows that a rank of ep gets at worst, where one has so many experts. */
static int64_t worst_rows(const struct par *p, const struct permute_attrs *choice, int64_t tokens, int64_t experts)
{
    int64_t n = (int64_t)p->size[AXIS_EP] * par_expert_copies(p);
    int64_t most = n * tokens * least(choice->top_k, experts);
    return choice->capacity ? least(most, batches_met(p) * choice->tokens.batch * experts * choice->capacity) : most;
}

/* Rows of a round; 0: all come at once. The same on all ranks of ep: by the one with the most experts. */
static int64_t room_for(const struct par *p, const struct permute_attrs *choice, int64_t tokens, struct expert_room r)
{
    int64_t experts = (choice->experts + p->size[AXIS_EP] - 1) / p->size[AXIS_EP];
    int64_t even = tokens * choice->top_k * par_expert_copies(p), most = worst_rows(p, choice, tokens, experts);
    double want = r.even > 0 ? ceil(r.even * (double)even) : INFINITY;
    if (want < (double)r.least) want = (double)r.least;
    return want < (double)most ? (int64_t)want : 0;
}

struct source_order par_source_order(const struct par *p, int64_t sequences, struct expert_room room)
{
    int parts = p->size[AXIS_CP], each = par_experts_apart(p) ? p->size[AXIS_TP] : 1;
    int n = p->size[AXIS_EP] * par_expert_copies(p);
    if (!room.in_order || parts == 1 || n % (parts * each)) return (struct source_order){.sequences = 0};
    return (struct source_order){to_int(sequences), parts, each};
}

struct dispatched par_dispatch(struct tape *t, const struct par *p, tid y_UD, tid rows_E,
                               const struct permute_attrs *choice, int64_t tokens, struct expert_room room)
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
    int64_t rows = room_for(p, choice, tokens, room);
    d.at = (struct dispatch_attrs){.over = par_ranks(p, AXIS_EP),
                                   .whole = rows ? rows : worst_rows(p, choice, tokens, hi - lo),
                                   .experts = choice->experts,
                                   .copies = to_int(copies),
                                   .waves = rows > 0,
                                   .order = choice->order};
    struct op_attrs at = attrs_dispatch(d.at);
    if (d.at.waves) tape_waves_begin(t);
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
    if (back.waves) tape_waves_end(t);
    if (shared) over_etp(t, y_UD, 1, SPMD_I);
    return y_UD;
}

/* ---- running ---- */
struct traffic {
    int64_t sent[PAR_MAX_RANKS], got[PAR_MAX_RANKS]; /* rows to, from each rank */
    int64_t at[PAR_MAX_RANKS];                       /* where those to it begin in the sender's buffer */
    int64_t lo, n_here;                              /* experts here */
    int64_t begin, end;                              /* of the rows for them, those of this round */
};

/* The row's sides: a buffer in the sender's order, one in the experts', numbers of both, for the host to read. */
struct sides {
    struct view ours, theirs;
    const int32_t *sent_E, *from; /* [expert][stretch], [rank][stretch][expert here]; NULL on the null device */
    struct wave_numbers waves;    /* in rounds, instead of both */
    int64_t rounds;               /* 1, but in rounds */
    int me;                       /* among the ranks */
    struct stream *stream;
    int32_t *room; /* where they were copied to, if they had to be */
};

static int copies_of(const struct kernel_call *c)
{
    int copies = at_dispatch(&c->at)->copies;
    return copies > 1 ? copies : 1;
}
static int ranks_of(const struct kernel_call *c) { return at_over(&c->at)->n_parts * copies_of(c); }
static int stretches_of(const struct kernel_call *c) { return source_stretches(&at_dispatch(&c->at)->order); }
static int64_t sources_of(const struct kernel_call *c) { return (int64_t)ranks_of(c) * stretches_of(c); }
static struct source_at source_of(const struct kernel_call *c, int64_t k)
{
    return source_at(&at_dispatch(&c->at)->order, k);
}

/* Without a router to ask, the choice is even. */
static int64_t even(int64_t rows, int64_t e, int64_t experts)
{
    int64_t lo, hi;
    region_split(rows, (int)e, (int)experts, &lo, &hi);
    return hi - lo;
}

/* Rows of a source for expert e of those here, in all rounds. */
static int64_t rows_from(const struct kernel_call *c, const struct sides *s, const struct traffic *t,
                         struct source_at from, int64_t e)
{
    if (s->waves.parts) return wave_rows_at(&s->waves, from, t->lo + e);
    return s->from[((int64_t)from.rank * stretches_of(c) + from.stretch) * t->n_here + e];
}

/* Rows of this rank for expert e of all; not in rounds. */
static int64_t rows_sent(const struct kernel_call *c, const struct sides *s, int64_t e)
{
    const int n = stretches_of(c);
    int64_t rows = 0;
    for (int k = 0; k < n; k++) rows += s->sent_E[e * n + k];
    return rows;
}

/* Of `rows` that begin at row `at`, those in [begin, end). */
static int64_t rows_in(int64_t at, int64_t rows, int64_t begin, int64_t end)
{
    int64_t lo = at > begin ? at : begin, hi = at + rows < end ? at + rows : end;
    return hi > lo ? hi - lo : 0;
}

/* Of the rows for expert e, whose first one is *at of its part's: those of this rank in a round, and before it. *at:
 * the next expert's first one. */
static void count_expert(const struct wave_numbers *x, int me, int64_t e, const int64_t window[2], int64_t *at,
                         int64_t *sent, int64_t *before)
{
    const int ranks = x->parts * x->copies;
    const int64_t sources = (int64_t)ranks * source_stretches(&x->order), first = *at;
    if (!x->of) { /* on paper: as all ranks have, one after the other; a plan asks this often */
        int64_t mine = wave_rows(x, me, e);
        *sent += rows_in(first + me * mine, mine, window[0], window[1]);
        *before += rows_in(first + me * mine, mine, 0, window[0]);
        *at += ranks * mine;
        return;
    }
    for (int64_t k = 0; k < sources; k++) {
        const struct source_at from = source_at(&x->order, k);
        const int64_t n = wave_rows_at(x, from, e);
        *sent += from.rank == me ? rows_in(*at, n, window[0], window[1]) : 0;
        *before += from.rank == me ? rows_in(*at, n, 0, window[0]) : 0;
        *at += n;
    }
}

/* Of this round: what this rank sends to the ranks of one part, and how many rows of it went before. */
static void count_sent(const struct wave_numbers *x, int part, int me, int64_t room, int64_t round, int64_t *sent,
                       int64_t *before)
{
    int64_t window[2], lo, hi, at = 0;
    wave_window(x, part, room, round, &window[0], &window[1]);
    region_split(x->experts, part, x->parts, &lo, &hi);
    *sent = *before = 0;
    for (int64_t e = lo; e < hi; e++) count_expert(x, me, e, window, &at, sent, before);
}

static void count_wave(const struct kernel_call *c, const struct sides *s, struct traffic *t)
{
    const struct wave_numbers *x = &s->waves;
    int64_t room = s->theirs.n[0], mine = 0, at = 0;
    wave_window(x, at_dispatch(&c->at)->over.part, room, c->round, &t->begin, &t->end);
    for (int r = 0; r < ranks_of(c); r++) t->got[r] = 0;
    for (int64_t e = 0; e < t->n_here; e++)
        for (int64_t k = 0; k < sources_of(c); k++) {
            const struct source_at from = source_of(c, k);
            int64_t n = wave_rows_at(x, from, t->lo + e);
            t->got[from.rank] += rows_in(at, n, t->begin, t->end);
            at += n;
        }
    for (int part = 0; part < x->parts; part++) {
        int64_t sent, before, lo, hi;
        count_sent(x, part, s->me, room, c->round, &sent, &before);
        for (int k = 0; k < x->copies; k++) {
            t->sent[part * x->copies + k] = sent;
            t->at[part * x->copies + k] = mine + before;
        }
        region_split(x->experts, part, x->parts, &lo, &hi);
        for (int64_t e = lo; e < hi; e++) mine += wave_rows(x, s->me, e);
    }
}

static void count_all(const struct kernel_call *c, const struct sides *s, struct traffic *t)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t experts = at->experts, mine = 0;
    t->begin = t->end = 0;
    for (int r = 0; r < ranks_of(c); r++) {
        int64_t first, end;
        region_split(experts, r / copies_of(c), at->over.n_parts, &first, &end);
        t->sent[r] = t->got[r] = 0;
        t->at[r] = mine;
        for (int64_t e = first; e < end; e++)
            t->sent[r] += s->sent_E ? rows_sent(c, s, e) : even(s->ours.n[0], e, experts);
        for (int64_t e = 0; e < t->n_here && !s->from; e++) t->got[r] += even(s->ours.n[0], t->lo + e, experts);
        for (int64_t e = 0; e < t->n_here && s->from; e++)
            for (int k = 0; k < stretches_of(c); k++) t->got[r] += rows_from(c, s, t, (struct source_at){r, k}, e);
        if (r % copies_of(c) == copies_of(c) - 1) mine += t->sent[r];
        t->end += t->got[r];
    }
}

static void count(const struct kernel_call *c, const struct sides *s, struct traffic *t)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t hi;
    region_split(at->experts, at->over.part, at->over.n_parts, &t->lo, &hi);
    t->n_here = hi - t->lo;
    (at->waves ? count_wave : count_all)(c, s, t);
}

static void scale(int64_t *n, int parts, int64_t by)
{
    for (int r = 0; r < parts; r++) n[r] *= by;
}

/* Between the landing (rank after rank) and the buffer by expert; to_experts says which way. Returns the rows. A rank's
 * rows are met in the order in which it has them, whatever order sources have (source_order). */
static int64_t deal(const struct kernel_call *c, const struct sides *s, const struct traffic *t, char *landing,
                    bool to_experts)
{
    size_t bytes = to_size(s->theirs.n[1]) * dtype_bytes(s->theirs.dtype);
    int64_t row = 0, at = 0, next[PAR_MAX_RANKS];
    CHECK(t->end - t->begin <= s->theirs.n[0], "%lld rows for room of %lld", (long long)(t->end - t->begin),
          (long long)s->theirs.n[0]);
    for (int r = 0; r < ranks_of(c); r++) next[r] = r ? next[r - 1] + t->got[r - 1] : 0;
    for (int64_t e = 0; e < t->n_here; e++)
        for (int64_t k = 0; k < sources_of(c); k++) {
            const struct source_at from = source_of(c, k);
            int64_t all = rows_from(c, s, t, from, e), n = rows_in(at, all, t->begin, t->end);
            char *by_expert = (char *)s->theirs.p + to_size(row) * bytes;
            char *by_rank = landing + to_size(next[from.rank]) * bytes;
            at += all;
            if (n == 0) continue;
            if (to_experts) stream_copy(s->stream, by_expert, by_rank, to_size(n) * bytes);
            else stream_copy(s->stream, by_rank, by_expert, to_size(n) * bytes);
            row += n;
            next[from.rank] += n;
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

/* What goes to the ranks is not what lies in the sender's buffer, in its order. */
static bool staged(const struct kernel_call *c, const struct sides *s) { return copies_of(c) > 1 || s->rounds > 1; }

/* n_of[r] elements of `bytes` for rank r, from element at[r] on, one rank after the other. */
static void pack(struct stream *s, const struct kernel_call *c, const void *from, const int64_t *n_of,
                 const int64_t *at, size_t bytes, void *to)
{
    char *out = to;
    for (int r = 0; r < ranks_of(c); r++) {
        size_t size = to_size(n_of[r]) * bytes;
        stream_copy(s, out, (const char *)from + to_size(at[r]) * bytes, size);
        out += size;
    }
}

/* Puts what came back where it was sent from, several ranks' parts added up: out of the landing's copies of each
 * block. */
static void unpack(const struct kernel_call *c, const struct sides *s, const int64_t *n_of, const int64_t *at)
{
    int k = copies_of(c);
    size_t width = dtype_bytes(s->ours.dtype);
    const char *from = after_landing(c, s);
    for (int r = 0; r < ranks_of(c); r += k) {
        char *to = (char *)s->ours.p + to_size(at[r]) * width;
        if (k > 1) flat_sum_parts(s->stream, to, s->ours.dtype, from, k, n_of[r]);
        else stream_copy(s->stream, to, from, to_size(n_of[r]) * width);
        from += to_size(k * n_of[r]) * width;
    }
}

/* ---- rows to experts, and back ---- */
static int64_t to_experts(struct comm *m, const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    count(c, s, &t);
    scale(t.sent, ranks_of(c), s->theirs.n[1]);
    scale(t.got, ranks_of(c), s->theirs.n[1]);
    scale(t.at, ranks_of(c), s->theirs.n[1]);
    const void *send = s->ours.p;
    if (staged(c, s) && send) {
        pack(s->stream, c, send, t.sent, t.at, dtype_bytes(s->ours.dtype), after_landing(c, s));
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
    void *back = staged(c, s) ? after_landing(c, s) : s->ours.p;
    return comm_all_to_all_v(m, c->scratch, back, t.got, t.sent, s->ours.dtype, "combine");
}

static void at_owners(const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    int64_t used = 0;
    if (!s->ours.p) return;
    count(c, s, &t);
    for (int64_t e = 0; e < at_dispatch(&c->at)->experts; e++)
        used += s->waves.parts ? wave_rows(&s->waves, s->me, e) : rows_sent(c, s, e);
    scale(t.sent, ranks_of(c), s->theirs.n[1]);
    scale(t.at, ranks_of(c), s->theirs.n[1]);
    if (staged(c, s)) unpack(c, s, t.sent, t.at);
    size_t bytes = to_size(s->theirs.n[1]) * dtype_bytes(s->ours.dtype);
    if (c->round == 0)
        stream_zero(s->stream, (char *)s->ours.p + to_size(used) * bytes, to_size(s->ours.n[0] - used) * bytes);
}

/* Numbers of copies: packed for each of the ranks, in front of what arrives. */
static int64_t packed_numbers(const struct kernel_call *c)
{
    return copies_of(c) > 1 ? (int64_t)copies_of(c) * at_dispatch(&c->at)->experts * stretches_of(c) : 0;
}

/* From what each rank has sent ([rank][expert][stretch]): the rows of each expert, and with several stretches numbers
 * as kernels read them ([rank][stretch][expert]). */
static void sum_numbers(struct stream *s, const struct kernel_call *c, const void *got)
{
    const int64_t n_here = c->out[1].n[0], n = stretches_of(c), all = ranks_of(c) * n * n_here;
    int32_t *room = xcalloc(to_size(2 * all + n_here) + 1, sizeof *room), *rows_E = room + all, *from = rows_E + n_here;
    const int32_t *told = device_peek(s, got, to_size(all) * sizeof *told, room);
    for (int64_t i = 0; i < all; i++) {
        const int64_t stretch = i % n, e = i / n % n_here, r = i / n / n_here;
        rows_E[e] += told[i];
        from[(r * n + stretch) * n_here + e] = told[i];
    }
    stream_from_host(s, c->out[1].p, rows_E, to_size(n_here) * sizeof *rows_E);
    if (n > 1) stream_from_host(s, c->out[2].p, from, to_size(all) * sizeof *from);
    stream_sync(s);
    xfree(room);
}

/* How many rows each rank has for each expert here. */
static void exchange_numbers(struct comm *m, struct stream *s, const struct kernel_call *c)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t send[PAR_MAX_RANKS], recv[PAR_MAX_RANKS], first[PAR_MAX_RANKS], n = stretches_of(c);
    const void *numbers = c->in[1].p;
    void *got = c->out[2].p;
    if (n > 1 && got) got = (int32_t *)c->scratch + packed_numbers(c);
    for (int r = 0; r < ranks_of(c); r++) {
        int64_t hi;
        region_split(at->experts, r / copies_of(c), at->over.n_parts, &first[r], &hi);
        send[r] = (hi - first[r]) * n;
        recv[r] = c->out[1].n[0] * n;
        first[r] *= n;
    }
    if (copies_of(c) > 1 && numbers) {
        pack(s, c, numbers, send, first, sizeof(int32_t), c->scratch);
        numbers = c->scratch;
    }
    wait(m, comm_all_to_all_v(m, numbers, got, send, recv, DT_I32, "dispatch numbers"));
    if (c->out[1].p) sum_numbers(s, c, got);
}

/* In rounds everybody has to know all ranks' numbers, and by which rule they cut. */
static void gather_numbers(struct comm *m, struct stream *s, const struct kernel_call *c)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    int64_t told = at->experts * stretches_of(c), n = told + 2;
    if (c->in[1].p) {
        size_t bytes = to_size(told) * sizeof(int32_t);
        int32_t rule[2] = {(int32_t)at->slice, (int32_t)at->slice_step};
        stream_copy(s, c->scratch, c->in[1].p, bytes);
        stream_from_host(s, (char *)c->scratch + bytes, rule, sizeof rule);
        stream_sync(s);
    }
    wait(m, comm_all_gather(m, c->scratch, c->out[2].p, n, DT_I32, "dispatch numbers"));
}

/* Towards the experts go dispatched rows, and backward the gradients of what is combined. */
static bool outward(const struct kernel_call *c) { return (c->op == OP_DISPATCH) == (c->phase == KERNEL_FWD); }

static const int32_t *read_numbers(struct stream *s, const struct view *v, int32_t *room)
{
    return v->p ? device_peek(s, v->p, bytes_of(v), room) : NULL;
}

static const struct view *from_of(const struct kernel_call *c) { return c->op == OP_DISPATCH ? &c->out[2] : &c->in[2]; }

static struct wave_numbers waves_of(const struct kernel_call *c, const int32_t *from, int64_t sent)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    return (struct wave_numbers){.of = from,
                                 .even = sent,
                                 .parts = at->over.n_parts,
                                 .copies = copies_of(c),
                                 .experts = at->experts,
                                 .together = at->together,
                                 .rule = {at->slice, at->slice_step},
                                 .order = at->order};
}

/* To be given back with done_with. */
static struct sides sides_of(struct comm *m, struct stream *st, const struct kernel_call *c)
{
    bool forward = c->phase == KERNEL_FWD, waves = at_dispatch(&c->at)->waves;
    struct sides s = {.stream = st, .rounds = 1, .me = comm_rank(m)};
    const struct view *sent = &c->in[1], *from = from_of(c);
    s.ours = c->op == OP_DISPATCH ? (forward ? c->in[0] : c->din[0]) : (forward ? c->out[0] : c->dout[0]);
    s.theirs = c->op == OP_DISPATCH ? (forward ? c->out[0] : c->dout[0]) : (forward ? c->in[0] : c->din[0]);
    if (st->dev->untouchable) s.room = xmalloc(bytes_of(sent) + bytes_of(from) + 1);
    if (!waves) s.sent_E = read_numbers(st, sent, s.room);
    s.from = read_numbers(st, from, s.room ? s.room + bytes_of(sent) / sizeof *s.room : NULL);
    if (waves) s.waves = waves_of(c, s.from, s.ours.n[0]);
    if (waves) s.rounds = wave_rounds(&s.waves, s.theirs.n[0]);
    return s;
}

static void done_with(struct sides *s) { xfree(s->room); }

/* rows_E of a round: how many each expert here has in it, and in all, and in it of each rank. */
static void tell_rows(const struct kernel_call *c, const struct sides *s)
{
    struct traffic t;
    if (!c->out[1].p) return;
    count(c, s, &t);
    const int64_t n_here = t.n_here, rows = 2 + ranks_of(c);
    int32_t *rows_E = xcalloc(to_size(rows * n_here) + 1, sizeof *rows_E), *of_rank = rows_E + 2 * n_here;
    int64_t at = 0;
    for (int64_t e = 0; e < n_here; e++)
        for (int64_t k = 0; k < sources_of(c); k++) {
            const struct source_at from = source_of(c, k);
            int64_t n = rows_from(c, s, &t, from, e), now = rows_in(at, n, t.begin, t.end);
            rows_E[e] += (int32_t)now;
            rows_E[n_here + e] += (int32_t)n;
            of_rank[from.rank * n_here + e] += (int32_t)now;
            at += n;
        }
    stream_from_host(s->stream, c->out[1].p, rows_E, to_size(rows * n_here) * sizeof *rows_E);
    stream_sync(s->stream);
    xfree(rows_E);
}

int64_t expert_rounds(struct par_run *x, struct stream *st, const struct kernel_call *c)
{
    struct sides s = sides_of(x->axis[AXIS_EP], st, c);
    done_with(&s);
    if (!c->refill) x->rounds[s.rounds < PAR_ROUNDS ? s.rounds : PAR_ROUNDS - 1]++, x->rounds[0] += s.rounds;
    return s.rounds;
}

int64_t expert_begin(struct par_run *x, struct stream *st, const struct kernel_call *c)
{
    struct comm *m = x->axis[AXIS_EP];
    bool asks = c->op == OP_DISPATCH && c->phase == KERNEL_FWD, waves = at_dispatch(&c->at)->waves;
    CHECK(m && !c->acc[0].p, "%s: no group, or a gradient that is somebody else's too", op_row(c->op)->name);
    if (asks && !waves) exchange_numbers(m, st, c);
    if (asks && waves && c->round == 0 && !c->refill) gather_numbers(m, st, c);
    struct sides s = sides_of(m, st, c);
    if (asks && waves) tell_rows(c, &s);
    int64_t ticket = outward(c) ? to_experts(m, c, &s) : to_owners(m, c, &s);
    done_with(&s);
    return ticket;
}

void expert_end(struct par_run *x, struct stream *st, const struct kernel_call *c, int64_t ticket)
{
    wait(x->axis[AXIS_EP], ticket);
    struct sides s = sides_of(x->axis[AXIS_EP], st, c);
    if (outward(c)) at_experts(c, &s);
    else at_owners(c, &s);
    done_with(&s);
}

size_t expert_scratch(const struct kernel_call *c)
{
    const struct dispatch_attrs *at = at_dispatch(&c->at);
    bool to = c->op == OP_DISPATCH;
    size_t landing = bytes_of(to ? &c->out[0] : &c->in[0]), copies = (size_t)copies_of(c);
    size_t packed = copies > 1 || at->waves ? copies * bytes_of(to ? &c->in[0] : &c->out[0]) : 0;
    int64_t numbers = packed_numbers(c) + (stretches_of(c) > 1 ? sources_of(c) * c->out[1].n[0] : 0);
    if (at->waves) numbers = at->experts * stretches_of(c) + 2;
    size_t told = to ? to_size(numbers) * sizeof(int32_t) : 0;
    return landing + packed > told ? landing + packed : told;
}
