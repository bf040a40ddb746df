/* SPDX-License-Identifier: Apache-2.0 */
/* State spaces, plainly (Dao and Gu 2024, section 6): the recurrence token by token, in double.
 *
 *   forward    h_t = q_t h_(t-1) + s_t x_t b_t^T       y_t = h_t c_t + d x_t      q_t = exp(log decay), 0 where a
 *                                                                                 document begins
 *   backward   g_t = dy_t c_t^T + q_(t+1) g_(t+1)      (the gradient of h_t)
 *              dc_t = h_t^T dy_t      dx_t = s_t g_t b_t + d dy_t      db_t = s_t g_t^T x_t
 *              ds_t = <g_t, x_t b_t^T>      d(log decay)_t = q_t <g_t, h_(t-1)>
 *
 * Backward goes over chunks of tokens from the last: states at their beginnings are kept, those inside are made again.
 * A group's heads are done by one thread, so that the gradients of b and c have one order. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/cache_runs.h"
#include "kernel/pieces.h"
#include "kernel/ref/ref.h"

enum { CHUNK = 64 }; /* tokens */

/* ---- a head of a piece ---- */
struct head {
    const struct kernel_call *c;
    const struct scan_attrs *at;
    struct row_piece p;
    const struct view *docs;
    int64_t h, g; /* which head and group */
};

static double *of_x(const struct head *o, int64_t i, double *x)
{
    for (int64_t a = 0; a < o->at->head_dim; a++)
        x[a] = ref_get(&o->c->in[0], o->p.row + i, o->h * o->at->head_dim + a);
    return x;
}
static double b_of(const struct head *o, int64_t i, int64_t n)
{
    return ref_get(&o->c->in[1], o->p.row + i, o->g * o->at->state + n);
}
static double c_of(const struct head *o, int64_t i, int64_t n)
{
    return ref_get(&o->c->in[1], o->p.row + i, (o->at->groups + o->g) * o->at->state + n);
}
static double step_of(const struct head *o, int64_t i) { return ref_get(&o->c->in[2], o->p.row + i, o->h); }
static double log_decay_of(const struct head *o, int64_t i)
{
    return ref_get(&o->c->in[2], o->p.row + i, o->at->heads + o->h);
}
static double decay_of(const struct head *o, int64_t i)
{
    return piece_begins(&o->at->at, o->docs, &o->p, i) ? 0 : exp(log_decay_of(o, i));
}

static void advance(const struct head *o, int64_t i, double *state)
{
    double q = decay_of(o, i), s = step_of(o, i);
    int64_t A = o->at->head_dim, N = o->at->state;
    for (int64_t a = 0; a < A; a++) {
        double x = s * ref_get(&o->c->in[0], o->p.row + i, o->h * A + a);
        for (int64_t n = 0; n < N; n++) state[a * N + n] = q * state[a * N + n] + x * b_of(o, i, n);
    }
}

static struct head head_of(const struct kernel_call *c, int64_t piece, int64_t h)
{
    const struct scan_attrs *at = at_scan(&c->at);
    return (struct head){.c = c,
                         .at = at,
                         .p = piece_at(&at->at, piece),
                         .docs = &c->in[c->op == OP_SCAN ? 4 : 3],
                         .h = h,
                         .g = h / (at->heads / at->groups)};
}

/* What is before the piece, of element k of the head's state. */
static double before(const struct head *o, int64_t piece, int64_t k)
{
    bool given = o->c->op == OP_SCAN && o->c->n_in > 5 && o->c->in[5].p;
    return given ? ref_get(&o->c->in[5], piece, o->h * o->at->head_dim * o->at->state + k) : 0;
}

static int64_t state_size(const struct scan_attrs *at) { return (int64_t)at->head_dim * at->state; }

static void read_out(const struct head *o, int64_t i, const double *state, double skip)
{
    int64_t A = o->at->head_dim, N = o->at->state;
    for (int64_t a = 0; a < A; a++) {
        double y = skip * ref_get(&o->c->in[0], o->p.row + i, o->h * A + a);
        for (int64_t n = 0; n < N; n++) y += state[a * N + n] * c_of(o, i, n);
        ref_set(&o->c->out[0], o->p.row + i, o->h * A + a, y);
    }
}

static void scan_row(const struct kernel_call *c, int64_t row, double *state)
{
    int64_t heads = at_scan(&c->at)->heads, piece = row / heads;
    struct head o = head_of(c, piece, row % heads);
    for (int64_t k = 0; k < state_size(o.at); k++) state[k] = before(&o, piece, k);
    for (int64_t i = 0; i < o.p.n; i++) {
        advance(&o, i, state);
        read_out(&o, i, state, ref_get(&c->in[3], 0, o.h));
    }
}

