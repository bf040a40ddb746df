/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_body.h: AMAX and QUANTISE over vec.h, to the bit what quantise.h and ref/quantise.c say.
 *
 * The matrix is cut into pieces of a few rows by some hundred or thousand columns, at the edges of blocks, and dealt to
 * the team. Blocks of several columns go VL at a time, while their numbers are in L1: each block's largest, which are
 * then lanes of one vector, the scales of all, the codes' values. Blocks of one column are walked twice, with a largest
 * and a scale per column. A piece that is rotated is first brought into scratch as fp32: down the rows sixteen vectors
 * are sixteen rows.
 *
 * A value is made where its code would be (quantise_value), so a number goes from x to q in registers; by chance by
 * code and back (formats_codes_body.h). bf16 goes by pairs: q's halves are put together as x's were taken apart, and
 * nothing is rounded a second time. Sizes are compared as integers, where NaN is above Inf and nothing is lost.
 * Cost: reads x once from memory (a second time from a cache), writes q: some 30 instructions for 32 numbers on
 * AVX-512, which is about what memory takes for them; by chance many times that, the generator's ten rounds among them.
 */
#ifndef TUTTI_KERNEL_CPU_BITS_QUANTISE_BODY_H
#define TUTTI_KERNEL_CPU_BITS_QUANTISE_BODY_H

#include "kernel/cpu/bits/formats_codes_body.h"
#include "kernel/cpu/vec/philox_body.h"
#include "kernel/cpu/bits/quantise_scales_body.h"

enum { QUANTISE_WIDE = 4096, QUANTISE_NARROW = 512, QUANTISE_ROWS = 16, QUANTISE_MOST_COLS = 1024 };

/* How a matrix is cut: pieces of `rows` by `cols`, at multiples of both in the whole tensor. */
struct quantise_cut {
    int64_t first_row, first_col, n_rows, n_cols; /* what there is of the whole tensor */
    int64_t rows, cols;
    int64_t high, wide; /* pieces */
};

static int64_t quantise_multiple(int64_t of, int64_t also)
{
    int64_t n = of;
    while (n % also) n += of;
    return n;
}

static struct quantise_cut quantise_cut_of(const struct view *x, const struct quantise_attrs *at)
{
    struct quantise_cut c = {at->first_row, at->first_col, x->n[0], x->n[1], QUANTISE_ROWS, QUANTISE_WIDE, 0, 0};
    bool blocks = at->scaling != SCALING_TENSOR;
    if (blocks && at->rows > 1) {
        c.rows = at->rows;
        c.cols = QUANTISE_NARROW;
    }
    int64_t step = quantise_multiple(blocks ? at->cols : 1, at->rotate.along == ALONG_COLS ? ROTATE_GROUP : 1);
    c.cols = (c.cols + step - 1) / step * step;
    c.high = (c.first_row % c.rows + c.n_rows + c.rows - 1) / c.rows;
    c.wide = (c.first_col % c.cols + c.n_cols + c.cols - 1) / c.cols;
    return c;
}

struct quantise_piece {
    int64_t r0, r1, c0, c1;
};
static struct quantise_piece quantise_piece_at(const struct quantise_cut *c, int64_t i)
{
    int64_t r = i / c->wide * c->rows - c->first_row % c->rows, k = i % c->wide * c->cols - c->first_col % c->cols;
    struct quantise_piece p = {r > 0 ? r : 0, r + c->rows, k > 0 ? k : 0, k + c->cols};
    if (p.r1 > c->n_rows) p.r1 = c->n_rows;
    if (p.c1 > c->n_cols) p.c1 = c->n_cols;
    return p;
}

/* ---- what is read: x itself, or a rotated copy; row r, column k of the matrix at p + r * stride + k ---- */
struct quantise_from {
    const char *p;
    int64_t stride;
    enum dtype t;
};
VEC_INLINE const void *quantise_row(const struct quantise_from *f, int64_t r, enum dtype t)
{
    return f->p + r * f->stride * (int64_t)dtype_bytes(t);
}

