/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around the scan of a state space, plainly: the convolution over the last K tokens of each channel, the
 * norm of what the gate lets through, and the rows and states that come from other parts of a sequence.
 *
 *   y_t = silu(v_t), v_t = b + sum over j < K of w_(K-1-j) x_(t-j)      of the same document, from the sequence's
 *                                                                       beginning on
 *   dv_t = dy_t silu'(v_t)    dx_t = sum over j of w_(K-1-j) dv_(t+j)    dw_(K-1-j) = sum over t of dv_t x_(t-j) */
#include <math.h>

#include "base/mem.h"
#include "kernel/pieces.h"
#include "kernel/ref/ref.h"

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double silu_slope(double x)
{
    double s = logistic(x);
    return s * (1 + x * (1 - s));
}

struct taps {
    const struct kernel_call *c;
    const struct sequence_rows *at;
    struct row_piece p;
    int64_t index, K; /* of the piece */
};

static struct taps taps_of(const struct kernel_call *c, int64_t index)
{
    const struct sequence_rows *at = &at_conv(&c->at)->at;
    return (struct taps){c, at, piece_at(at, index), index, c->in[1].n[1]};
}

static int64_t reach(const struct taps *o, int64_t i) { return piece_reach(o->at, &o->c->in[3], &o->p, i, o->K - 1); }

/* Row i of the piece; below 0 of the halo before it, if there is one. */
static double x_of(const struct taps *o, int64_t i, int64_t ch)
{
    if (i >= 0) return ref_get(&o->c->in[0], o->p.row + i, ch);
    return o->c->n_in > 4 && o->c->in[4].p ? ref_get(&o->c->in[4], (o->index + 1) * (o->K - 1) + i, ch) : 0;
}

static double v_of(const struct taps *o, int64_t i, int64_t n, int64_t ch)
{
    double v = o->c->n_in > 2 && o->c->in[2].p ? ref_get(&o->c->in[2], 0, ch) : 0;
    for (int64_t j = 0; j <= n; j++) v += ref_get(&o->c->in[1], ch, o->K - 1 - j) * x_of(o, i - j, ch);
    return v;
}

static void conv_piece(const struct kernel_call *c, int64_t index, double *mine)
{
    (void)mine;
    struct taps o = taps_of(c, index);
    for (int64_t i = 0; i < o.p.n; i++) {
        int64_t n = reach(&o, i);
        for (int64_t ch = 0; ch < c->in[0].n[1]; ch++) {
            double v = v_of(&o, i, n, ch);
            ref_set(&c->out[0], o.p.row + i, ch, v * logistic(v));
        }
    }
}

void conv_fwd_ref(const struct kernel_call *c) { ref_each_row(c, pieces_all(&at_conv(&c->at)->at), 0, conv_piece); }

static double dv_of(const struct taps *o, int64_t i, int64_t n, int64_t ch)
{
    return ref_get(&o->c->dout[0], o->p.row + i, ch) * silu_slope(v_of(o, i, n, ch));
}

/* The gradient of row i, which may be one of the halo. */
static double dx_of(const struct taps *o, int64_t i, int64_t ch)
{
    double dx = 0;
    for (int64_t j = 0; j < o->K; j++) {
        if (i + j < 0 || i + j >= o->p.n) continue;
        int64_t n = reach(o, i + j);
        if (n >= j) dx += ref_get(&o->c->in[1], ch, o->K - 1 - j) * dv_of(o, i + j, n, ch);
    }
    return dx;
}

static void conv_dx_piece(const struct kernel_call *c, int64_t index, double *mine)
{
    (void)mine;
    struct taps o = taps_of(c, index);
    for (int64_t ch = 0; ch < c->in[0].n[1]; ch++) {
        for (int64_t i = 0; i < o.p.n; i++) ref_put_grad(c, 0, o.p.row + i, ch, dx_of(&o, i, ch));
        for (int64_t i = 1 - o.K; c->n_in > 4 && i < 0; i++)
            ref_put_grad(c, 4, (index + 1) * (o.K - 1) + i, ch, dx_of(&o, i, ch));
    }
}

