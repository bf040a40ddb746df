/* SPDX-License-Identifier: Apache-2.0 */
/* A band of rows at a time: as many as a block has, so that each column has one scale in it. The band is brought to
 * fp32 (and rotated), its blocks get their scales as QUANTISE gave them, and then each row is counted against the
 * values that were put out. Bands have counts of their own, added up from the first to the last. Cost: two passes over
 * the operand, some operations per element; about what QUANTISE costs in plain loops. */
#include "kernel/rounded.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "kernel/expert_parts.h"
#include "kernel/quantise.h"

enum { TENSOR_BAND = 16, LANES = 8 };

struct count {
    const struct kernel_call *c;
    const struct quantise_attrs *at;
    struct quantise_rule rule;
    uint32_t signs;
    float limit; /* what is larger saturates */
    int64_t n_bands;
    struct rounded_counts *band;
};
struct band { /* rows [r0, r1) and, by column, the scale; x in fp32 */
    int64_t r0, r1, cols;
    float *x, *q, *up, *back;
};

/* ---- numbers ---- */
/* Bits without the sign: in the order of sizes, infinity and NaN behind all. */
static inline int32_t size_of(float x)
{
    int32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffff;
}

static inline float masked(float x, int32_t mask)
{
    int32_t u;
    memcpy(&u, &x, sizeof u);
    u &= mask;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void read_row(const struct view *v, int64_t r, int64_t n, float *to)
{
    if (v->dtype == DT_F32) {
        memcpy(to, (const float *)v->p + r * v->stride, to_size(n) * sizeof *to);
        return;
    }
    CHECK(v->dtype == DT_BF16, "rounded numbers of %s", dtype_name(v->dtype));
    const bf16 *from = (const bf16 *)v->p + r * v->stride;
    for (int64_t k = 0; k < n; k++) to[k] = bf16_to_f32(from[k]);
}

/* ---- rotation ---- */
static void rotate_along_row(float *x, int64_t n, uint32_t signs)
{
    for (int64_t k = 0; k + ROTATE_GROUP <= n; k += ROTATE_GROUP) rotate_group(x + k, signs);
}

/* Groups go by the rows of the whole operand; a band may have a part of one. */
static void rotate_down(const struct count *w, const struct band *b)
{
    const struct view *v = &w->c->in[0];
    float *rows = xmalloc(to_size(ROTATE_GROUP * b->cols) * sizeof *rows), group[ROTATE_GROUP];
    for (int64_t g = b->r0 / ROTATE_GROUP * ROTATE_GROUP; g < b->r1 && g + ROTATE_GROUP <= v->n[0]; g += ROTATE_GROUP) {
        for (int i = 0; i < ROTATE_GROUP; i++) read_row(v, g + i, b->cols, rows + i * b->cols);
        for (int64_t k = 0; k < b->cols; k++) {
            for (int i = 0; i < ROTATE_GROUP; i++) group[i] = rows[i * b->cols + k];
            rotate_group(group, w->signs);
            for (int i = 0; i < ROTATE_GROUP; i++)
                if (g + i >= b->r0 && g + i < b->r1) b->x[(g + i - b->r0) * b->cols + k] = group[i];
        }
    }
    xfree(rows);
}

static void read_band(const struct count *w, const struct band *b)
{
    for (int64_t r = b->r0; r < b->r1; r++) {
        float *row = b->x + (r - b->r0) * b->cols;
        read_row(&w->c->in[0], r, b->cols, row);
        if (w->at->rotate.along == ALONG_COLS) rotate_along_row(row, b->cols, w->signs);
    }
    if (w->at->rotate.along == ALONG_ROWS) rotate_down(w, b);
}

/* ---- scales ---- */
static float largest(const struct band *b, int64_t k0, int64_t k1)
{
    int32_t most = 0; /* a NaN is behind all */
    float out;
    for (int64_t r = 0; r < b->r1 - b->r0; r++)
        for (int64_t k = k0; k < k1; k++) {
            int32_t size = size_of(b->x[r * b->cols + k]);
            most = size > most ? size : most;
        }
    memcpy(&out, &most, sizeof out);
    return out;
}

static void scale_band(const struct count *w, const struct band *b)
{
    const struct quantise_attrs *at = w->at;
    const float nv = at->scaling == SCALING_NV ? w->rule.tensor.descale : 1;
    for (int64_t k = 0, end; k < b->cols; k = end) {
        end = at->scaling == SCALING_TENSOR ? b->cols : k + at->cols - (at->first_col + k) % at->cols;
        if (end > b->cols) end = b->cols;
        struct block_scale s =
            at->scaling == SCALING_TENSOR ? w->rule.tensor : quantise_block(&w->rule, largest(b, k, end));
        for (int64_t i = k; i < end; i++) {
            b->up[i] = s.up;
            b->back[i] = s.descale * nv;
        }
    }
}

/* ---- counting ---- */
/* In loops over a few numbers that a compiler makes vectors of: integers are added up in any order, squares by lanes.
 */
enum { CHUNK = 256 };
struct lanes {
    double moved[LANES], squares[LANES];
    int32_t elements, saturated, flushed, amax; /* amax as size_of */
};

static inline void add_squares(double sum[LANES], const float x[CHUNK])
{
    for (int k = 0; k < CHUNK; k += LANES)
        for (int i = 0; i < LANES; i++) sum[i] += (double)x[k + i] * (double)x[k + i];
}

/* n numbers, CHUNK at most. */
static void count_chunk(struct lanes *to, int n, const float *restrict x, const float *restrict up,
                        const float *restrict q, const float *restrict back, float limit)
{
    float v[CHUNK] = {0}, moved[CHUNK] = {0};
    const int32_t most = size_of(limit), none = size_of(INFINITY);
    int32_t elements = 0, saturated = 0, flushed = 0, amax = to->amax;
    for (int k = 0; k < n; k++) {
        const int32_t size = size_of(x[k]), counts = -((size < none) & (size_of(up[k]) < none));
        const float became = q[k] * back[k];
        v[k] = masked(x[k], counts);
        moved[k] = masked(became - x[k], counts);
        elements -= counts;
        saturated += counts & (size_of(x[k] * up[k]) > most);
        flushed += counts & (size != 0) & (size_of(became) == 0);
        amax = (size & counts) > amax ? (size & counts) : amax;
    }
    to->elements += elements;
    to->saturated += saturated;
    to->flushed += flushed;
    to->amax = amax;
    add_squares(to->moved, moved);
    add_squares(to->squares, v);
}

static void close_row(struct rounded_counts *out, const struct lanes *n)
{
    struct rounded_counts x = {.elements = n->elements, .saturated = n->saturated, .flushed = n->flushed};
    float amax;
    memcpy(&amax, &n->amax, sizeof amax);
    x.amax = (double)amax;
    for (int i = 0; i < LANES; i++) {
        x.moved += n->moved[i];
        x.squares += n->squares[i];
    }
    rounded_add(out, &x);
}

static void count_band(const struct count *w, const struct band *b, struct rounded_counts *out)
{
    read_band(w, b);
    scale_band(w, b);
    for (int64_t r = b->r0; r < b->r1; r++) {
        struct lanes n = {0};
        read_row(&w->c->out[0], r, b->cols, b->q);
        for (int64_t k = 0; k < b->cols; k += CHUNK)
            count_chunk(&n, (int)(b->cols - k < CHUNK ? b->cols - k : CHUNK), b->x + (r - b->r0) * b->cols + k,
                        b->up + k, b->q + k, b->back + k, w->limit);
        close_row(out, &n);
    }
}

/* Bands begin where blocks do in the whole tensor. */
static int64_t band_rows(const struct quantise_attrs *at)
{
    return at->scaling == SCALING_TENSOR ? TENSOR_BAND : at->rows;
}

static int64_t band_begin(const struct count *w, int64_t i)
{
    int64_t each = band_rows(w->at), into = w->at->scaling == SCALING_TENSOR ? 0 : w->at->first_row % each;
    int64_t at = i * each - into, n = w->c->in[0].n[0];
    return at < 0 ? 0 : at > n ? n : at;
}

static void member(void *arg, int i, int n_members)
{
    const struct count *w = arg;
    struct band b = {.cols = w->c->in[0].n[1]};
    size_t one = to_size(b.cols) * sizeof(float);
    int64_t lo, hi;
    team_split(w->n_bands, i, n_members, &lo, &hi);
    b.x = xmalloc(to_size(band_rows(w->at)) * one + 3 * one + 1);
    b.q = b.x + band_rows(w->at) * b.cols;
    b.up = b.q + b.cols;
    b.back = b.up + b.cols;
    for (int64_t k = lo; k < hi; k++) {
        b.r0 = band_begin(w, k);
        b.r1 = band_begin(w, k + 1);
        count_band(w, &b, &w->band[k]);
    }
    xfree(b.x);
}

static void count_one(const struct kernel_call *c, struct rounded_counts *out)
{
    const struct quantise_attrs *at = at_quantise(&c->at);
    const struct format_info f = format_info(at->format);
    struct count w = {.c = c, .at = at, .rule = quantise_rule(at, c->n_in > 1 ? c->in[1].p : NULL)};
    if (at->rotate.along != ROTATE_NOT) w.signs = rotate_signs(&at->rotate, c->step->seed);
    w.limit = (float)(f.max + ldexp(0.5, ilogb(f.max) - f.fraction));
    int64_t rows = c->in[0].n[0], each = band_rows(at), into = at->scaling == SCALING_TENSOR ? 0 : at->first_row % each;
    w.n_bands = (into + rows + each - 1) / each;
    w.band = xcalloc(to_size(w.n_bands) + 1, sizeof *w.band);
    team_run(kernel_team(c), member, &w);
    for (int64_t k = 0; k < w.n_bands; k++) rounded_add(out, &w.band[k]);
    xfree(w.band);
}

struct by_expert {
    struct rounded_counts *out;
    int64_t apart;
};

static void count_part(const struct kernel_call *one, int64_t expert, void *arg)
{
    const struct by_expert *x = arg;
    count_one(one, &x->out[expert * x->apart]);
}

/* ---- the call ---- */
enum { IN = 3 }; /* inputs of what is counted; its outputs come behind them */

struct kernel_call rounded_call(const struct kernel_call *c, struct rounded_counts *out, int64_t experts, int64_t apart)
{
    const bool parts = c->op == OP_QUANTISE_PARTS;
    struct kernel_call r = *c;
    r.op = parts ? OP_ROUNDED_PARTS : OP_ROUNDED;
    r.n_in = IN + c->n_out;
    r.kernel = NULL;
    r.scratch = NULL;
    r.scratch_bytes = 0;
    for (int i = c->n_in; i < IN; i++) r.in[i] = (struct view){0};
    for (int i = 0; i < KERNEL_MAX_IN - IN; i++) r.in[IN + i] = i < c->n_out ? c->out[i] : (struct view){0};
    memset(r.out, 0, sizeof r.out);
    r.n_out = 1;
    r.out[0] = (struct view){.p = out,
                             .dtype = DT_F64,
                             .nd = 2,
                             .n = {parts ? experts : 1, ROUNDED_NUMBERS},
                             .stride = parts ? apart * ROUNDED_NUMBERS : ROUNDED_NUMBERS};
    return r;
}

/* What is counted. */
static struct kernel_call counted(const struct kernel_call *c)
{
    struct kernel_call q = *c;
    q.op = c->op == OP_ROUNDED_PARTS ? OP_QUANTISE_PARTS : OP_QUANTISE;
    q.n_in = IN;
    while (q.n_in > 1 && !q.in[q.n_in - 1].nd) q.n_in--;
    q.n_out = c->n_in - IN;
    for (int i = 0; i < KERNEL_MAX_OUT; i++) q.out[i] = i < q.n_out ? c->in[IN + i] : (struct view){0};
    for (int i = IN; i < KERNEL_MAX_IN; i++) q.in[i] = (struct view){0};
    return q;
}

void rounded_count(const struct kernel_call *c)
{
    struct kernel_call q = counted(c);
    struct by_expert x = {c->out[0].p, c->out[0].stride / ROUNDED_NUMBERS};
    if (q.op == OP_QUANTISE_PARTS) parts_visit(&q, count_part, &x);
    else count_one(&q, x.out);
}
