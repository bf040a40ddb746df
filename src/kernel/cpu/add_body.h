/* add_body.h: ADD and DROPOUT over vec.h.
 *
 * The mask is a function of a counter (dropout.h), so nothing is stored and backward draws it again. Philox runs
 * VQL blocks at a time with each 32-bit word in a 64-bit lane, where one instruction gives both halves of the
 * product; words land in a small buffer in element order, since a row need not begin on a block's edge.
 * Cost: about 3 instructions per element and a pass over memory.
 */
#ifndef TUTTI_KERNEL_CPU_ADD_BODY_H
#define TUTTI_KERNEL_CPU_ADD_BODY_H

#include "kernel/cpu/vec_rows.h"
#include "kernel/dropout.h"

enum { MASK_CHUNK = 256, MASK_ROOM = MASK_CHUNK + 8 * VQL };

/* How a call drops: threshold 0 and scale 1 when it does not. */
struct mask {
    uint64_t seed, stream;
    uint32_t threshold;
    float scale;
    uint32_t words[MASK_ROOM];
};
static void mask_init(struct mask *m, const struct op_attrs *at, const struct step_info *step)
{
    bool on = dropout_active(at, step);
    m->seed = on ? step->seed : 0;
    m->stream = on ? dropout_stream(at->stream, step->step) : 0;
    m->threshold = on ? dropout_threshold(at->dropout) : 0;
    m->scale = on ? dropout_scale(at->dropout) : 1.0f;
}

/* The generator's words of blocks `block` .. block + VQL - 1. */
VEC_INLINE void philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, uint32_t *out)
{
    vi index = vq_count(block), c0 = index, c1 = vq_high(index);
    vi c2 = vq_set(stream & 0xffffffffu), c3 = vq_set(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) { /* bits above 32 in c0 .. c3 are garbage that vq_mul ignores */
        vi a = vq_mul(vq_set(0xD2511F53u), c0), b = vq_mul(vq_set(0xCD9E8D57u), c2);
        c0 = vi_xor(vi_xor(vq_high(b), c1), vq_set(k0));
        c2 = vi_xor(vi_xor(vq_high(a), c3), vq_set(k1));
        c1 = b;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vq_interleave(vi_or(vq_low(c0), vq_to_high(c1)), vi_or(vq_low(c2), vq_to_high(c3)), out);
}

/* Words of elements first .. first + n - 1, n <= MASK_CHUNK. */
VEC_INLINE const uint32_t *mask_words(struct mask *m, uint64_t first, int64_t n)
{
    int64_t skip = (int64_t)(first % 4), need = skip + n;
    for (int64_t at = 0; at < need; at += 4 * VQL)
        philox_blocks(m->seed, m->stream, first / 4 + (uint64_t)at / 4, m->words + at);
    return m->words + skip;
}
/* v times the scale where kept, 0 where dropped. The order of unsigned words is that of signed ones with the sign
 * bit turned over. */
VEC_INLINE vf mask_apply(const struct mask *m, const uint32_t *words, vf v)
{
    vi flip = vi_set(0x80000000u);
    vmask dropped = vi_gt(vi_set(m->threshold ^ 0x80000000u), vi_xor(vi_load(words), flip));
    return vf_pick(dropped, vf_zero(), v * vf_set(m->scale));
}

/* One row: y = a + dropout(b), or dropout(b) when a is NULL. Any of the three may be the same memory. */
VEC_INLINE void dropout_row(void *y, const void *a, const void *b, int64_t n, struct mask *m, uint64_t first,
                            enum dtype t)
{
    for (int64_t begin = 0; begin < n; begin += MASK_CHUNK) {
        int64_t end = begin + MASK_CHUNK < n ? begin + MASK_CHUNK : n;
        const uint32_t *words = m->threshold ? mask_words(m, first + (uint64_t)begin, end - begin) : NULL;
        for (int64_t i = begin; i < end; i += VL) {
            int k = v_count(end - i);
            vf v = v_get(b, i, k, t);
            if (words) v = mask_apply(m, words + (i - begin), v);
            if (a) v += v_get(a, i, k, t);
            v_put(y, i, k, t, v);
        }
    }
}
VEC_INLINE uint64_t mask_first(const struct kernel_call *c, int64_t r)
{
    return (c->step->first_token + (uint64_t)r) * (uint64_t)view_cols(main_view(c));
}

VEC_INLINE void add_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct mask m;
    mask_init(&m, &c->at, c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->out[0], r), row_at(&c->in[0], r), row_at(&c->in[1], r), view_cols(main_view(c)), &m,
                    m.threshold ? mask_first(c, r) : 0, t);
}
VEC_ROW_KERNEL(add_fwd)

VEC_INLINE void dropout_fwd_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct mask m;
    mask_init(&m, &c->at, c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->out[0], r), NULL, row_at(&c->in[0], r), view_cols(main_view(c)), &m,
                    m.threshold ? mask_first(c, r) : 0, t);
}
VEC_ROW_KERNEL(dropout_fwd)

VEC_INLINE void dropout_bwd_in_rows(const struct kernel_call *c, int64_t lo, int64_t hi, enum dtype t)
{
    struct mask m;
    mask_init(&m, &c->at, c->step);
    for (int64_t r = lo; r < hi; r++)
        dropout_row(row_at(&c->din[0], r), row_or_null(&c->acc[0], r), row_at(&c->dout[0], r), view_cols(main_view(c)),
                    &m, m.threshold ? mask_first(c, r) : 0, t);
}
VEC_ROW_KERNEL(dropout_bwd_in)

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
    struct mask m;
    mask_init(&m, &c->at, c->step);
    int64_t n = view_cols(main_view(c));
    for (int64_t r = lo; r < hi; r++) {
        const void *dy = row_at(&c->dout[0], r);
        if (c->din[1].p)
            dropout_row(row_at(&c->din[1], r), row_or_null(&c->acc[1], r), dy, n, &m, m.threshold ? mask_first(c, r) : 0,
                        t);
        if (c->din[0].p) add_row(row_at(&c->din[0], r), row_or_null(&c->acc[0], r), dy, n, t);
    }
}
VEC_ROW_KERNEL(add_bwd_in)

#endif