void conv_bwd_in_ref(const struct kernel_call *c)
{
    ref_each_row(c, pieces_all(&at_conv(&c->at)->at), 0, conv_dx_piece);
}

static void conv_dw_channel(const struct kernel_call *c, int64_t ch, double *dw)
{
    int64_t K = c->in[1].n[1];
    double db = 0;
    for (int64_t k = 0; k < K; k++) dw[k] = 0;
    for (int64_t index = 0; index < pieces_all(&at_conv(&c->at)->at); index++) {
        struct taps o = taps_of(c, index);
        for (int64_t i = 0; i < o.p.n; i++) {
            int64_t n = reach(&o, i);
            double dv = dv_of(&o, i, n, ch);
            db += dv;
            for (int64_t j = 0; j <= n; j++) dw[K - 1 - j] += dv * x_of(&o, i - j, ch);
        }
    }
    for (int64_t k = 0; k < K; k++) ref_put_grad(c, 1, ch, k, dw[k]);
    if (c->n_in > 2) ref_put_grad(c, 2, 0, ch, db);
}

void conv_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], c->in[1].n[1], conv_dw_channel); }

size_t conv_scratch_ref(const struct kernel_call *c, int n_threads) { return ref_scratch(c->in[1].n[1], n_threads); }

/* ---- the norm of what the gate lets through, of each group of columns ----
 *   g = y silu(z), o = w g r, r = 1 / sqrt(mean(g^2) + eps)
 *   dg = r (w do - n mean(w do n)), n = g r      dy = dg silu(z)      dz = dg y silu'(z) */
static double gated(const struct kernel_call *c, int64_t t, int64_t d)
{
    double z = ref_get(&c->in[1], t, d);
    return ref_get(&c->in[0], t, d) * z * logistic(z);
}

static void gated_norm_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    const struct norm_attrs *at = at_norm(&c->at);
    int64_t n = c->in[0].n[1] / at->heads;
    for (int64_t g = 0; g < at->heads; g++) {
        double squares = 0;
        for (int64_t d = g * n; d < (g + 1) * n; d++) squares += gated(c, t, d) * gated(c, t, d);
        double r = c->n_in > 2 ? 1 / sqrt(squares / (double)n + (double)at->eps) : 1;
        ref_set(&c->out[1], t, g, r);
        for (int64_t d = g * n; d < (g + 1) * n; d++)
            ref_set(&c->out[0], t, d, gated(c, t, d) * (c->n_in > 2 ? r * ref_get(&c->in[2], 0, d) : 1));
    }
}

static void gated_norm_dx_row(const struct kernel_call *c, int64_t t, double *mine)
{
    (void)mine;
    const struct norm_attrs *at = at_norm(&c->at);
    int64_t n = c->in[0].n[1] / at->heads;
    for (int64_t g = 0; g < at->heads; g++) {
        double r = ref_get(&c->out[1], t, g), mean = 0;
        for (int64_t d = g * n; c->n_in > 2 && d < (g + 1) * n; d++)
            mean += ref_get(&c->dout[0], t, d) * ref_get(&c->in[2], 0, d) * gated(c, t, d) * r / (double)n;
        for (int64_t d = g * n; d < (g + 1) * n; d++) {
            double z = ref_get(&c->in[1], t, d), w = c->n_in > 2 ? ref_get(&c->in[2], 0, d) : 1;
            double dg = r * (ref_get(&c->dout[0], t, d) * w - gated(c, t, d) * r * mean);
            if (c->din[0].p) ref_put_grad(c, 0, t, d, dg * z * logistic(z));
            if (c->din[1].p) ref_put_grad(c, 1, t, d, dg * ref_get(&c->in[0], t, d) * silu_slope(z));
        }
    }
}

