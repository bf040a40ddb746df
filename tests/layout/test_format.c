/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats: every code, and every place where rounding changes its mind, against a computation that knows nothing
 * of shifts: the list of a format's values written from its definition, and the nearest of them by exact arithmetic in
 * fp64 (a sum or difference of two neighbours and their midpoint has far fewer than 53 bits). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "layout/dtype.h"
#include "layout/format.h"

/* ---- the definitions once more, as the specifications' tables have them ---- */
static const struct definition {
    enum format f;
    int exponent, fraction;
    double max, min_normal, min; /* OCP's tables of "max normal", "min normal", "min subnormal" */
    int n_finite;                /* values from 0 on */
    bool inf, nan;
} definitions[] = {
    {FORMAT_F16, 5, 10, 65504, 0x1p-14, 0x1p-24, 31 * 1024, true, true},
    {FORMAT_BF16, 8, 7, 3.3895313892515355e38, 0x1p-126, 0x1p-133, 255 * 128, true, true},
    {FORMAT_TF32, 8, 10, 3.4011621342146535e38, 0x1p-126, 0x1p-136, 255 * 1024, true, true},
    {FORMAT_E5M2, 5, 2, 57344, 0x1p-14, 0x1p-16, 124, true, true},
    {FORMAT_E4M3, 4, 3, 448, 0x1p-6, 0x1p-9, 127, false, true},
    {FORMAT_E3M2, 3, 2, 28, 0.25, 0.0625, 32, false, false},
    {FORMAT_E2M3, 2, 3, 7.5, 1, 0.125, 32, false, false},
    {FORMAT_E2M1, 2, 1, 6, 1, 0.5, 8, false, false},
};
enum { N_DEFINITIONS = sizeof definitions / sizeof *definitions };

/* The values from 0 up: steps of min to the first normal one, then each power of two in 2^fraction steps. */
static double *values_new(const struct definition *d)
{
    double *v = xmalloc((size_t)(d->n_finite + 1) * sizeof *v), step = d->min;
    for (int i = 0; i <= d->n_finite; i++) { /* one more: where the next would be */
        v[i] = i ? v[i - 1] + step : 0;
        if (i && v[i] >= 2 * d->min_normal && i % (1 << d->fraction) == 0) step *= 2;
    }
    return v;
}

static void rows_are_the_published_tables(void **state)
{
    (void)state;
    for (int k = 0; k < N_DEFINITIONS; k++) {
        const struct definition *d = &definitions[k];
        struct format_info f = format_info(d->f);
        assert_int_equal(f.exponent, d->exponent);
        assert_int_equal(f.fraction, d->fraction);
        assert_int_equal(f.bits, 1 + d->exponent + d->fraction);
        assert_true(f.max == d->max && ldexp(1, f.lowest) == d->min_normal);
    }
    assert_true(format_info(FORMAT_E8M0).max == 0x1p127);
    assert_true(format_info(FORMAT_INT8).max == 127.0 / 64);
}

static bool same(float a, double b) { return (double)a == b && !signbit(a) == !signbit(b); }

static void every_code_has_its_value(void **state)
{
    (void)state;
    for (int k = 0; k < N_DEFINITIONS; k++) {
        const struct definition *d = &definitions[k];
        uint32_t sign = 1u << (d->exponent + d->fraction);
        double *v = values_new(d);
        assert_true(v[d->n_finite - 1] == d->max);
        for (uint32_t c = 0; c < sign; c++) {
            float plus = format_decode(d->f, c), minus = format_decode(d->f, c | sign);
            if ((int)c < d->n_finite) {
                assert_true(same(plus, v[c]) && same(minus, -v[c]));
                assert_int_equal(format_encode(d->f, v[c], c & 1), c);
                assert_int_equal(format_encode(d->f, -v[c], c & 1), c | sign);
            } else if (d->inf && (int)c == d->n_finite) {
                assert_true(same(plus, (double)INFINITY) && same(minus, -(double)INFINITY));
            } else {
                assert_true(d->nan && isnan(plus) && isnan(minus) && signbit(minus) && !signbit(plus));
                assert_true(isnan(format_decode(d->f, format_encode(d->f, (double)plus, c & 1))));
            }
        }
        xfree(v);
    }
}

/* What x >= 0 must become: by halves of exact differences, not by bits. */
static uint32_t nearest(const struct definition *d, const double *v, double x, bool saturate, uint32_t below)
{
    uint32_t most = (uint32_t)d->n_finite - 1, c = below;
    if (x > v[c] && (v[c + 1] - x < x - v[c] || (v[c + 1] - x == x - v[c] && c % 2))) c++;
    return c <= most ? c : saturate || (!d->inf && !d->nan) ? most : most + 1;
}

