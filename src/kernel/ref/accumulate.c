/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction of accumulate.h in integers. A product of two significands of 11 bits has 22; kept at 25 bits below
 * the largest exponent, 33 of them are below 2^33: nothing is lost but what the machine loses. */
#include "kernel/ref/accumulate.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "layout/bits.h"

const struct accumulate_way accumulate_ways[ACCUMULATE_WAYS] = {
    {"hopper-bf16", {16, 25, 23}, {0, 0, 0}, 0},
    {"hopper-fp8", {16, 25, 23}, {32, 13, 13}, 0},
    {"hopper-fp8-promoted", {16, 25, 23}, {32, 13, 13}, ACCUMULATE_PROMOTED},
    {"ampere-bf16", {8, 24, 23}, {0, 0, 0}, 0},
};

enum { TERM_BITS = 10 }; /* below the hidden one */

struct accumulate_term accumulate_term(float x, int lowest)
{
    struct accumulate_term t = {0, 0, x};
    uint32_t u = float_bits(x), field = u >> 23 & 255, size = (u & 0x7fffff) | (field ? 0x800000u : 0);
    if (field == 255 || !size) return t;
    int exponent = (int)(field ? field : 1) - 127, up = exponent < lowest ? lowest - exponent : 0;
    CHECK(up < 14 + TERM_BITS && !(size & ((1u << (23 - TERM_BITS + up > 31 ? 31 : 23 - TERM_BITS + up)) - 1)),
          "%a is not of a format whose products are modelled", (double)x);
    int significand = (int)(size >> (23 - TERM_BITS + up));
    t.significand = (int16_t)(u >> 31 ? -significand : significand);
    t.exponent = (int16_t)(exponent + up);
    return t;
}

/* x times 2^by, towards zero; |x| < 2^31. */
static int64_t shifted(int64_t x, int by)
{
    int64_t size = x < 0 ? -x : x;
    size = by >= 0 ? size << by : by > -63 ? size >> -by : 0;
    return x < 0 ? -size : size;
}

/* sum times 2^unit as an fp32 with `out` fraction bits, towards zero. */
static float cut_off(int64_t sum, int unit, int out)
{
    if (!sum) return 0;
    uint64_t size = (uint64_t)(sum < 0 ? -sum : sum);
    int top = 63 - __builtin_clzll(size), exponent = top + unit, keep = out;
    if (exponent > 127) return sum < 0 ? -INFINITY : INFINITY;
    if (exponent < -126) keep -= -126 - exponent;
    if (keep < 0) return 0;
    int away = top - keep; /* bits below the last one that is kept */
    if (away > 0) size = size >> away << away;
    float x = ldexpf((float)size, unit); /* exact: at most 24 bits are left */
    return sum < 0 ? -x : x;
}

static float special(const struct accumulate_term *a, const struct accumulate_term *b, int n, float c)
{
    double sum = (double)c;
    for (int i = 0; i < n; i++) sum += (double)a[i].value * (double)b[i].value;
    return isnan(sum) ? float_of(0x7fffffff) : (float)sum;
}

float accumulate_step(const struct accumulate_unit *u, const struct accumulate_term *a, const struct accumulate_term *b,
                      int n, float c)
{
    enum { NONE = -100000 };
    int largest = NONE, product[ACCUMULATE_MOST_K];
    CHECK(n <= u->k, "%d products in an instruction of %d", n, u->k);
    for (int i = 0; i < n; i++) {
        product[i] = a[i].significand * b[i].significand;
        if (product[i] && a[i].exponent + b[i].exponent > largest) largest = a[i].exponent + b[i].exponent;
        if ((!a[i].significand && !isfinite(a[i].value)) || (!b[i].significand && !isfinite(b[i].value)))
            return special(a, b, n, c);
    }
    if (!isfinite(c)) return special(a, b, n, c);
    uint32_t bits = float_bits(c), field = bits >> 23 & 255;
    int64_t own = (bits & 0x7fffff) | (field ? 0x800000u : 0);
    int exponent = (int)(field ? field : 1) - 127;
    if (own && exponent > largest) largest = exponent;
    if (largest == NONE) return 0;
    int64_t sum = shifted(bits >> 31 ? -own : own, u->fraction - 23 + exponent - largest);
    for (int i = 0; i < n; i++)
        if (product[i])
            sum += shifted(product[i], u->fraction - 2 * TERM_BITS + a[i].exponent + b[i].exponent - largest);
    return cut_off(sum, largest - u->fraction, u->out);
}

float accumulate_chain(const struct accumulate_unit *u, int promoted, const struct accumulate_term *a,
                       const struct accumulate_term *b, int64_t n)
{
    float total = 0, c = 0;
    for (int64_t i = 0; i < n; i += u->k) {
        if (promoted && i && i % promoted == 0) {
            total += c;
            c = 0;
        }
        c = accumulate_step(u, a + i, b + i, n - i < u->k ? (int)(n - i) : u->k, c);
    }
    return promoted ? total + c : c;
}