/* Sixteen rows of one vector of columns. */
VEC_INLINE void quantise_rotate_rows(float *to, int64_t ld, const struct view *x, int64_t r, int64_t k, int n,
                                     uint32_t signs, enum dtype t)
{
    vf v[ROTATE_GROUP];
    for (int i = 0; i < ROTATE_GROUP; i++) {
        v[i] = v_get(row_at(x, r + i), k, n, t);
        v[i] = vi_float_bits(vi_xor(vf_bits(v[i]), vi_set((signs >> i & 1) << 31)));
    }
    for (int d = 1; d < ROTATE_GROUP; d *= 2)
        for (int i = 0; i < ROTATE_GROUP; i++)
            if (!(i & d)) {
                vf a = v[i], b = v[i + d];
                v[i] = a + b;
                v[i + d] = a - b;
            }
    for (int i = 0; i < ROTATE_GROUP; i++) v_put(to + i * ld, 0, n, DT_F32, v[i] * vf_set(0.25f));
}

/* The piece as fp32, rotated where a whole group is there. */
VEC_INLINE struct quantise_from quantise_rotated(float *to, const struct view *x, const struct rotate_attrs *at,
                                                 uint32_t signs, const struct quantise_piece *p, enum dtype t)
{
    const int64_t ld = p->c1 - p->c0;
    for (int64_t r = p->r0; r < p->r1; r++) {
        float *row = to + (r - p->r0) * ld;
        bool down = at->along == ALONG_ROWS && r % ROTATE_GROUP == 0 && r + ROTATE_GROUP <= x->n[0];
        for (int64_t k = p->c0; k < p->c1; k += VL) {
            int n = v_count(p->c1 - k);
            if (down) quantise_rotate_rows(row + (k - p->c0), ld, x, r, k, n, signs, t);
            else v_put(row, k - p->c0, n, DT_F32, v_get(row_at(x, r), k, n, t));
        }
        if (down) r += ROTATE_GROUP - 1;
        for (int64_t k = p->c0; at->along == ALONG_COLS && k + ROTATE_GROUP <= p->c1; k += ROTATE_GROUP)
            rotate_group(row + (k - p->c0), signs);
    }
    return (struct quantise_from){(const char *)(to - p->r0 * ld - p->c0), ld, DT_F32};
}

/* One member's work. */
struct quantise_work {
    const struct kernel_call *c;
    struct quantise_rule rule;
    struct quantise_lanes lanes;
    struct format_info format;
    uint32_t signs;
    bool plain; /* q is a value of the format, perhaps times E4M3: bf16 by cutting off */
    float *buffer;
    struct chance_mask random;
    int64_t words_row, words_lo, words_hi; /* which the generator made last */
    const uint32_t *words;
};

/* Words of columns from k on in row r, MASK_CHUNK of them or to the end at c1; asked for in order. */
VEC_INLINE const uint32_t *quantise_words(struct quantise_work *w, int64_t r, int64_t k, int64_t hi, int64_t c1)
{
    const struct kernel_call *c = w->c;
    if (w->words_row != r || k < w->words_lo || hi > w->words_hi) {
        int64_t of = c->n_in > 2 && c->in[2].p ? ((const int32_t *)c->in[2].p)[r] : r;
        uint64_t first = quantise_index(w->rule.at, c->step->first_token, c->in[0].n[1], of) + (uint64_t)k;
        w->words_row = r;
        w->words_lo = k;
        w->words_hi = k + MASK_CHUNK < c1 ? k + MASK_CHUNK : c1;
        w->words = mask_words(&w->random, first, w->words_hi - k);
    }
    return w->words + (k - w->words_lo);
}

VEC_INLINE vi quantise_by_chance(vi size, vi word, const struct format_info f)
{
    vi code = formats_chance(size, word, &f);
    return vf_bits(formats_value(vi_min(code, vi_set(f.max_code)), &f));
}

/* n numbers x to q. words: NULL, or of chance. element: look at each for what is not finite. */
VEC_INLINE void quantise_some(const struct quantise_work *w, void *q, int64_t at, vf x, int n, vf up, vf down,
                              const uint32_t *words, bool element, enum dtype t)
{
    vi u = vf_bits(x), sign = vi_and(u, vi_set(0x80000000u)), size = quantise_size(x * up), v;
    if (!words) v = quantise_value(size, &w->lanes);
    else if (w->rule.at->format == FORMAT_E2M1)
        v = quantise_by_chance(size, vi_load(words), format_info(FORMAT_E2M1)); /* as constants */
    else v = quantise_by_chance(size, vi_load(words), w->format);
    vf y = vi_float_bits(vi_or(v, sign)) * down;
    if (element) y = vf_pick(vi_gt(vi_xor(u, sign), vi_set(0x7f7fffff)), vi_float_bits(vi_set(0x7fc00000)), y);
    if (t == DT_F32) {
        v_put(q, at, n, DT_F32, y);
        return;
    }
    vi b = w->plain ? vi_shr(vf_bits(y), 16) : vf_to_bf16(y);
    if (n == VL) vi_store_u16((uint16_t *)q + at, b);
    else vi_store_u16_n((uint16_t *)q + at, b, n);
}

