/* SPDX-License-Identifier: Apache-2.0 */
/* formats_body.h: conversions of number formats over vec.h, included by the formats_<isa>.c files.
 *
 * One body for all formats; each gets a loop of its own around formats_codes_body.h. Cost: 12 to 25 instructions per
 * vector, for 5 bytes per element to or from 8 bits: bound by memory. Rejected: hardware conversions (AVX10.2 has some
 * for 8 bits; fp16's do not saturate). */
#ifndef TUTTI_KERNEL_CPU_BITS_FORMATS_BODY_H
#define TUTTI_KERNEL_CPU_BITS_FORMATS_BODY_H

#include "base/err.h"
#include "base/rng.h"
#include "kernel/cpu/bits/formats_codes_body.h"
#include "kernel/cpu/vec/philox_body.h"
#include "kernel/formats.h"

struct formats_call {
    void *to;
    const void *from;
    enum format f;
    enum dtype t; /* the other side's */
    bool saturate;
    const struct format_random *random;
    int64_t n;
};

/* Members get whole cache lines of the narrowest type. */
enum { FORMATS_GRAIN = 64 };
static void formats_split(int64_t n, int member, int n_members, int64_t *lo, int64_t *hi)
{
    team_split((n + FORMATS_GRAIN - 1) / FORMATS_GRAIN, member, n_members, lo, hi);
    *lo = *lo * FORMATS_GRAIN < n ? *lo * FORMATS_GRAIN : n;
    *hi = *hi * FORMATS_GRAIN < n ? *hi * FORMATS_GRAIN : n;
}

VEC_INLINE void formats_encode_at(void *to, int64_t at, const void *x, int64_t i, int n, enum dtype t,
                                  const struct format_info *f, vi over)
{
    vi u = vf_bits(v_get(x, i, n, t)), size = vi_and(u, vi_set(0x7fffffff));
    formats_put(to, at, formats_finish(u, size, formats_nearest(size, f), f, over), f);
}
VEC_INLINE void formats_encode_range(const struct formats_call *c, int64_t lo, int64_t hi, enum dtype t,
                                     const struct format_info f)
{
    vi over = vi_set(c->saturate ? f.max_code : f.over_code);
    int64_t i = lo;
    for (; i + VL <= hi; i += VL) formats_encode_at(c->to, i, c->from, i, VL, t, &f, over);
    if (i == hi) return;
    uint32_t last[VL];
    formats_encode_at(last, 0, c->from, i, (int)(hi - i), t, &f, over);
    memcpy((char *)c->to + i * f.bytes, last, (size_t)((hi - i) * f.bytes));
}

/* By chance: words come by MASK_CHUNK, in the order of elements. */
VEC_INLINE void formats_chance_range(const struct formats_call *c, int64_t lo, int64_t hi, const struct format_info f)
{
    vi over = vi_set(c->saturate ? f.max_code : f.over_code);
    struct chance_mask m = {.seed = c->random->seed, .stream = c->random->stream};
    for (int64_t begin = lo; begin < hi; begin += MASK_CHUNK) {
        int64_t end = begin + MASK_CHUNK < hi ? begin + MASK_CHUNK : hi;
        const uint32_t *words = mask_words(&m, c->random->first + (uint64_t)begin, end - begin);
        for (int64_t i = begin; i < end; i += VL) {
            int n = v_count(end - i);
            uint32_t last[VL];
            vi u = vf_bits(v_get(c->from, i, n, DT_F32)), size = vi_and(u, vi_set(0x7fffffff));
            vi code = formats_chance(size, vi_load(words + (i - begin)), &f);
            formats_put(n == VL ? c->to : last, n == VL ? i : 0, formats_finish(u, size, code, &f, over), &f);
            if (n < VL) memcpy((char *)c->to + i * f.bytes, last, (size_t)(n * f.bytes));
        }
    }
}

VEC_INLINE void formats_decode_range(const struct formats_call *c, int64_t lo, int64_t hi, enum dtype t,
                                     const struct format_info f)
{
    int64_t i = lo;
    for (; i + VL <= hi; i += VL) v_put(c->to, i, VL, t, formats_value(formats_get(c->from, i, &f), &f));
    if (i == hi) return;
    uint32_t last[VL] = {0};
    memcpy(last, (const char *)c->from + i * f.bytes, (size_t)((hi - i) * f.bytes));
    v_put(c->to, i, (int)(hi - i), t, formats_value(formats_get(last, 0, &f), &f));
}

static void formats_encode_member(void *arg, int member, int n_members)
{
    const struct formats_call *c = arg;
    int64_t lo, hi;
    formats_split(c->n, member, n_members, &lo, &hi);
    switch (c->f) {
#define FORMAT(id, ...)                                                                                                \
    case FORMAT_##id:                                                                                                  \
        if (c->random) formats_chance_range(c, lo, hi, format_info(FORMAT_##id));                                      \
        else if (c->t == DT_F32) formats_encode_range(c, lo, hi, DT_F32, format_info(FORMAT_##id));                    \
        else formats_encode_range(c, lo, hi, DT_BF16, format_info(FORMAT_##id));                                       \
        break;
#include "layout/formats.def"
    case FORMAT_N: break;
    }
}
static void formats_decode_member(void *arg, int member, int n_members)
{
    const struct formats_call *c = arg;
    int64_t lo, hi;
    formats_split(c->n, member, n_members, &lo, &hi);
    switch (c->f) {
#define FORMAT(id, ...)                                                                                                \
    case FORMAT_##id:                                                                                                  \
        if (c->t == DT_F32) formats_decode_range(c, lo, hi, DT_F32, format_info(FORMAT_##id));                         \
        else formats_decode_range(c, lo, hi, DT_BF16, format_info(FORMAT_##id));                                       \
        break;
#include "layout/formats.def"
    case FORMAT_N: break;
    }
}

static void formats_encode(struct team *team, void *codes, enum format f, const void *x, enum dtype from, int64_t n,
                           bool saturate, const struct format_random *random)
{
    CHECK((unsigned)f < FORMAT_N && (from == DT_F32 || (from == DT_BF16 && !random)), "%s to format %d",
          dtype_name(from), (int)f);
    struct formats_call c = {codes, x, f, from, saturate, random, n};
    team_run(team, formats_encode_member, &c);
}
static void formats_decode(struct team *team, void *x, enum dtype to, const void *codes, enum format f, int64_t n)
{
    CHECK((unsigned)f < FORMAT_N && (to == DT_F32 || to == DT_BF16), "format %d to %s", (int)f, dtype_name(to));
    struct formats_call c = {x, codes, f, to, false, NULL, n};
    team_run(team, formats_decode_member, &c);
}

#endif