static void gated_norm_dw_column(const struct kernel_call *c, int64_t d, double *mine)
{
    (void)mine;
    int64_t n = c->in[0].n[1] / at_norm(&c->at)->heads;
    double dw = 0;
    for (int64_t t = 0; t < c->in[0].n[0]; t++)
        dw += ref_get(&c->dout[0], t, d) * gated(c, t, d) * ref_get(&c->out[1], t, d / n);
    ref_put_grad(c, 2, 0, d, dw);
}

void gated_norm_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, gated_norm_row); }

void gated_norm_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, gated_norm_dx_row); }

void gated_norm_bwd_w_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[1], 0, gated_norm_dw_column); }

/* ---- from other parts of a sequence ---- */
/* Where row j of the tail of each piece is: its row of x, or -1 where the piece is shorter. */
static int64_t tail_row(const struct row_piece *p, int64_t before, int64_t j)
{
    int64_t i = p->n - before + j;
    return i < 0 ? -1 : p->row + i;
}

static void tails_row(const struct kernel_call *c, int64_t row, double *mine)
{
    (void)mine;
    const struct halo_attrs *at = at_halo(&c->at);
    struct row_piece p = piece_at(&at->at, row / at->before);
    int64_t from = tail_row(&p, at->before, row % at->before);
    for (int64_t ch = 0; ch < c->out[0].n[1]; ch++)
        ref_set(&c->out[0], row, ch, from < 0 ? 0 : ref_get(&c->in[0], from, ch));
}

void tails_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, tails_row); }

static void tails_dx_piece(const struct kernel_call *c, int64_t index, double *mine)
{
    (void)mine;
    const struct halo_attrs *at = at_halo(&c->at);
    struct row_piece p = piece_at(&at->at, index);
    for (int64_t i = 0; i < p.n; i++) {
        int64_t j = i - p.n + at->before;
        for (int64_t ch = 0; ch < c->din[0].n[1]; ch++)
            ref_put_grad(c, 0, p.row + i, ch, j < 0 ? 0 : ref_get(&c->dout[0], index * at->before + j, ch));
    }
}

void tails_bwd_in_ref(const struct kernel_call *c)
{
    ref_each_row(c, pieces_all(&at_halo(&c->at)->at), 0, tails_dx_piece);
}

/* Piece q of sequence b, in the sequence's order: which part has it, and the number of that part's piece. */
struct where {
    int64_t part, index;
};
static struct where where_of(const struct sequence_rows *a, int64_t b, int64_t q)
{
    bool tail = q >= a->parts;
    return (struct where){tail ? 2 * a->parts - 1 - q : q, 2 * b + tail};
}
static int64_t order_of(const struct sequence_rows *a, int64_t index)
{
    return index % 2 ? 2 * a->parts - 1 - a->part : a->part;
}

/* The row of all parts' tails that holds what is `back` rows before a piece of this part (1: right before); -1: nothing
 * is there. */
static int64_t halo_row(const struct halo_attrs *at, int64_t index, int64_t back)
{
    const struct sequence_rows *a = &at->at;
    int64_t b = index / 2;
    for (int64_t q = order_of(a, index) - 1; q >= 0; q--) {
        struct where w = where_of(a, b, q);
        struct sequence_rows of = *a;
        of.part = to_int(w.part);
        int64_t n = piece_at(&of, w.index).n;
        if (back <= n) return (w.part * pieces_all(a) + w.index + 1) * at->before - back;
        back -= n;
    }
    return -1;
}

static void halo_row_fwd(const struct kernel_call *c, int64_t row, double *mine)
{
    (void)mine;
    const struct halo_attrs *at = at_halo(&c->at);
    int64_t from = halo_row(at, row / at->before, at->before - row % at->before);
    for (int64_t ch = 0; ch < c->out[0].n[1]; ch++)
        ref_set(&c->out[0], row, ch, from < 0 ? 0 : ref_get(&c->in[0], from, ch));
}

void halo_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->out[0].n[0], 0, halo_row_fwd); }

