/* SPDX-License-Identifier: Apache-2.0 */
/* formats_body.h: conversions of number formats over vec.h, included by the formats_<isa>.c files.
 *
 * One body for all formats: a row of formats.def is a constant where it is used, so each format gets a loop of its own
 * with its shifts and bounds folded in. To a code: fp32's fields are shifted together into the format's, with the
 * rounding carried from fraction to exponent, and the bias taken off; below the smallest normal value an addition of a
 * power of two aligns the value so that its last bits are the code, and rounds it. By chance: there the bits are cut
 * off by a shift of each lane's own. Cost: 12 to 25 instructions per vector, for 5 bytes per element to or from 8 bits:
 * bound by memory. Rejected: hardware conversions (AVX10.2 has some for 8 bits; fp16's do not saturate). */
#ifndef TUTTI_KERNEL_CPU_FORMATS_BODY_H
#define TUTTI_KERNEL_CPU_FORMATS_BODY_H

#include "base/err.h"
#include "base/rng.h"
#include "kernel/cpu/philox_body.h"
#include "kernel/formats.h"

VEC_INLINE vi formats_shl(vi a, int n) { return vi_shlv(a, vi_set((uint32_t)n)); }
VEC_INLINE vi formats_shr(vi a, int n) { return vi_shrv(a, vi_set((uint32_t)n)); }
VEC_INLINE vi formats_minus(vi a, uint32_t b) { return vi_add(a, vi_set(0u - b)); }
/* 2^e as an fp32, e normal */
VEC_INLINE uint32_t formats_power(int e) { return (uint32_t)(e + 127) << 23; }

/* Sizes (fp32 without sign) to codes, to nearest even. */
VEC_INLINE vi formats_nearest(vi size, const struct format_info *f)
{
    int cut = 23 - f->fraction;
    vi odd = vi_and(formats_shr(size, cut), vi_set(1));
    vi up = vi_add(vi_add(size, odd), vi_set((1u << (cut - 1)) - 1));
    vi normal = formats_minus(formats_shr(up, cut), (uint32_t)(127 - f->bias) << f->fraction), small;
    if (f->special == FORMAT_SCALE) { /* its lowest value is fp32's half-smallest: 1, or 0 up to the middle */
        small = vi_pick(vi_gt(size, vi_set(0x600000)), vi_set(1), vi_set(0));
        return vi_pick(vi_gt(vi_set(0x800000), size), small, normal);
    }
    uint32_t align = formats_power(f->lowest + cut);
    small = formats_minus(vf_bits(vi_float_bits(size) + vi_float_bits(vi_set(align))), align);
    return vi_pick(vi_gt(vi_set(formats_power(f->lowest)), size), small, normal);
}

/* The same by words of the generator. */
VEC_INLINE vi formats_chance(vi size, vi word, const struct format_info *f)
{
    int cut = 23 - f->fraction;
    vi normal = formats_shr(vi_add(size, formats_shr(word, 9 + f->fraction)), cut);
    normal = formats_minus(normal, (uint32_t)(127 - f->bias) << f->fraction);
    vi field = formats_shr(size, 23);
    if (f->special == FORMAT_SCALE) { /* what is less than 2^-126 lies between 2^-127 and that, or becomes 2^-127 */
        vi rest = formats_shl(vi_and(size, vi_set(0x3fffff)), 10), flip = vi_set(0x80000000u);
        vmask carry = vi_gt(vi_xor(rest, flip), vi_xor(vi_add(rest, word), flip));
        vi small = vi_pick(vm_and(carry, vi_gt(size, vi_set(0x400000))), vi_set(1), vi_set(0));
        return vi_pick(vi_eq(field, vi_set(0)), small, normal);
    }
    /* integer times the power of two of fp32's last place; the format's is `by` above, one more for each power below
     * lowest */
    vi whole = vi_or(vi_and(size, vi_set(0x7fffff)), vi_pick(vi_eq(field, vi_set(0)), vi_set(0), vi_set(0x800000)));
    vi power = vi_pick(vi_eq(field, vi_set(0)), vi_set(1), field);
    vi by = vi_add(vi_set((uint32_t)(cut + f->lowest + 127)), vi_add(vi_xor(power, vi_set(~0u)), vi_set(1)));
    vi most = vi_set(60); /* everything is cut off, and nothing is left of the first 32 bits */
    by = vi_pick(vi_gt(by, most), most, by);
    vi minus_by = vi_add(vi_xor(by, vi_set(~0u)), vi_set(1));
    vi right = vi_pick(vi_gt(by, vi_set(32)), vi_add(by, vi_set(0u - 32)), vi_set(0));
    vi left = vi_pick(vi_gt(by, vi_set(32)), vi_set(0), vi_add(vi_set(32), minus_by));
    vi rest = vi_shrv(vi_shlv(whole, left), right), flip = vi_set(0x80000000u);
    vmask carry =
        vi_gt(vi_xor(rest, flip), vi_xor(vi_add(rest, word), flip)); /* the sum is less than a part: 2^32 or more */
    vi small = vi_add(vi_shrv(whole, by), vi_pick(carry, vi_set(1), vi_set(0)));
    return vi_pick(vi_gt(vi_set(formats_power(f->lowest)), size), small, normal);
}

