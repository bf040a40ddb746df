/* SPDX-License-Identifier: Apache-2.0 */
/* Attention while keys and values travel. One walk over the blocks serves ring and gather, forward and backward; one
 * pair of packings serves every exchange of heads. All copies and sums are kernel calls, so nothing here reads a tensor
 * and the null device counts the same messages and the same scratch.
 *
 * Ring, forward: while block s is computed, block s goes to the next rank and block s + 1 arrives; two buffers.
 * Backward: the gradient of a block is computed apart, then the sum that arrived meanwhile is added and sent on, so its
 * journey hides behind the next block too; after n steps it is at home. Rejected: forward's blocks kept for backward (n
 * times the memory). Cost: see context.h; scratch in blocks of this rank's keys: 2 forward; 2 and 3 f32 backward. */
#include "parallel/context.h"

#include "base/mem.h"
#include "kernel/attention_heads.h"
#include "layout/sequence.h"
#include "layout/region.h"

enum { Q, K, VALUE, O, DO, TENSORS };

/* Heads that an inner rank works on, counted from the first in the call. */
struct heads_part {
    int64_t q0, q1, k0, k1;
};

struct run {
    const struct kernel_call *c;
    const struct attention_attrs *at; /* c's */
    struct stream *stream;            /* NULL while it is only laid out */
    struct comm *inner_comm, *outer_comm;
    int inner, outer, i, o; /* this rank's coordinates */
    int64_t a;              /* head size */
    struct heads_part mine;
    bool backward;
    enum dtype t;
    struct view in[TENSORS];    /* grouped: rows of the inner ranks, heads of this one */
    struct view lse, o32, dq32; /* the same, f32 */
    void *block[2];             /* keys, then values, of one outer rank */
    void *grad[2], *arrived;    /* backward: f32 */
    void *all, *all_grad;       /* gather: of all outer ranks, one after the other */
    void *send, *recv;          /* between inner ranks */
    struct view sink_grad;      /* of the call's query heads, f32: those of this inner rank, others 0 */
    struct view home[2];        /* dk, dv of this rank's own rows, f32, all its key heads (inner > 1) */
    void *kernel;               /* kernels' own scratch */
    size_t kernel_bytes;
    char *base;
    size_t used;
};

static void *carve(struct run *r, size_t bytes)
{
    void *p = r->base ? r->base + r->used : NULL;
    r->used += (bytes + 63) / 64 * 64;
    return p;
}