/* A pair of bf16; up, down: of the even ones and of the odd ones. Every q is bf16 without rounding: by powers of two it
 * is a bf16 brought to a coarser grid, else a value of the format, perhaps times E4M3. The sign goes in before the
 * product, so that a NaN is the scale's. */
VEC_INLINE void quantise_pair(uint16_t *q, const uint16_t *x, const vf up[2], const vf down[2],
                              const struct quantise_lanes *f)
{
    const vi u = vi_load(x), sign = vi_set(0x80000000u);
    vf a = vi_float_bits(quantise_even(u)), b = vi_float_bits(quantise_odd(u));
    vi va = quantise_value(quantise_size(a * up[0]), f), vb = quantise_value(quantise_size(b * up[1]), f);
    a = vi_float_bits(vi_or(va, vi_and(vf_bits(a), sign))) * down[0];
    b = vi_float_bits(vi_or(vb, vi_and(vf_bits(b), sign))) * down[1];
    vi_store(q, vi_or(vi_shr(vf_bits(a), 16), quantise_odd(vf_bits(b))));
}

/* Columns [lo, hi) of a row, with a scale per column from lo on. from: of what is read, to: of q. */
VEC_INLINE void quantise_cols(const struct quantise_work *w, int64_t r, const void *row, int64_t lo, int64_t hi,
                              const float *up, const float *down, enum dtype from, enum dtype to)
{
    void *q = row_at(&w->c->out[0], r);
    for (int64_t k = lo; k < hi; k += VL) {
        const int n = v_count(hi - k);
        vf u = v_get(up, k - lo, n, DT_F32), d = v_get(down, k - lo, n, DT_F32);
        quantise_some(w, q, k, v_get(row, k, n, from), n, u, d, NULL, false, to);
    }
}
/* The same by chance, where the generator sets the pace: types are no constants, and all have one loop. */
VEC_APART void quantise_cols_chance(struct quantise_work *w, int64_t r, const void *row, int64_t lo, int64_t hi,
                                    const float *up, const float *down, enum dtype from, enum dtype to)
{
    void *q = row_at(&w->c->out[0], r);
    for (int64_t begin = lo; begin < hi; begin += MASK_CHUNK) {
        const int64_t end = begin + MASK_CHUNK < hi ? begin + MASK_CHUNK : hi;
        const uint32_t *words = quantise_words(w, r, begin, end, hi);
        for (int64_t k = begin; k < end; k += VL) {
            const int n = v_count(end - k);
            vf u = v_get(up, k - lo, n, DT_F32), d = v_get(down, k - lo, n, DT_F32);
            quantise_some(w, q, k, v_get(row, k, n, from), n, u, d, words + (k - begin), false, to);
        }
    }
}
VEC_APART void quantise_span_chance(struct quantise_work *w, int64_t r, const void *x, void *q, int64_t lo, int64_t hi,
                                    int64_t c1, float up, float down, bool element, enum dtype from, enum dtype to)
{
    const vf u = vf_set(up), d = vf_set(down);
    for (int64_t k = lo; k < hi; k += VL) {
        const int n = v_count(hi - k);
        const uint32_t *words = quantise_words(w, r, k, k + n, c1);
        quantise_some(w, q, k, v_get(x, k, n, from), n, u, d, words, element, to);
    }
}