/* Each row of the tails, from all that read it. */
static void halo_dx_row(const struct kernel_call *c, int64_t row, double *mine)
{
    (void)mine;
    const struct halo_attrs *at = at_halo(&c->at);
    int64_t rows = c->dout[0].n[0];
    for (int64_t ch = 0; ch < c->din[0].n[1]; ch++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            if (halo_row(at, r / at->before, at->before - r % at->before) == row) sum += ref_get(&c->dout[0], r, ch);
        ref_put_grad(c, 0, row, ch, sum);
    }
}

void halo_bwd_in_ref(const struct kernel_call *c) { ref_each_row(c, c->din[0].n[0], 0, halo_dx_row); }

/* ---- states ---- */
struct ends {
    const struct kernel_call *c;
    const struct carry_attrs *at;
    int64_t head, size, all; /* elements of a head's state, of all heads' */
};
static struct ends ends_of(const struct kernel_call *c, int64_t head)
{
    const struct carry_attrs *at = at_carry(&c->at);
    int64_t all = view_cols(&c->in[0]) - at->heads;
    return (struct ends){c, at, head, at->heads ? all / at->heads : 0, all};
}
static int64_t end_row(const struct ends *o, int64_t b, int64_t q)
{
    struct where w = where_of(&o->at->at, b, q);
    return w.part * pieces_all(&o->at->at) + w.index;
}
static double whole_decay(const struct ends *o, int64_t row) { return ref_get(&o->c->in[0], row, o->all + o->head); }

/* A head of a piece of this part: from the first piece on. */
static void carry_row(const struct kernel_call *c, int64_t row, double *mine)
{
    (void)mine;
    int64_t heads = at_carry(&c->at)->heads, index = row / heads;
    struct ends o = ends_of(c, row % heads);
    for (int64_t k = o.head * o.size; k < (o.head + 1) * o.size; k++) {
        double h = 0;
        for (int64_t q = 0; q < order_of(&o.at->at, index); q++) {
            int64_t end = end_row(&o, index / 2, q);
            h = whole_decay(&o, end) * h + ref_get(&c->in[0], end, k);
        }
        ref_set(&c->out[0], index, k, h);
    }
}

void carry_fwd_ref(const struct kernel_call *c)
{
    const struct carry_attrs *at = at_carry(&c->at);
    ref_each_row(c, pieces_all(&at->at) * at->heads, 0, carry_row);
}

/* A head of a sequence: g is the gradient of the state before piece q, from this part's pieces behind it on. mine: the
 * states before all pieces. */
static void carry_dx_row(const struct kernel_call *c, int64_t row, double *h)
{
    int64_t heads = at_carry(&c->at)->heads, b = row / heads;
    struct ends o = ends_of(c, row % heads);
    const struct sequence_rows *a = &o.at->at;
    int64_t n = 2 * a->parts;
    double *sum = h + n;
    for (int64_t q = 0; q < n; q++) sum[q] = 0;
    for (int64_t k = o.head * o.size; k < (o.head + 1) * o.size; k++) {
        double g = 0;
        h[0] = 0;
        for (int64_t q = 0; q + 1 < n; q++)
            h[q + 1] = whole_decay(&o, end_row(&o, b, q)) * h[q] + ref_get(&c->in[0], end_row(&o, b, q), k);
        for (int64_t q = n - 1; q >= 0; q--) { /* g: of the state behind piece q */
            int64_t end = end_row(&o, b, q);
            double decay = whole_decay(&o, end);
            ref_put_grad(c, 0, end, k, g);
            sum[q] += g * h[q];
            g *= decay;
            struct where w = where_of(a, b, q);
            if (w.part == a->part) g += ref_get(&c->dout[0], w.index, k);
        }
    }
    for (int64_t q = 0; q < n; q++) ref_put_grad(c, 0, end_row(&o, b, q), o.all + o.head, sum[q]);
}

void carry_bwd_in_ref(const struct kernel_call *c)
{
    const struct carry_attrs *at = at_carry(&c->at);
    ref_each_row(c, at->at.batch * at->heads, 4 * at->at.parts, carry_dx_row);
}

size_t carry_scratch_ref(const struct kernel_call *c, int n_threads)
{
    return ref_scratch(4 * at_carry(&c->at)->at.parts, n_threads);
}