static struct view matrix(void *p, enum dtype t, int64_t rows, int64_t cols)
{
    return (struct view){.p = p, .dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
}

static struct view carve_matrix(struct run *r, enum dtype t, int64_t rows, int64_t cols)
{
    return matrix(carve(r, to_size(rows * cols) * dtype_bytes(t)), t, rows, cols);
}

static struct view window(struct view v, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    if (v.p) v.p = (char *)v.p + to_size(row * v.stride + col) * dtype_bytes(v.dtype);
    v.n[0] = rows;
    v.n[1] = cols;
    return v;
}

/* to = acc + from, cast; acc NULL: nothing is added. */
static void copy(const struct run *r, const struct view *to, const struct view *acc, const struct view *from)
{
    struct kernel_call k = {.op = OP_COPY,
                            .phase = acc ? KERNEL_BWD_IN : KERNEL_FWD,
                            .step = r->c->step,
                            .n_in = 1,
                            .n_out = 1};
    if (!view_rows(from) || !view_cols(from)) return;
    if (acc) {
        k.in[0] = k.din[0] = *to;
        k.out[0] = k.dout[0] = *from;
        k.acc[0] = *acc;
    } else {
        k.in[0] = *from;
        k.out[0] = *to;
    }
    kernel_enqueue(r->stream, &k);
}

/* ---- who has what ---- */
static struct heads_part heads_of(const struct kernel_call *c, int i, int inner)
{
    const struct attention_attrs *at = at_heads(&c->at);
    struct heads_part h = {0};
    region_split(at->heads, i, inner, &h.q0, &h.q1);
    if (inner == 1) { /* also key heads that nobody here reads */
        h.k1 = at->kv_heads;
    } else if (h.q1 > h.q0) {
        h.k0 = attention_kv_of(at, h.q0);
        h.k1 = attention_kv_of(at, h.q1 - 1) + 1;
    }
    return h;
}

static int64_t q_cols(const struct run *r) { return (r->mine.q1 - r->mine.q0) * r->a; }
static int64_t k_cols(const struct run *r) { return (r->mine.k1 - r->mine.k0) * r->a; }

/* Rows per sequence of inner rank i of this group, of all of outer rank o, in total of outer rank o. */
static int64_t rows_inner(const struct run *r, int i)
{
    return context_rows(r->at->seq, r->outer * r->inner, r->o * r->inner + i, 1);
}
static int64_t rows_group(const struct run *r, int o)
{
    return context_rows(r->at->seq, r->outer * r->inner, o * r->inner, r->inner);
}
static int64_t rows_outer(const struct run *r, int o) { return r->at->batch * rows_group(r, o); }

/* Elements of the keys and values of outer rank o, and of those before it. */
static int64_t block_n(const struct run *r, int o) { return rows_outer(r, o) * 2 * k_cols(r); }
static int64_t block_at(const struct run *r, int o)
{
    int64_t n = 0;
    for (int i = 0; i < o; i++) n += block_n(r, i);
    return n;
}

/* Keys (v false) or values of a block. */
static struct view block_half(const struct run *r, void *block, int o, bool v, enum dtype t)
{
    struct view k = matrix(block, t, rows_outer(r, o), k_cols(r));
    if (v && k.p) k.p = (char *)k.p + to_size(k.n[0] * k.n[1]) * dtype_bytes(t);
    return k;
}

static void *offset(void *p, int64_t n, enum dtype t) { return p ? (char *)p + to_size(n) * dtype_bytes(t) : NULL; }

/* ---- one block of keys ---- */
static struct view some_heads(const struct run *r, struct view of_H)
{
    if (of_H.p) of_H.p = (char *)of_H.p + to_size(r->mine.q0) * dtype_bytes(of_H.dtype);
    of_H.n[0] = of_H.stride = r->mine.q1 - r->mine.q0;
    return of_H;
}

/* One block of keys brings the sinks into the softmax, and its backward finds their gradient. */
static void take_sink(const struct run *r, struct kernel_call *k)
{
    k->in[ATTENTION_SINK] = some_heads(r, *attention_sinks(r->c));
    if (r->backward) k->din[ATTENTION_SINK] = some_heads(r, r->sink_grad);
}

static struct kernel_call part_call(const struct run *r, int from, void *keys, void *grads)
{
    struct attention_part_attrs part = {.attention = *r->at,
                                        .parts = r->outer * r->inner,
                                        .q_first = r->o * r->inner,
                                        .q_count = r->inner,
                                        .k_first = from * r->inner,
                                        .k_count = r->inner,
                                        .more = from != r->o}; /* its own block is the first */
    struct attention_attrs *at = &part.attention;
    at->group = to_int(attention_group(r->at));
    at->heads_all = r->at->heads_all ? r->at->heads_all : r->at->heads;
    at->heads = to_int(r->mine.q1 - r->mine.q0);
    at->kv_heads = to_int(r->mine.k1 - r->mine.k0);
    at->head_first += to_int(r->mine.q0);
    at->kv_first += to_int(r->mine.k0);
    struct kernel_call k = {.op = OP_ATTENTION_PART,
                            .phase = r->c->phase,
                            .at = attrs_attention_part(part),
                            .step = r->c->step,
                            .n_in = r->c->n_in,
                            .n_out = 2,
                            .scratch = r->kernel,
                            .scratch_bytes = r->kernel_bytes};
    k.in[0] = r->in[Q];
    for (int v = 0; v < 2; v++) k.in[1 + v] = block_half(r, keys, from, v, r->t);
    k.in[ATTENTION_DOC] = r->c->in[ATTENTION_DOC];
    k.in[ATTENTION_TOKEN] = r->c->in[ATTENTION_TOKEN];
    if (attention_sinks(r->c) && from == r->o) take_sink(r, &k);
    k.out[1] = r->lse;
    if (!r->backward) {
        k.out[0] = r->o32;
        return k;
    }
    k.out[0] = r->in[O];
    k.dout[0] = r->in[DO];
    k.din[0] = k.acc[0] = r->dq32;
    if (from == r->o) k.acc[0].p = NULL;
    for (int v = 0; v < 2; v++) {
        k.din[1 + v] = k.acc[1 + v] = block_half(r, grads, from, v, DT_F32);
        k.acc[1 + v].p = NULL;
    }
    return k;
}

static void part(const struct run *r, int from, void *keys, void *grads)
{
    if (r->mine.q0 == r->mine.q1) { /* no query head is here, but key heads may be */
        if (grads) stream_zero(r->stream, grads, to_size(block_n(r, from)) * sizeof(float));
        return;
    }
    struct kernel_call k = part_call(r, from, keys, grads);
    kernel_enqueue(r->stream, &k);
}

static void add_block(const struct run *r, void *sum, const void *more, int o)
{
    struct view to = matrix(sum, DT_F32, rows_outer(r, o), 2 * k_cols(r)), from = to;
    from.p = (void *)(uintptr_t)more;
    copy(r, &to, &to, &from);
}

static int64_t pass_on(struct run *r, void *out, int n_out, void *in, int n_in, enum dtype t, const char *what)
{
    int next = (r->o + 1) % r->outer, before = (r->o + r->outer - 1) % r->outer;
    struct comm_p2p list[2] = {{true, next, out, block_n(r, n_out), t}, {false, before, in, block_n(r, n_in), t}};
    return comm_exchange(r->outer_comm, list, 2, what);
}

/* Leaves the gradient of the own block in *home. */
static void ring(struct run *r, void **home)
{
    int64_t sum = 0;
    for (int s = 0; s < r->outer; s++) {
        int from = (r->o - s + r->outer) % r->outer, next = (from + r->outer - 1) % r->outer;
        void *grad = r->grad[s % 2];
        int64_t keys = 0;
        if (s + 1 < r->outer)
            keys = pass_on(r, r->block[s % 2], from, r->block[(s + 1) % 2], next, r->t, "keys and values");
        part(r, from, r->block[s % 2], grad);
        if (r->backward) {
            if (s > 0) {
                comm_wait(r->outer_comm, sum);
                add_block(r, grad, r->arrived, from);
            }
            *home = r->outer > 1 ? r->arrived : grad;
            if (r->outer > 1) sum = pass_on(r, grad, from, r->arrived, next, DT_F32, "gradients of keys and values");
        }
        if (keys) comm_wait(r->outer_comm, keys);
    }
    if (sum) comm_wait(r->outer_comm, sum);
}

static void gathered(struct run *r, void **home)
{
    int64_t counts[PAR_MAX_RANKS];
    for (int o = 0; o < r->outer; o++) counts[o] = block_n(r, o);
    int64_t there = comm_all_gather_v(r->outer_comm, r->block[0], r->all, counts, r->t, "keys and values");
    for (int s = 0; s < r->outer; s++) { /* in a ring's order: its own while the others arrive, and the same bits */
        int from = (r->o - s + r->outer) % r->outer;
        if (s == 1) comm_wait(r->outer_comm, there);
        part(r, from, s ? offset(r->all, block_at(r, from), r->t) : r->block[0],
             offset(r->all_grad, block_at(r, from), DT_F32));
    }
    *home = r->grad[0];
    if (!r->backward) return;
    comm_wait(r->outer_comm, comm_reduce_scatter_v(r->outer_comm, r->all_grad, *home, counts, DT_F32, COMM_SUM,
                                                   "gradients of keys and values"));
}

/* ---- heads for rows ---- */
struct trade {
    struct view apart;   /* this rank's rows, all heads */
    struct view grouped; /* the inner ranks' rows, this rank's heads */
    bool keys;           /* counted in key heads */
    bool sums;           /* coming back: add */
};

/* One tensor's piece for or from inner rank j of sequence b: where it lies, and its shape in a message. */
static struct view piece(const struct run *r, const struct trade *t, bool apart, int j, int64_t b)
{
    int64_t before = 0, cols = t->keys ? k_cols(r) : q_cols(r);
    if (apart) {
        struct heads_part h = heads_of(r->c, j, r->inner);
        int64_t rows = rows_inner(r, r->i), lo = t->keys ? h.k0 : h.q0, hi = t->keys ? h.k1 : h.q1;
        return window(t->apart, b * rows, rows, lo * r->a, (hi - lo) * r->a);
    }
    for (int i = 0; i < j; i++) before += rows_inner(r, i);
    return window(t->grouped, b * rows_group(r, r->o) + before, rows_inner(r, j), 0, cols);
}

/* Elements for (or from) inner rank j. */
static int64_t pieces_n(const struct run *r, const struct trade *list, int n, bool apart, int j)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        struct view p = piece(r, &list[i], apart, j, 0);
        sum += r->at->batch * p.n[0] * p.n[1];
    }
    return sum;
}