/* Columns [lo, hi) of row r, at x and q, with one scale; c1: the piece's end. */
VEC_INLINE void quantise_span(struct quantise_work *w, int64_t r, const void *x, void *q, int64_t lo, int64_t hi,
                              int64_t c1, float up, float down, bool element, enum dtype from, enum dtype to)
{
    const vf u[2] = {vf_set(up), vf_set(up)}, d[2] = {vf_set(down), vf_set(down)};
    const struct quantise_lanes lanes = w->lanes;
    int64_t k = lo;
    if (w->rule.at->chance) {
        quantise_span_chance(w, r, x, q, lo, hi, c1, up, down, element, from, to);
        return;
    }
    if (from == DT_BF16 && to == DT_BF16)
        for (; k + PAIR <= hi; k += PAIR) quantise_pair((uint16_t *)q + k, (const uint16_t *)x + k, u, d, &lanes);
    /* NaN in one of many numbers: that row once more */
    if (element && k > lo && vm_any(vi_gt(quantise_largest(vi_set(0), x, lo, k, from), vi_set(0x7f7fffff)))) k = lo;
    for (; k + VL <= hi; k += VL) quantise_some(w, q, k, v_get(x, k, VL, from), VL, u[0], d[0], NULL, element, to);
    if (k < hi) quantise_some(w, q, k, v_get(x, k, (int)(hi - k), from), (int)(hi - k), u[0], d[0], NULL, element, to);
}

static int64_t quantise_block_end(int64_t i, int64_t first, int64_t n, int each)
{
    int64_t end = i + each - (first + i) % each;
    return end < n ? end : n;
}

static void quantise_descale(const struct quantise_work *w, int64_t r, int64_t k, float descale)
{
    const struct quantise_attrs *at = w->rule.at;
    if (at->scaling != SCALING_BLOCK || at->power_of_two) return;
    float *row = row_at(&w->c->out[1], (at->first_row % at->rows + r) / at->rows);
    row[(at->first_col % at->cols + k) / at->cols] = descale;
}

/* The tensor's scale. */
VEC_INLINE void quantise_whole(struct quantise_work *w, const struct quantise_piece *p,
                               const struct quantise_from *from, enum dtype f, enum dtype t)
{
    const struct block_scale s = w->rule.tensor;
    for (int64_t r = p->r0; r < p->r1; r++)
        quantise_span(w, r, quantise_row(from, r, f), row_at(&w->c->out[0], r), p->c0, p->c1, p->c1, s.up, s.down, true,
                      f, t);
}

/* Up to VL blocks of `high` rows each: their first rows, and columns. */
struct quantise_few {
    int n;
    int64_t high, c1, row[VL], lo[VL], hi[VL];
    const char *x[VL];
    char *q[VL];
};
/* each: the columns of all, or 0. */
VEC_INLINE void quantise_few_run(struct quantise_work *w, const struct quantise_few *b,
                                 const struct quantise_from *from, const int each, enum dtype f, enum dtype t)
{
    const int64_t x_step = from->stride * (int64_t)dtype_bytes(f),
                  q_step = w->c->out[0].stride * (int64_t)dtype_bytes(t);
    uint32_t most[VL];
    float up[VL], down[VL], descale[VL];
    vi m[VL];
    for (int i = 0; i < VL; i++) m[i] = vi_set(0);
    for (int64_t r = 0; r < b->high; r++)
        for (int i = 0; i < b->n; i++)
            m[i] = quantise_largest(m[i], b->x[i] + r * x_step, b->lo[i], each ? b->lo[i] + each : b->hi[i], f);
    vi_store(most, quantise_across(m));
    quantise_scales(&w->rule, most, VL, up, down, descale);
    for (int i = 0; i < b->n; i++) quantise_descale(w, b->row[i], b->lo[i], descale[i]);
    for (int64_t r = 0; r < b->high; r++)
        for (int i = 0; i < b->n; i++)
            quantise_span(w, b->row[i] + r, b->x[i] + r * x_step, b->q[i] + r * q_step, b->lo[i],
                          each ? b->lo[i] + each : b->hi[i], b->c1, up[i], down[i], false, f, t);
}

/* Short blocks, as constants: what a block costs beside its numbers counts there. */
VEC_INLINE void quantise_few_each(struct quantise_work *w, const struct quantise_few *b,
                                  const struct quantise_from *from, enum dtype f, enum dtype t)
{
    const int each = w->rule.at->cols;
    bool whole = f == DT_BF16;
    for (int i = 0; i < b->n; i++) whole &= b->hi[i] - b->lo[i] == each;
    if (whole && each == 16) quantise_few_run(w, b, from, 16, f, t);
    else if (whole && each == 32) quantise_few_run(w, b, from, 32, f, t);
    else quantise_few_run(w, b, from, 0, f, t);
}