static void expect(const struct definition *d, const double *v, double x, uint32_t below)
{
    uint32_t sign = 1u << (d->exponent + d->fraction);
    for (int saturate = 0; saturate < 2; saturate++) {
        uint32_t want = nearest(d, v, x, saturate, below), got = format_encode(d->f, x, saturate);
        uint32_t minus = format_encode(d->f, -x, saturate);
        if (got != want || minus != (want | sign))
            fail_msg("%s of %.17g, %s: %x and %x, wanted %x", format_info(d->f).name, x, saturate ? "saturated" : "not",
                     got, minus, want);
    }
}

/* Around every value and every midpoint: there, one fp32 and one fp64 next to it on both sides. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (int k = 0; k < N_DEFINITIONS; k++) {
        const struct definition *d = &definitions[k];
        double *v = values_new(d);
        for (uint32_t c = 0; c < (uint32_t)d->n_finite; c++) {
            double middle = v[c] + (v[c + 1] - v[c]) / 2;
            expect(d, v, v[c], c);
            expect(d, v, middle, c);
            expect(d, v, nextafter(middle, INFINITY), c);
            expect(d, v, nextafter(middle, 0), c);
            expect(d, v, nextafter(v[c], INFINITY), c);
            expect(d, v, nextafter(v[c + 1], 0), c);
            if (middle > 3e38) continue; /* no fp32 above */
            expect(d, v, (double)nextafterf((float)middle, INFINITY), c);
            if ((double)nextafterf((float)middle, 0) >= v[c]) expect(d, v, (double)nextafterf((float)middle, 0), c);
            expect(d, v, (double)nextafterf((float)v[c], INFINITY),
                   (double)nextafterf((float)v[c], INFINITY) < v[c + 1] ? c : c + 1);
        }
        expect(d, v, d->min / 2, 0); /* a tie with zero, and the smallest double there is */
        expect(d, v, 0x1p-1074, 0);
        expect(d, v, v[d->n_finite] * 1.5, (uint32_t)d->n_finite - 1);
        for (int saturate = 0; saturate < 2; saturate++) {
            uint32_t most = (uint32_t)d->n_finite - 1, over = saturate || (!d->inf && !d->nan) ? most : most + 1;
            assert_int_equal(format_encode(d->f, 1e300, saturate), over);
            assert_int_equal(format_encode(d->f, (double)INFINITY, saturate), over);
        }
        xfree(v);
    }
}

/* fp64 that lie so near a midpoint that fp32 would take them for it, and a half would then go the wrong way. */
static void nothing_is_rounded_twice(void **state)
{
    (void)state;
    assert_int_equal(format_encode(FORMAT_F16, 1 + 0x1p-11, false), 0x3c00);
    assert_int_equal(format_encode(FORMAT_F16, 1 + 0x1p-11 + 0x1p-40, false), 0x3c01);
    assert_int_equal(format_encode(FORMAT_BF16, 1 + 0x1p-7 + 0x1p-8 - 0x1p-40, false), 0x3f81);
    assert_int_equal(format_encode(FORMAT_E4M3, 1 + 0x1p-4 + 0x1p-45, true), 0x39);
}

static void old_conversions_are_the_same(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 1 << 16; c++) {
        float a = f16_to_f32((uint16_t)c), b = format_decode(FORMAT_F16, c), x = format_decode(FORMAT_BF16, c);
        assert_memory_equal(&a, &b, 4);
        uint32_t u = c << 16 | (c * 40503u & 0xffff);
        for (uint32_t low = 0; low < 3; low++) {
            uint32_t w = low ? (u & 0xffff0000u) + 0x7ffe + low : u;
            memcpy(&x, &w, 4);
            assert_int_equal(format_encode(FORMAT_F16, (double)x, false), f16_from_f32(x));
            assert_int_equal(format_encode(FORMAT_BF16, (double)x, false), bf16_from_f32(x));
        }
    }
}

static void nan_keeps_sign_and_payload(void **state)
{
    (void)state;
    float x;
    uint32_t u = 0xffa34567u, back;
    memcpy(&x, &u, 4);
    assert_int_equal(format_encode(FORMAT_F16, (double)x, true), 0xff1a);
    assert_int_equal(format_encode(FORMAT_E5M2, (double)x, false), 0xff);
    assert_int_equal(format_encode(FORMAT_E4M3, (double)x, true), 0xff);
    assert_int_equal(format_encode(FORMAT_E4M3, (double)NAN, false), 0x7f);
    assert_int_equal(format_encode(FORMAT_E8M0, (double)x, true), 0xff);
    assert_int_equal(format_encode(FORMAT_E2M1, (double)x, true), 7);
    assert_int_equal(format_encode(FORMAT_INT8, (double)x, true), 127);
    x = format_decode(FORMAT_TF32, format_encode(FORMAT_TF32, (double)x, false));
    memcpy(&back, &x, 4);
    assert_int_equal(back, 0xffe34000u);
}