/* Everything for rank j lies together: tensor after tensor, sequence after sequence. */
static void move(const struct run *r, const struct trade *list, int n, bool apart, bool pack, void *buffer)
{
    int64_t at = 0;
    for (int j = 0; j < r->inner; j++)
        for (int i = 0; i < n; i++)
            for (int64_t b = 0; b < r->at->batch; b++) {
                struct view here = piece(r, &list[i], apart, j, b);
                struct view there = matrix(offset(buffer, at, r->t), r->t, here.n[0], here.n[1]);
                if (pack) copy(r, &there, NULL, &here);
                else copy(r, &here, list[i].sums ? &here : NULL, &there);
                at += here.n[0] * here.n[1];
            }
}

static void trade(struct run *r, const struct trade *list, int n, bool back, const char *what)
{
    int64_t out[PAR_MAX_INNER], in[PAR_MAX_INNER];
    for (int j = 0; j < r->inner; j++) {
        out[j] = pieces_n(r, list, n, !back, j);
        in[j] = pieces_n(r, list, n, back, j);
    }
    move(r, list, n, !back, true, r->send);
    comm_wait(r->inner_comm, comm_all_to_all_v(r->inner_comm, r->send, r->recv, out, in, r->t, what));
    move(r, list, n, back, false, r->recv);
}