/* Blocks of several columns: of one row, or a row of them as high as the piece. */
VEC_INLINE void quantise_blocks(struct quantise_work *w, const struct quantise_piece *p,
                                const struct quantise_from *from, enum dtype f, enum dtype t)
{
    const struct quantise_attrs *at = w->rule.at;
    struct quantise_few b = {.high = at->rows > 1 ? p->r1 - p->r0 : 1, .c1 = p->c1};
    const int64_t begins = quantise_block_end(p->c0, at->first_col, p->c1, at->cols);
    for (int64_t r = p->r0; r < p->r1; r += b.high)
        for (int64_t k = p->c0, end = begins; k < p->c1; k = end, end = k + at->cols < p->c1 ? k + at->cols : p->c1) {
            b.row[b.n] = r;
            b.x[b.n] = quantise_row(from, r, f);
            b.q[b.n] = row_at(&w->c->out[0], r);
            b.lo[b.n] = k;
            b.hi[b.n++] = end;
            if (b.n < VL) continue;
            quantise_few_each(w, &b, from, f, t);
            b.n = 0;
        }
    if (b.n) quantise_few_each(w, &b, from, f, t);
}

/* ---- blocks of one column, at most QUANTISE_MOST_COLS at a time ---- */
/* The first n_pairs columns of a piece lie by pairs: the even ones of PAIR before the odd ones. */
struct quantise_columns {
    int64_t n, n_pairs;
    uint32_t most[QUANTISE_MOST_COLS];
    float up[QUANTISE_MOST_COLS], down[QUANTISE_MOST_COLS], descale[QUANTISE_MOST_COLS];
};
static int64_t quantise_column_at(const struct quantise_columns *m, int64_t i)
{
    int64_t in = i % PAIR;
    return i < m->n_pairs ? i - in + in % VL * 2 + in / VL : i;
}

VEC_INLINE void quantise_columns_largest(struct quantise_columns *m, const struct quantise_piece *p,
                                         const struct quantise_from *from, enum dtype f)
{
    uint16_t pairs[QUANTISE_MOST_COLS] = {0};
    const vi sizes = vi_set(0x7fff7fff);
    for (int64_t k = m->n_pairs; k < m->n; k += VL) vi_store(m->most + k, vi_set(0));
    for (int64_t r = p->r0; r < p->r1; r++) {
        const void *row = quantise_row(from, r, f);
        for (int64_t k = 0; k < m->n_pairs; k += PAIR)
            vi_store(pairs + k,
                     vi_max_u16(vi_load(pairs + k), vi_and(vi_load((const uint16_t *)row + p->c0 + k), sizes)));
        for (int64_t k = m->n_pairs; k < m->n; k += VL) /* lanes beyond the end read as 0; there is room for them */
            vi_store(m->most + k,
                     vi_max(vi_load(m->most + k), quantise_size(v_get(row, p->c0 + k, v_count(m->n - k), f))));
    }
    for (int64_t k = 0; k < m->n_pairs; k += PAIR) {
        vi_store(m->most + k, quantise_even(vi_load(pairs + k)));
        vi_store(m->most + k + VL, quantise_odd(vi_load(pairs + k)));
    }
}

VEC_INLINE void quantise_down(struct quantise_work *w, const struct quantise_piece *p, const struct quantise_from *from,
                              enum dtype f, enum dtype t)
{
    const struct quantise_attrs *at = w->rule.at;
    const bool descales = at->scaling == SCALING_BLOCK && !at->power_of_two;
    struct quantise_columns m;
    m.n = p->c1 - p->c0;
    m.n_pairs = f == DT_BF16 && t == DT_BF16 && !at->chance ? m.n / PAIR * PAIR : 0;
    quantise_columns_largest(&m, p, from, f);
    quantise_scales(&w->rule, m.most, m.n, m.up, m.down, m.descale);
    for (int64_t i = 0; descales && i < m.n; i++)
        quantise_descale(w, p->r0, p->c0 + quantise_column_at(&m, i), m.descale[i]);
    const struct quantise_lanes lanes = w->lanes;
    for (int64_t r = p->r0; r < p->r1; r++) {
        const void *row = quantise_row(from, r, f);
        const uint16_t *x = (const uint16_t *)row + p->c0;
        uint16_t *q = (uint16_t *)row_at(&w->c->out[0], r) + p->c0;
        for (int64_t k = 0; k < m.n_pairs; k += PAIR) {
            const vf up[2] = {vf_load(m.up + k), vf_load(m.up + k + VL)},
                     down[2] = {vf_load(m.down + k), vf_load(m.down + k + VL)};
            quantise_pair(q + k, x + k, up, down, &lanes);
        }
        if (at->chance) quantise_cols_chance(w, r, row, p->c0, p->c1, m.up, m.down, f, t);
        else quantise_cols(w, r, row, p->c0 + m.n_pairs, p->c1, m.up + m.n_pairs, m.down + m.n_pairs, f, t);
    }
}