/* Sign, what is too large and what is no number. over: the code that too large becomes. */
VEC_INLINE vi formats_finish(vi u, vi size, vi code, const struct format_info *f, vi over)
{
    vmask is_nan = vi_gt(size, vi_set(0x7f800000)), negative = vi_gt(vi_set(0), u);
    code = vi_pick(vi_gt(code, vi_set(f->max_code)), over, code);
    if (f->special == FORMAT_SCALE) {
        vmask none = vm_or(is_nan, vm_and(negative, vi_gt(size, vi_set(0))));
        return vi_pick(none, vi_set(f->over_code), code);
    }
    if (f->special == FORMAT_TWOS) {
        vi minus = vi_add(vi_xor(code, vi_set(~0u)), vi_set(1));
        return vi_pick(is_nan, vi_set(f->max_code), vi_pick(negative, minus, code));
    }
    vi sign = formats_shl(formats_shr(u, 31), f->bits - 1);
    if (f->special == FORMAT_FINITE) return vi_pick(is_nan, vi_set(f->max_code), vi_or(code, sign));
    vi nan = vi_set(f->over_code);
    if (f->special == FORMAT_IEEE) {
        vi payload = vi_and(formats_shr(size, 23 - f->fraction), vi_set((1u << f->fraction) - 1));
        nan = vi_or(vi_or(nan, payload), vi_set(1u << (f->fraction - 1)));
    }
    return vi_or(vi_pick(is_nan, nan, code), sign);
}

VEC_INLINE vf formats_value(vi code, const struct format_info *f)
{
    int cut = 23 - f->fraction;
    if (f->special == FORMAT_SCALE) {
        vi v = vi_pick(vi_eq(code, vi_set(0)), vi_set(0x400000), formats_shl(code, 23));
        return vi_float_bits(vi_pick(vi_eq(code, vi_set(255)), vi_set(0x7fc00000), v));
    }
    vi sign = formats_shl(formats_shr(code, f->bits - 1), 31), size = vi_and(code, vi_set((1u << (f->bits - 1)) - 1));
    if (f->special == FORMAT_TWOS) { /* an integer below 2^8 in the last bits of 2^23 + 2^15 */
        vi shifted = vi_or(vi_xor(code, vi_set(0x80)), vi_set(0x4b000000));
        return (vi_float_bits(shifted) - vf_set(8388736.0f)) * vf_set(0x1p-6f);
    }
    /* Normal ones by their fields, subnormal ones as the last bits of a power of two that is taken away again: a
     * product would be of fp32's own subnormals, which processors multiply a hundred times slower. */
    vi v = vi_add(formats_shl(size, cut), vi_set((uint32_t)(127 - f->bias) << 23));
    if (f->bias != 127) {
        uint32_t align = formats_power(f->lowest + cut);
        vi small = vf_bits(vi_float_bits(vi_add(size, vi_set(align))) - vi_float_bits(vi_set(align)));
        v = vi_pick(vi_gt(vi_set(1u << f->fraction), size), small, v);
    }
    if (f->special == FORMAT_IEEE) {
        vi quiet = vi_pick(vi_gt(size, vi_set(f->over_code)), vi_set(0x7fc00000), vi_set(0x7f800000));
        vi beyond = vi_or(quiet, vi_and(formats_shl(size, cut), vi_set(0x7fffff)));
        v = vi_pick(vi_gt(size, vi_set(f->max_code)), beyond, v);
    }
    if (f->special == FORMAT_ONES) v = vi_pick(vi_gt(size, vi_set(f->max_code)), vi_set(0x7fc00000), v);
    return vi_float_bits(vi_or(v, sign));
}

/* VL codes in memory. */
VEC_INLINE void formats_put(void *p, int64_t i, vi code, const struct format_info *f)
{
    if (f->bytes == 1) vi_store_u8((uint8_t *)p + i, code);
    else if (f->bytes == 2) vi_store_u16((uint16_t *)p + i, code);
    else vi_store((uint32_t *)p + i, formats_shl(code, f->shift));
}
VEC_INLINE vi formats_get(const void *p, int64_t i, const struct format_info *f)
{
    if (f->bytes == 1) return vi_load_u8((const uint8_t *)p + i);
    if (f->bytes == 2) return vi_load_u16((const uint16_t *)p + i);
    return formats_shr(vi_load((const uint32_t *)p + i), f->shift);
}

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
    struct mask m = {.seed = c->random->seed, .stream = c->random->stream};
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
