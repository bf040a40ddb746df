/* SPDX-License-Identifier: Apache-2.0 */
/* The reference conversion, for all formats at once, in integers.
 *
 * A number is a 53-bit integer times a power of two. Codes of one sign are ordered as their values are, and a code plus
 * one is the next value, also from one power of two to the next: so rounding is a shift that keeps as many bits as the
 * format has at this power of two, and perhaps one more. Since the input is a double, an fp64 number is rounded once,
 * not by way of fp32. Cost: some twenty operations; kernels are compared with it. */
#include "layout/format.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

static struct format_info row(enum format f)
{
    CHECK((unsigned)f < FORMAT_N, "format %d does not exist", (int)f);
    return format_info(f);
}

/* Sign and size of a code as it is stored. */
static uint32_t with_sign(const struct format_info *f, bool negative, uint32_t code)
{
    if (!negative) return code;
    return f->special == FORMAT_TWOS ? (0u - code) & 0xff : code | 1u << (f->bits - 1);
}

static uint32_t nan_code(const struct format_info *f, bool negative, uint64_t payload)
{
    switch (f->special) {
    case FORMAT_IEEE: {
        uint32_t quiet = 1u << (f->fraction - 1), kept = (uint32_t)(payload >> (52 - f->fraction));
        return with_sign(f, negative, f->over_code | quiet | kept);
    }
    case FORMAT_ONES: return with_sign(f, negative, f->over_code);
    case FORMAT_SCALE: return f->over_code;
    case FORMAT_FINITE:
    case FORMAT_TWOS: break;
    }
    return f->max_code;
}

/* Whether what is cut off, `rest` of 2^cut, rounds up; `code` is what it would be added to. */
static bool rounds_up(uint64_t rest, int cut, uint64_t code, const uint32_t *random)
{
    if (random) {
        uint64_t first = cut <= 32 ? rest << (32 - cut) : cut < 96 ? rest >> (cut - 32) : 0;
        return (first + *random) >> 32;
    }
    if (cut > 53) return false; /* less than half */
    uint64_t half = (uint64_t)1 << (cut - 1);
    return rest > half || (rest == half && (code & 1));
}

static uint32_t encode(enum format format, double x, bool saturate, const uint32_t *random)
{
    struct format_info f = row(format);
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    bool negative = u >> 63;
    uint64_t mantissa = u & 0xfffffffffffffu;
    if (isnan(x)) return nan_code(&f, negative, mantissa);
    if (f.special == FORMAT_SCALE && x < 0) return f.over_code;
    if (isinf(x)) return with_sign(&f, negative, saturate ? f.max_code : f.over_code);
    int power = 0; /* |x| = size * 2^power, size an integer with 53 bits */
    if (x == 0 || (f.special == FORMAT_SCALE && x < ldexp(1, f.lowest)))
        return f.special == FORMAT_SCALE ? 0 : with_sign(&f, negative, 0);
    uint64_t size = (uint64_t)ldexp(frexp(fabs(x), &power), 53);
    power -= 53;
    int exponent = power + 52 > f.lowest ? power + 52 : f.lowest; /* of the format's step here, times 2^fraction */
    int cut = exponent - f.fraction - power;
    uint64_t kept = cut < 64 ? size >> cut : 0, rest = cut < 64 ? size - (kept << cut) : size;
    uint64_t code = ((uint64_t)(exponent - f.lowest) << f.fraction) + kept - (f.special == FORMAT_SCALE);
    code += rounds_up(rest, cut, code, random);
    return with_sign(&f, negative, code <= f.max_code ? (uint32_t)code : saturate ? f.max_code : f.over_code);
}

uint32_t format_encode(enum format f, double x, bool saturate) { return encode(f, x, saturate, NULL); }
uint32_t format_encode_random(enum format f, double x, bool saturate, uint32_t random)
{
    return encode(f, x, saturate, &random);
}

float format_decode(enum format format, uint32_t code)
{
    struct format_info f = row(format);
    bool negative = f.special != FORMAT_SCALE && code >> (f.bits - 1) & 1;
    uint32_t size = negative ? with_sign(&f, true, 0) ^ code : code, u;
    if (f.special == FORMAT_TWOS) return (float)((int)code - (negative ? 256 : 0)) / 64;
    float v;
    if (size > f.max_code && (f.special == FORMAT_IEEE || f.special == FORMAT_ONES || f.special == FORMAT_SCALE)) {
        uint32_t payload = f.special == FORMAT_IEEE ? size - f.over_code : 1;
        u = (uint32_t)negative << 31 | 0x7f800000u | (payload ? 0x400000u : 0) |
            (f.special == FORMAT_IEEE ? payload << (23 - f.fraction) : 0);
        memcpy(&v, &u, sizeof v);
        return v;
    }
    if (f.special == FORMAT_SCALE) return ldexpf(1, (int)size - f.bias);
    uint32_t field = size >> f.fraction, fraction = size & ((1u << f.fraction) - 1);
    v = ldexpf((float)(fraction + (field ? 1u << f.fraction : 0)), (int)(field ? field : 1) - f.bias - f.fraction);
    return negative ? -v : v;
}