VEC_INLINE void quantise_from_run(struct quantise_work *w, const struct quantise_piece *p,
                                  const struct quantise_from *from, enum dtype f, enum dtype t)
{
    const struct quantise_attrs *at = w->rule.at;
    w->words_row = -1;
    if (at->scaling == SCALING_TENSOR) quantise_whole(w, p, from, f, t);
    else if (at->rows > 1 && at->cols == 1) quantise_down(w, p, from, f, t);
    else quantise_blocks(w, p, from, f, t);
}

/* A function for each pair of what is read and what the matrix is: each is compiled once, and apart. */
#define QUANTISE_FROM(name, f, t)                                                                                      \
    static __attribute__((noinline)) void name(struct quantise_work *w, const struct quantise_piece *p,                \
                                               const struct quantise_from *from)                                       \
    {                                                                                                                  \
        quantise_from_run(w, p, from, f, t);                                                                           \
    }
QUANTISE_FROM(quantise_bf16, DT_BF16, DT_BF16)
QUANTISE_FROM(quantise_f32, DT_F32, DT_F32)
QUANTISE_FROM(quantise_rotated_bf16, DT_F32, DT_BF16)

static void quantise_piece_run(struct quantise_work *w, const struct quantise_piece *p)
{
    const struct view *x = &w->c->in[0];
    const struct quantise_attrs *at = w->rule.at;
    const bool narrow = x->dtype == DT_BF16;
    struct quantise_from from = {x->p, x->stride, x->dtype};
    if (at->rotate.along == ROTATE_NOT) {
        (narrow ? quantise_bf16 : quantise_f32)(w, p, &from);
        return;
    }
    from = narrow ? quantise_rotated(w->buffer, x, &at->rotate, w->signs, p, DT_BF16)
                  : quantise_rotated(w->buffer, x, &at->rotate, w->signs, p, DT_F32);
    (narrow ? quantise_rotated_bf16 : quantise_f32)(w, p, &from);
}

static size_t quantise_buffer(const struct quantise_cut *c) { return (size_t)(c->rows * c->cols) * sizeof(float); }

static void quantise_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    const struct quantise_attrs *at = at_quantise(&c->at);
    const struct quantise_cut cut = quantise_cut_of(&c->in[0], at);
    struct quantise_work w = {.c = c, .rule = quantise_rule(at, c->n_in > 1 ? c->in[1].p : NULL)};
    w.lanes = quantise_lanes(&w.rule.to);
    w.format = format_info(at->format);
    w.plain = at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV ||
              (at->scaling == SCALING_BLOCK && !at->power_of_two);
    if (at->rotate.along != ROTATE_NOT) {
        w.signs = rotate_signs(&at->rotate, c->step->seed);
        w.buffer = (float *)(void *)((char *)c->scratch + (size_t)member * quantise_buffer(&cut));
    }
    if (at->chance) {
        w.random.seed = c->step->seed;
        w.random.stream = rng_stream_at(at->stream, c->step->step);
    }
    if (member == 0 && (at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV))
        *(float *)c->out[1].p = w.rule.tensor.descale;
    int64_t lo, hi;
    team_split(cut.high * cut.wide, member, n_members, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const struct quantise_piece p = quantise_piece_at(&cut, i);
        quantise_piece_run(&w, &p);
    }
}

static void quantise_run(const struct kernel_call *c) { team_run_call(quantise_member, c); }

