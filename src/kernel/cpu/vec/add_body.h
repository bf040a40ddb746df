/* SPDX-License-Identifier: Apache-2.0 */
/* add_body.h: ADD and DROPOUT over vec.h.
 *
 * The mask is a function of a counter (dropout.h), so nothing is stored and backward draws it again.
 * Cost: about 3 instructions per element and a pass over memory.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_ADD_BODY_H
#define TUTTI_KERNEL_CPU_VEC_ADD_BODY_H

#include "kernel/cpu/vec/philox_body.h"
#include "kernel/cpu/vec/vec_rows.h"

/* One row: y = a + times dropout(b), or that alone when a is NULL; times 0 is 1. Any of the three may be the same
 * memory. */
VEC_INLINE void dropout_row_of(void *y, const void *a, const void *b, int64_t n, struct chance_mask *m, uint64_t first,
                               float times, enum dtype t)
{
    for (int64_t begin = 0; begin < n; begin += MASK_CHUNK) {
        int64_t end = begin + MASK_CHUNK < n ? begin + MASK_CHUNK : n;
        const uint32_t *words = m->threshold ? mask_words(m, first + (uint64_t)begin, end - begin) : NULL;
        for (int64_t i = begin; i < end; i += VL) {
            int k = v_count(end - i);
            vf v = v_get(b, i, k, t);
            if (words) v = mask_apply(m, words + (i - begin), v);
            if (times != 0) v *= times;
            if (a) v += v_get(a, i, k, t);
            v_put(y, i, k, t, v);
        }
    }
}
VEC_APART void dropout_row(void *y, const void *a, const void *b, int64_t n, struct chance_mask *m, uint64_t first,
                           float times, enum dtype t)
{
    V_TYPED(t, dropout_row_of, y, a, b, n, m, first, times);
}
/* The counter of row r's first element; the index of rows is the last input, if there. */
VEC_INLINE uint64_t mask_first(const struct kernel_call *c, int64_t r)
{
    const struct view *index = &c->in[c->op == OP_ADD ? 2 : 1];
    uint64_t token = index->p ? (uint64_t)((const int32_t *)index->p)[r] : (uint64_t)r;
    return (c->step->first_token + token) * (uint64_t)view_cols(main_view(c));
}

static void add_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct chance_mask m;
    mask_init(&m, at_dropout(&c->at), c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->out[0], r), row_at(&c->in[0], r), row_at(&c->in[1], r), view_cols(main_view(c)), &m,
                    m.threshold ? mask_first(c, r) : 0, at_dropout(&c->at)->times, t);
}
VEC_BLOCK_KERNEL(add_fwd)

static void dropout_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct chance_mask m;
    mask_init(&m, at_dropout(&c->at), c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->out[0], r), NULL, row_at(&c->in[0], r), view_cols(main_view(c)), &m,
                    m.threshold ? mask_first(c, r) : 0, 0, t);
}
VEC_BLOCK_KERNEL(dropout_fwd)

static void dropout_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct chance_mask m;
    mask_init(&m, at_dropout(&c->at), c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->din[0], r), row_or_null(&c->acc[0], r), row_at(&c->dout[0], r), view_cols(main_view(c)),
                    &m, m.threshold ? mask_first(c, r) : 0, 0, t);
}
VEC_BLOCK_KERNEL(dropout_bwd_in)

/* dst = acc + src, nothing to do where they are one memory and acc is absent. */
VEC_INLINE void add_row(void *dst, const void *acc, const void *src, int64_t n, enum dtype t)
{
    if (dst == src && !acc) return;
    for (int64_t i = 0; i < n; i += VL) {
        int k = v_count(n - i);
        v_put(dst, i, k, t, v_get(src, i, k, t) + v_get_or_zero(acc, i, k, t));
    }
}
/* b's gradient first: a's may overwrite dout. */
VEC_INLINE void add_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct chance_mask m;
    mask_init(&m, at_dropout(&c->at), c->step);
    int64_t n = view_cols(main_view(c));
    for (int64_t r = lo; r < hi; r++) {
        const void *dy = row_at(&c->dout[0], r);
        if (c->din[1].p)
            dropout_row(row_at(&c->din[1], r), row_or_null(&c->acc[1], r), dy, n, &m,
                        m.threshold ? mask_first(c, r) : 0, at_dropout(&c->at)->times, t);
        if (c->din[0].p) add_row(row_at(&c->din[0], r), row_or_null(&c->acc[0], r), dy, n, t);
    }
}
VEC_ROW_KERNEL(add_bwd_in)

#endif
