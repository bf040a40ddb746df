/* SPDX-License-Identifier: Apache-2.0 */
/* philox_body.h: dropout's mask over vec.h.
 *
 * Philox runs VQL blocks at a time with each 32-bit word in a 64-bit lane, where one instruction gives both halves of
 * a product; words land in a small buffer in element order, since a row need not begin on a block's edge.
 * Cost: about 3 instructions per element.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_PHILOX_BODY_H
#define TUTTI_KERNEL_CPU_VEC_PHILOX_BODY_H

#include "kernel/cpu/vec/vec.h"
#include "kernel/dropout.h"

enum { MASK_CHUNK = 256, MASK_ROOM = MASK_CHUNK + 8 * VQL };

/* How a call drops: threshold 0 and scale 1 when it does not. */
struct chance_mask {
    uint64_t seed, stream;
    uint32_t threshold;
    float scale;
    uint32_t words[MASK_ROOM];
};
VEC_INLINE void mask_init(struct chance_mask *m, const struct dropout_attrs *at, const struct step_info *step)
{
    bool on = dropout_active(at, step);
    m->seed = on ? step->seed : 0;
    m->stream = on ? rng_stream_at(at->stream, step->step) : 0;
    m->threshold = on ? dropout_threshold(at->p) : 0;
    m->scale = on ? dropout_scale(at->p) : 1.0f;
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
VEC_INLINE const uint32_t *mask_words(struct chance_mask *m, uint64_t first, int64_t n)
{
    int64_t skip = (int64_t)(first % 4), need = skip + n;
    for (int64_t at = 0; at < need; at += 4 * VQL)
        philox_blocks(m->seed, m->stream, first / 4 + (uint64_t)at / 4, m->words + at);
    return m->words + skip;
}
/* v times the scale where kept, 0 where dropped. The order of unsigned words is that of signed ones with the sign
 * bit turned over. */
VEC_INLINE vf mask_apply(const struct chance_mask *m, const uint32_t *words, vf v)
{
    vi flip = vi_set(0x80000000u);
    vmask dropped = vi_gt(vi_set(m->threshold ^ 0x80000000u), vi_xor(vi_load(words), flip));
    return vf_pick(dropped, vf_zero(), v * vf_set(m->scale));
}

#endif