/* What a state before the piece is multiplied by on its way to the end. */
static double whole_decay(const struct head *o)
{
    double sum = 0;
    for (int64_t i = 0; i < o->p.n; i++) {
        if (piece_begins(&o->at->at, o->docs, &o->p, i)) return 0;
        sum += log_decay_of(o, i);
    }
    return exp(sum);
}

static void scan_end_row(const struct kernel_call *c, int64_t row, double *state)
{
    const struct scan_attrs *at = at_scan(&c->at);
    int64_t piece = row / at->heads, size = state_size(at);
    struct head o = head_of(c, piece, row % at->heads);
    memset(state, 0, to_size(size) * sizeof *state);
    for (int64_t i = 0; i < o.p.n; i++) advance(&o, i, state);
    for (int64_t k = 0; k < size; k++) ref_set(&c->out[0], piece, o.h * size + k, state[k]);
    ref_set(&c->out[0], piece, at->heads * size + o.h, whole_decay(&o));
}

void scan_fwd_ref(const struct kernel_call *c)
{
    const struct scan_attrs *at = at_scan(&c->at);
    ref_each_row(c, pieces_all(&at->at) * at->heads, state_size(at), c->op == OP_SCAN ? scan_row : scan_end_row);
}

/* ---- backward ---- */
static int64_t chunks_of(const struct scan_attrs *at) { return (at->at.seq + CHUNK - 1) / CHUNK + 1; }
static int64_t heads_each(const struct scan_attrs *at) { return at->groups ? at->heads / at->groups : 0; }

/* A member's scratch: per head of a group the states before each chunk and g; states inside a chunk; db and dc. */
struct room {
    double *starts, *g, *inside, *dbc, *x;
};
static int64_t room_each(const struct scan_attrs *at)
{
    int64_t size = state_size(at);
    return heads_each(at) * (chunks_of(at) + 1) * size + (CHUNK + 1) * size + CHUNK * 2 * at->state + at->head_dim;
}
static struct room room_of(const struct scan_attrs *at, double *mine)
{
    struct room r = {.starts = mine};
    int64_t size = state_size(at);
    r.g = r.starts + heads_each(at) * chunks_of(at) * size;
    r.inside = r.g + heads_each(at) * size;
    r.dbc = r.inside + (CHUNK + 1) * size;
    r.x = r.dbc + CHUNK * 2 * at->state;
    return r;
}

size_t scan_scratch_ref(const struct kernel_call *c, int n_threads)
{
    const struct scan_attrs *at = at_scan(&c->at);
    return ref_scratch(c->phase == KERNEL_FWD ? state_size(at) : room_each(at), n_threads);
}

static void keep_starts(const struct head *o, int64_t piece, double *starts)
{
    int64_t size = state_size(o->at);
    for (int64_t k = 0; k < size; k++) starts[k] = before(o, piece, k);
    for (int64_t i = 0; i < o->p.n; i++) {
        double *from = starts + i / CHUNK * size, *to = starts + (i / CHUNK + 1) * size;
        if (i % CHUNK == 0) memcpy(to, from, to_size(size) * sizeof *to);
        advance(o, i, to);
    }
}

/* Token i, whose state and the one before it are given; g comes as q_(i+1) g_(i+1), and goes as q_i g_i. */
static void token_back(const struct head *o, int64_t i, const double *was, const double *is, double whole_log,
                       struct room *r, double *g, double *dbc)
{
    const struct kernel_call *c = o->c;
    int64_t A = o->at->head_dim, N = o->at->state, row = o->p.row + i;
    bool reads = c->op == OP_SCAN;
    double skip = reads ? ref_get(&c->in[3], 0, o->h) : 0, s = step_of(o, i), q = decay_of(o, i), ds = 0, dq = 0;
    const double *x = of_x(o, i, r->x);
    for (int64_t a = 0; a < A; a++) {
        double dy = reads ? ref_get(&c->dout[0], row, o->h * A + a) : 0, dx = 0;
        for (int64_t n = 0; n < N; n++) {
            double *at = &g[a * N + n], b = b_of(o, i, n);
            dbc[N + n] += is[a * N + n] * dy;
            *at += dy * c_of(o, i, n);
            dx += *at * b;
            dbc[n] += s * *at * x[a];
            dq += *at * was[a * N + n];
            *at *= q;
        }
        ds += dx * x[a];
        ref_put_grad(c, 0, row, o->h * A + a, s * dx + skip * dy);
    }
    ref_put_grad(c, 2, row, o->h, ds);
    ref_put_grad(c, 2, row, o->at->heads + o->h, q * dq + whole_log);
}