static int64_t trade_room(const struct run *r, const struct trade *list, int n, bool apart)
{
    int64_t sum = 0;
    for (int j = 0; j < r->inner; j++) sum += pieces_n(r, list, n, apart, j);
    return sum;
}

/* What is traded on the way in: q, k, v and, backward, o and do. */
static int incoming(const struct run *r, struct trade *list)
{
    const struct kernel_call *c = r->c;
    const struct view *from[TENSORS] = {&c->in[0], &c->in[1], &c->in[2], &c->out[0], &c->dout[0]};
    int n = r->backward ? TENSORS : O;
    for (int i = 0; i < n; i++) list[i] = (struct trade){*from[i], r->in[i], i == K || i == VALUE, false};
    return n;
}

/* ---- memory ---- */
static int64_t most_block(const struct run *r)
{
    int64_t most = 0;
    for (int o = 0; o < r->outer; o++) most = block_n(r, o) > most ? block_n(r, o) : most;
    return most;
}

static void lay_trade(struct run *r)
{
    struct trade list[TENSORS];
    int64_t q = q_cols(r), mine = r->c->in[0].n[0], rows = rows_outer(r, r->o);
    for (int i = Q; i < (r->backward ? TENSORS : O); i++)
        if (i != K && i != VALUE) r->in[i] = carve_matrix(r, r->t, rows, q);
    for (int v = 0; v < 2; v++) r->in[K + v] = block_half(r, r->block[0], r->o, v, r->t);
    int n = incoming(r, list);
    int64_t apart = trade_room(r, list, n, true), grouped = trade_room(r, list, n, false);
    int64_t most =
        apart > grouped ? apart : grouped; /* there and back need no more than this: fewer tensors come back */
    r->send = carve(r, to_size(most) * dtype_bytes(r->t));
    r->recv = carve(r, to_size(most) * dtype_bytes(r->t));
    for (int v = 0; v < 2 && r->backward; v++) r->home[v] = carve_matrix(r, DT_F32, mine, r->c->in[1 + v].n[1]);
}

/* Every buffer, at `base`, or counted where that is NULL. */
static void lay_out(struct run *r, const struct kernel_table *kt, const struct kernel_call *c, void *base)
{
    const struct context_attrs *at = at_context(&c->at);
    int inner = at->inner, part = at->over.part;
    *r = (struct run){.c = c,
                      .at = &at->attention,
                      .inner = inner,
                      .outer = at->over.n_parts / inner,
                      .i = part % inner,
                      .o = part / inner,
                      .a = at->attention.head_dim,
                      .mine = heads_of(c, part % inner, inner),
                      .backward = c->phase != KERNEL_FWD,
                      .t = c->in[0].dtype,
                      .base = base};
    CHECK(r->inner <= PAR_MAX_INNER && r->outer <= PAR_MAX_RANKS, "%d x %d ranks along cp", r->outer, r->inner);
    bool gather = at->gather && r->outer > 1;
    int64_t rows = rows_outer(r, r->o), most = most_block(r), all = block_at(r, r->outer);
    for (int i = 0; i < (gather || r->outer == 1 ? 1 : 2); i++) {
        r->block[i] = carve(r, to_size(most) * dtype_bytes(r->t));
        if (r->backward) r->grad[i] = carve(r, to_size(most) * sizeof(float));
    }
    if (gather) r->all = carve(r, to_size(all) * dtype_bytes(r->t));
    if (gather && r->backward) r->all_grad = carve(r, to_size(all) * sizeof(float));
    if (!gather && r->outer > 1 && r->backward) r->arrived = carve(r, to_size(most) * sizeof(float));
    r->lse = c->out[1];
    if (r->inner > 1) {
        lay_trade(r);
    } else {
        r->in[Q] = c->in[0];
        r->in[O] = c->out[0];
        r->in[DO] = c->dout[0];
    }
    if (r->backward && attention_sinks(c)) {
        int64_t n = c->in[ATTENTION_SINK].n[0];
        r->sink_grad = (struct view){.p = carve(r, to_size(n) * sizeof(float)), .dtype = DT_F32, .nd = 1, .n = {n}};
        r->sink_grad.stride = n;
    }
    bool direct = !r->backward && r->inner == 1 && r->t == DT_F32;
    if (r->backward) r->dq32 = carve_matrix(r, DT_F32, rows, q_cols(r));
    else r->o32 = direct ? c->out[0] : carve_matrix(r, DT_F32, rows, q_cols(r));
    for (int o = 0; o < r->outer && r->mine.q1 > r->mine.q0; o++) {
        struct kernel_call k = part_call(r, o, NULL, NULL);
        size_t need = kernel_scratch(kt, &k);
        if (need > r->kernel_bytes) r->kernel_bytes = need;
    }
    r->kernel = carve(r, r->kernel_bytes);
}