/* Down the rows a piece must hold whole groups. */
static bool quantise_accepts(const struct kernel_call *c)
{
    const struct quantise_attrs *at = at_quantise(&c->at);
    const struct quantise_cut cut = quantise_cut_of(&c->in[0], at);
    return cut.cols <= (at->scaling != SCALING_TENSOR && at->rows > 1 ? QUANTISE_MOST_COLS - VL : 4 * QUANTISE_WIDE) &&
           (at->rotate.along == ROTATE_NOT || (cut.rows % ROTATE_GROUP == 0 && cut.rows <= 256));
}

/* ---- AMAX ---- */
static struct quantise_attrs amax_as(const struct kernel_call *c)
{
    return (struct quantise_attrs){.scaling = SCALING_TENSOR, .rotate = at_amax(&c->at)->rotate};
}

VEC_INLINE void amax_piece(const struct kernel_call *c, const struct quantise_attrs *at, const struct quantise_piece *p,
                           float *buffer, uint32_t signs, vi *most, enum dtype t)
{
    struct quantise_from from = {c->in[0].p, c->in[0].stride, t};
    if (at->rotate.along == ROTATE_NOT) {
        for (int64_t r = p->r0; r < p->r1; r++)
            *most = quantise_largest(*most, quantise_row(&from, r, t), p->c0, p->c1, t);
        return;
    }
    from = quantise_rotated(buffer, &c->in[0], &at->rotate, signs, p, t);
    for (int64_t r = p->r0; r < p->r1; r++)
        *most = quantise_largest(*most, quantise_row(&from, r, DT_F32), p->c0, p->c1, DT_F32);
}

/* Members leave theirs at the beginning of scratch, 64 bytes apart. */
enum { AMAX_APART = 64 };

static void amax_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    const struct quantise_attrs at = amax_as(c);
    const struct quantise_cut cut = quantise_cut_of(&c->in[0], &at);
    uint32_t signs = at.rotate.along == ROTATE_NOT ? 0 : rotate_signs(&at.rotate, c->step->seed);
    float *buffer =
        (float *)(void *)((char *)c->scratch + (size_t)n_members * AMAX_APART + (size_t)member * quantise_buffer(&cut));
    int64_t lo, hi;
    vi most = vi_set(0);
    team_split(cut.high * cut.wide, member, n_members, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const struct quantise_piece p = quantise_piece_at(&cut, i);
        if (c->in[0].dtype == DT_BF16) amax_piece(c, &at, &p, buffer, signs, &most, DT_BF16);
        else amax_piece(c, &at, &p, buffer, signs, &most, DT_F32);
    }
    *(float *)(void *)((char *)c->scratch + (size_t)member * AMAX_APART) = quantise_hmax(most);
}

static void amax_run(const struct kernel_call *c)
{
    team_run_call(amax_member, c);
    float *out = c->out[0].p, most = at_amax(&c->at)->more ? *out : 0;
    for (int i = 0; i < team_size(kernel_team(c)); i++)
        most = amax_of(most, *(const float *)(const void *)((const char *)c->scratch + (size_t)i * AMAX_APART));
    *out = most;
}

static bool amax_accepts(const struct kernel_call *c) { return c->in[0].dtype == DT_F32 || c->in[0].dtype == DT_BF16; }

static size_t quantise_scratch(const struct kernel_call *c, int n_threads)
{
    const bool amax = c->op == OP_AMAX;
    const struct quantise_attrs at = amax ? amax_as(c) : *at_quantise(&c->at);
    const struct quantise_cut cut = quantise_cut_of(&c->in[0], &at);
    return (size_t)n_threads * ((amax ? AMAX_APART : 0) + (at.rotate.along == ROTATE_NOT ? 0 : quantise_buffer(&cut)));
}

#define QUANTISE_TABLE(isa)                                                                                            \
    const struct kernel_family kernel_quantise_##isa = {                                                               \
        .name = #isa,                                                                                                  \
        .slot =                                                                                                        \
            {                                                                                                          \
                [OP_AMAX] = {[KERNEL_FWD] = {amax_run, quantise_scratch, amax_accepts, #isa, NULL}},                   \
                [OP_QUANTISE] = {[KERNEL_FWD] = {quantise_run, quantise_scratch, quantise_accepts, #isa, NULL}},       \
            },                                                                                                         \
    }

#endif