static void powers_of_two(void **state)
{
    (void)state;
    for (int e = -127; e <= 127; e++) {
        uint32_t c = (uint32_t)(e + 127);
        double p = ldexp(1, e), middle = 1.5 * p;
        assert_true(format_decode(FORMAT_E8M0, c) == ldexpf(1, e));
        assert_int_equal(format_encode(FORMAT_E8M0, p, false), c);
        assert_int_equal(format_encode(FORMAT_E8M0, nextafter(middle, 0), false), c);
        if (e < 127) assert_int_equal(format_encode(FORMAT_E8M0, nextafter(middle, INFINITY), false), c + 1);
        if (e < 127) assert_int_equal(format_encode(FORMAT_E8M0, middle, false), c + c % 2);
        assert_int_equal(format_encode(FORMAT_E8M0, -p, true), 0xff);
    }
    assert_true(isnan(format_decode(FORMAT_E8M0, 0xff)));
    assert_int_equal(format_encode(FORMAT_E8M0, 0, false), 0);
    assert_int_equal(format_encode(FORMAT_E8M0, -0.0, false), 0);
    assert_int_equal(format_encode(FORMAT_E8M0, 0x1p-140, false), 0);
    assert_int_equal(format_encode(FORMAT_E8M0, 0x1p128, false), 0xff);
    assert_int_equal(format_encode(FORMAT_E8M0, 0x1p128, true), 0xfe);
    assert_int_equal(format_encode(FORMAT_E8M0, (double)INFINITY, true), 0xfe);
}

static void integers(void **state)
{
    (void)state;
    for (int i = -128; i < 128; i++) {
        assert_true(format_decode(FORMAT_INT8, (uint32_t)i & 0xff) == (float)i / 64);
        for (double d = -0.5; d <= 0.5; d += 0.125) {
            double want = nearbyint(i + d); /* the default mode: ties to even */
            want = want > 127 ? 127 : want < -127 ? -127 : want;
            assert_int_equal(format_encode(FORMAT_INT8, (i + d) / 64, d > 0), (uint32_t)(int)want & 0xff);
        }
    }
}

/* Rounding by chance: only to the two neighbours, exactly what fits stays, and the mean is the number. */
static void chance_has_no_bias(void **state)
{
    (void)state;
    enum { N = 40000 };
    uint64_t stream = rng_stream_at(rng_stream("round/test"), 7);
    for (int f = 0; f < FORMAT_N; f++) {
        struct format_info info = format_info((enum format)f);
        for (int k = 0; k < 12; k++) {
            double low = (double)format_decode((enum format)f, info.max_code / 13 * (uint32_t)(k + 1));
            double high = (double)format_decode((enum format)f, info.max_code / 13 * (uint32_t)(k + 1) + 1);
            if (k == 11) low = 0, high = (double)format_decode((enum format)f, 1); /* below the smallest one */
            if (k == 11 && f == FORMAT_E8M0) continue;                             /* which has no zero */
            double share = (k + 1) / 16.0 + 0.01, x = low + (high - low) * share;
            int up = 0;
            for (int i = 0; i < N; i++) {
                uint32_t word = rng_u32(3, stream, (uint64_t)(f * 16 + k) * N + (uint64_t)i);
                double got = (double)format_decode((enum format)f, format_encode_random((enum format)f, x, true, word));
                assert_true(got == low || got == high);
                up += got == high;
                if (i < 100)
                    assert_true((double)format_decode((enum format)f,
                                                      format_encode_random((enum format)f, low, true, word)) == low);
            }
            share = (x - low) / (high - low);
            double sd = sqrt(share * (1 - share) / N);
            if (fabs((double)up / N - share) > 5 * sd)
                fail_msg("%s %g: up %d of %d, wanted %g", info.name, x, up, N, share);
        }
    }
    /* which words round up is part of the contract: those that carry */
    assert_int_equal(format_encode_random(FORMAT_BF16, 1 + 0x1p-9, false, 0xbfffffffu), 0x3f80);
    assert_int_equal(format_encode_random(FORMAT_BF16, 1 + 0x1p-9, false, 0xc0000000u), 0x3f81);
    assert_int_equal(format_encode_random(FORMAT_F16, 70000, false, 0xffffffffu), 0x7c00);
    assert_int_equal(format_encode_random(FORMAT_F16, 70000, true, 0xffffffffu), 0x7bff);
    assert_int_equal(format_encode_random(FORMAT_F16, (double)NAN, true, 1), 0x7e00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_published_tables),
        cmocka_unit_test(every_code_has_its_value),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(nothing_is_rounded_twice),
        cmocka_unit_test(old_conversions_are_the_same),
        cmocka_unit_test(nan_keeps_sign_and_payload),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(integers),
        cmocka_unit_test(chance_has_no_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