/* SCAN_END: the gradient of the log of the whole decay. */
static double whole_log_of(const struct head *o, int64_t piece)
{
    if (o->c->op == OP_SCAN) return 0;
    return whole_decay(o) * ref_get(&o->c->dout[0], piece, o->at->heads * state_size(o->at) + o->h);
}

static void chunk_back(const struct head *o, int64_t chunk, double whole_log, struct room *r, const double *starts,
                       double *g)
{
    int64_t size = state_size(o->at), lo = chunk * CHUNK, hi = lo + CHUNK < o->p.n ? lo + CHUNK : o->p.n;
    memcpy(r->inside, starts + chunk * size, to_size(size) * sizeof *starts);
    for (int64_t i = lo; i < hi; i++) {
        double *to = r->inside + (i - lo + 1) * size;
        memcpy(to, to - size, to_size(size) * sizeof *to);
        advance(o, i, to);
    }
    for (int64_t i = hi - 1; i >= lo; i--)
        token_back(o, i, r->inside + (i - lo) * size, r->inside + (i - lo + 1) * size, whole_log, r, g,
                   r->dbc + (i - lo) * 2 * o->at->state);
}

static void put_dbc(const struct head *o, int64_t chunk, const double *dbc)
{
    int64_t N = o->at->state, lo = chunk * CHUNK, hi = lo + CHUNK < o->p.n ? lo + CHUNK : o->p.n;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t n = 0; n < N; n++) {
            ref_put_grad(o->c, 1, o->p.row + i, o->g * N + n, dbc[(i - lo) * 2 * N + n]);
            ref_put_grad(o->c, 1, o->p.row + i, (o->at->groups + o->g) * N + n, dbc[(i - lo) * 2 * N + N + n]);
        }
}

static void scan_dx_row(const struct kernel_call *c, int64_t row, double *mine)
{
    const struct scan_attrs *at = at_scan(&c->at);
    int64_t piece = row / at->groups, first = row % at->groups * heads_each(at), size = state_size(at);
    struct room r = room_of(at, mine);
    struct head o = head_of(c, piece, first);
    o.g = row % at->groups;
    for (int64_t k = 0; k < heads_each(at); k++) {
        o.h = first + k;
        keep_starts(&o, piece, r.starts + k * chunks_of(at) * size);
        for (int64_t m = 0; m < size; m++)
            r.g[k * size + m] = c->op == OP_SCAN ? 0 : ref_get(&c->dout[0], piece, o.h * size + m);
    }
    for (int64_t chunk = (o.p.n + CHUNK - 1) / CHUNK - 1; chunk >= 0; chunk--) {
        memset(r.dbc, 0, to_size(CHUNK * 2 * at->state) * sizeof *r.dbc);
        for (int64_t k = 0; k < heads_each(at); k++) {
            o.h = first + k;
            chunk_back(&o, chunk, whole_log_of(&o, piece), &r, r.starts + k * chunks_of(at) * size, r.g + k * size);
        }
        put_dbc(&o, chunk, r.dbc);
    }
    for (int64_t k = 0; c->op == OP_SCAN && c->n_in > 5 && k < heads_each(at) * size; k++)
        ref_put_grad(c, 5, piece, first * size + k, r.g[k]);
}

void scan_bwd_in_ref(const struct kernel_call *c)
{
    const struct scan_attrs *at = at_scan(&c->at);
    ref_each_row(c, pieces_all(&at->at) * at->groups, room_each(at), scan_dx_row);
}

static void skip_column(const struct kernel_call *c, int64_t h, double *mine)
{
    (void)mine;
    int64_t A = at_scan(&c->at)->head_dim;
    double sum = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        for (int64_t a = h * A; a < (h + 1) * A; a++) sum += ref_get(&c->dout[0], t, a) * ref_get(&c->in[0], t, a);
    ref_put_grad(c, 3, 0, h, sum);
}

void scan_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, at_scan(&c->at)->heads, 0, skip_column); }

/* ---- steps and decays: s = clamp(softplus(dt + bias)), l = -exp(decay) s ---- */
struct time {
    double step, slope, rate; /* of softplus, 0 where it is held; -exp(decay) */
};
static struct time time_of(const struct kernel_call *c, int64_t t, int64_t h)
{
    const struct times_attrs *at = at_times(&c->at);
    double v = ref_get(&c->in[0], t, h) + ref_get(&c->in[2], 0, h), s = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
    double lo = (double)at->lo, hi = (double)at->hi;
    bool held = s < lo || s > hi;
    return (struct time){s < lo ? lo : s > hi ? hi : s, held ? 0 : 1 / (1 + exp(-v)), -exp(ref_get(&c->in[1], 0, h))};
}

