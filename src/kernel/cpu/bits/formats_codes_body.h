/* SPDX-License-Identifier: Apache-2.0 */
/* formats_codes_body.h: vectors of fp32 to codes of a number format and back, in registers. A row of formats.def is a
 * constant where it is used, so each format has its shifts and bounds folded in.
 *
 * To a code: fp32's fields are shifted together into the format's, with the rounding carried from fraction to exponent,
 * and the bias taken off; below the smallest normal value an addition of a power of two aligns the value so that its
 * last bits are the code, and rounds it. By chance: there the bits are cut off by a shift of each lane's own. */
#ifndef TUTTI_KERNEL_CPU_BITS_FORMATS_CODES_BODY_H
#define TUTTI_KERNEL_CPU_BITS_FORMATS_CODES_BODY_H

#include "kernel/cpu/vec/vec.h"
#include "layout/format.h"

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

#endif