size_t context_scratch(const struct kernel_table *kt, const struct kernel_call *c)
{
    struct run r;
    lay_out(&r, kt, c, NULL);
    return r.used;
}

/* ---- the row ---- */
static void finish_forward(struct run *r)
{
    struct view o = r->c->out[0];
    if (r->inner > 1) trade(r, &(struct trade){o, r->o32, false, false}, 1, true, "o");
    else if (r->o32.p != o.p) copy(r, &o, NULL, &r->o32);
}

/* din = acc + what was computed. */
static void put(const struct run *r, int i, const struct view *g)
{
    if (r->c->din[i].nd && (r->c->din[i].p || r->stream->kernels->dry)) copy(r, &r->c->din[i], &r->c->acc[i], g);
}

static void finish_backward(struct run *r, void *home)
{
    const struct kernel_call *c = r->c;
    if (r->sink_grad.nd) put(r, ATTENTION_SINK, &r->sink_grad);
    struct view dk = block_half(r, home, r->o, false, DT_F32), dv = block_half(r, home, r->o, true, DT_F32);
    if (r->inner == 1) {
        put(r, 0, &r->dq32);
        put(r, 1, &dk);
        put(r, 2, &dv);
        return;
    }
    for (int v = 0; v < 2; v++) /* inner ranks that read the same key head each send a share */
        if (r->home[v].p)
            stream_zero(r->stream, r->home[v].p, to_size(r->home[v].n[0] * r->home[v].n[1]) * sizeof(float));
    bool adds = c->acc[0].p != NULL;
    if (adds && c->acc[0].p != c->din[0].p) copy(r, &c->din[0], NULL, &c->acc[0]);
    struct trade list[3] = {{c->din[0], r->dq32, false, adds},
                            {r->home[0], dk, true, true},
                            {r->home[1], dv, true, true}};
    trade(r, list, 3, true, "gradients of q, k and v");
    put(r, 1, &r->home[0]);
    put(r, 2, &r->home[1]);
}

void context_run(struct par_run *x, struct stream *s, const struct kernel_call *c)
{
    struct run r;
    void *home = NULL;
    lay_out(&r, s->kernels, c, c->scratch);
    CHECK(c->scratch_bytes >= r.used || s->kernels->dry, "context: %zu bytes of scratch, needs %zu", c->scratch_bytes,
          r.used);
    r.stream = s;
    r.inner_comm = r.outer == 1 ? x->axis[AXIS_CP] : x->inner;
    r.outer_comm = r.inner == 1 ? x->axis[AXIS_CP] : x->outer;
    CHECK((r.inner == 1 || r.inner_comm) && (r.outer == 1 || r.outer_comm), "context: no groups for %d x %d ranks",
          r.outer, r.inner);
    if (r.inner > 1) {
        struct trade list[TENSORS];
        int n = incoming(&r, list);
        trade(&r, list, n, false, r.backward ? "q, k, v, o and gradient of o" : "q, k and v");
    } else {
        for (int v = 0; v < 2; v++) {
            struct view own = block_half(&r, r.block[0], r.o, v, r.t);
            copy(&r, &own, NULL, &c->in[1 + v]);
        }
    }
    if (r.sink_grad.p) stream_zero(s, r.sink_grad.p, to_size(r.sink_grad.n[0]) * sizeof(float));
    if (at_context(&c->at)->gather && r.outer > 1) gathered(&r, &home);
    else ring(&r, &home);
    if (r.backward) finish_backward(&r, home);
    else finish_forward(&r);
}