static void times_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    int64_t H = c->in[0].n[1];
    for (int64_t h = 0; h < H; h++) {
        struct time x = time_of(c, t, h);
        ref_set(&c->out[0], t, h, x.step);
        ref_set(&c->out[0], t, H + h, x.step * x.rate);
    }
}

static double step_back(const struct kernel_call *c, int64_t t, int64_t h, const struct time *x)
{
    return x->slope * (ref_get(&c->dout[0], t, h) + x->rate * ref_get(&c->dout[0], t, c->in[0].n[1] + h));
}

static void times_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    for (int64_t h = 0; h < c->in[0].n[1]; h++) {
        struct time x = time_of(c, t, h);
        ref_put_grad(c, 0, t, h, step_back(c, t, h, &x));
    }
}

static void times_dw_column(const struct kernel_call *c, int64_t h, double *mine)
{
    (void)mine;
    double decay = 0, bias = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++) {
        struct time x = time_of(c, t, h);
        decay += ref_get(&c->dout[0], t, c->in[0].n[1] + h) * x.step * x.rate;
        bias += step_back(c, t, h, &x);
    }
    ref_put_grad(c, 1, 0, h, decay);
    ref_put_grad(c, 2, 0, h, bias);
}

void times_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, times_row); }

void times_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, times_dx_row); }

void times_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, times_dw_column); }

/* ---- new tokens after what a sequence has had ---- */
static void scan_cached_row(const struct kernel_call *c, int64_t row, double *state)
{
    const struct scan_attrs *at = at_scan(&c->at);
    struct cache_run run = cache_run_of(c, row / at->heads);
    int64_t h = row % at->heads, size = state_size(at);
    static const struct view none;
    if (!run.n) return;
    struct head o = {c, at, {0, 1, run.first, run.n}, &none, h, h / heads_each(at)}; /* no token begins a document */
    for (int64_t k = 0; k < size; k++) state[k] = run.past ? ref_get(&c->in[4], run.state, h * size + k) : 0;
    for (int64_t i = 0; i < run.n; i++) {
        advance(&o, i, state);
        read_out(&o, i, state, ref_get(&c->in[5], 0, h));
    }
    for (int64_t k = 0; k < size; k++) ref_set(&c->in[4], run.state, h * size + k, state[k]);
}

/* Rows of no run. */
static void zero_others(const struct kernel_call *c)
{
    int64_t at = 0;
    for (int64_t s = 0; s <= c->in[3].n[0]; s++) {
        struct cache_run run =
            s < c->in[3].n[0] ? cache_run_of(c, s) : (struct cache_run){.first = c->out[0].n[0], .n = 1};
        if (!run.n) continue;
        for (; at < run.first; at++)
            for (int64_t k = 0; k < c->out[0].n[1]; k++) ref_set(&c->out[0], at, k, 0);
        at = run.first + run.n;
    }
}

void scan_cached_fwd_ref(const struct kernel_call *c)
{
    const struct scan_attrs *at = at_scan(&c->at);
    cache_states_check(c);
    zero_others(c);
    ref_each_row(c, c->in[3].n[0] * at->heads, state_size(at), scan_cached_row);
}

static double silu(double x) { return x / (1 + exp(-x)); }

/* A channel of a sequence; mine: its last K - 1 values, then the new ones' taps. */
static void conv_cached_row(const struct kernel_call *c, int64_t row, double *mine)
{
    int64_t C = c->in[0].n[1], K = c->in[1].n[1], ch = row % C;
    struct cache_run run = cache_run_of(c, row / C);
    if (!run.n) return;
    for (int64_t k = 0; k + 1 < K; k++) mine[k] = run.past ? ref_get(&c->in[4], run.state, k * C + ch) : 0;
    for (int64_t i = 0; i < run.n; i++) {
        double v = c->in[2].p ? ref_get(&c->in[2], 0, ch) : 0;
        mine[K - 1] = ref_get(&c->in[0], run.first + i, ch);
        for (int64_t k = 0; k < K; k++) v += ref_get(&c->in[1], ch, k) * mine[k];
        ref_set(&c->out[0], run.first + i, ch, silu(v));
        for (int64_t k = 0; k + 1 < K; k++) mine[k] = mine[k + 1];
    }
    for (int64_t k = 0; k + 1 < K; k++) ref_set(&c->in[4], run.state, k * C + ch, mine[k]);
}

void conv_cached_fwd_ref(const struct kernel_call *c)
{
    cache_states_check(c);
    zero_others(c);
    ref_each_row(c, c->in[3].n[0] * c->in[0].n[1], c->in[1].n[1], conv_cached_row);
}

size_t conv_cached_scratch_ref(const struct kernel_call *c, int n_threads)
{
    return ref_scratch(c->in[1].n[1], n_threads);
}
