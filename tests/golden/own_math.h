/* SPDX-License-Identifier: Apache-2.0 */
/* own_math.h: the functions of libm that training calls, from sums, products and quotients alone, so that their bits
 * are the same on every machine. A program's linker puts them in libm's place (it says `suite:
 * wraps`): libm's own last bit depends on its version and on whether the processor has fused
 * multiply-add. Good to about 1e-15 relative (pow: 1e-14), and slow. Order: Local.
 */
#ifndef TUTTI_TESTS_OWN_MATH_H
#define TUTTI_TESTS_OWN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

double __wrap_exp(double x);
float __wrap_expf(float x);
double __wrap_log(double x);
float __wrap_logf(float x);
double __wrap_pow(double x, double y);
double __wrap_tanh(double x);
double __wrap_sin(double x);
double __wrap_cos(double x);
void __wrap_sincos(double x, double *s, double *c);

/* ln 2 and pi / 2 in two parts: the first has zeros at its end, so that its product with a small whole number is
 * exact. */
static const double LN2_HI = 0x1.62e42feep-1, LN2_LO = 0x1.a39ef35793c76p-33;
static const double HALF_PI_HI = 0x1.921fb544p+0, HALF_PI_LO = 0x1.0b4611a626331p-34;

/* 2^k, |k| <= 1022. */
static inline double power_of_two(int k)
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x = k ln 2 + r, |r| <= 0.35: Taylor's series of r, times 2^k. */
double __wrap_exp(double x)
{
    if (x != x) return x;
    if (x > 709) return HUGE_VAL;
    if (x < -745) return 0;
    double k = floor(x / LN2_HI + 0.5), r = x - k * LN2_HI - k * LN2_LO, sum = 1;
    for (int i = 14; i > 0; i--) sum = 1 + sum * r / i;
    int half = (int)k / 2;
    return sum * power_of_two(half) * power_of_two((int)k - half);
}

float __wrap_expf(float x) { return (float)__wrap_exp((double)x); }

/* x = m 2^k, m in [0.7, 1.42): log m = 2 artanh((m - 1) / (m + 1)). */
double __wrap_log(double x)
{
    if (x != x || x < 0) return NAN;
    if (x == 0) return -HUGE_VAL;
    if (x > 0x1p1023 * (2 - 0x1p-52)) return x;
    int k = 0;
    if (x < 0x1p-1022) x *= 0x1p54, k = -54;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    k += (int)(bits >> 52) - 1023;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
    double m, sum = 0;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356) m /= 2, k++;
    double s = (m - 1) / (m + 1), z = s * s;
    for (int i = 25; i > 0; i -= 2) sum = sum * z + 1.0 / i;
    return k * LN2_HI + (k * LN2_LO + 2 * s * sum);
}

float __wrap_logf(float x) { return (float)__wrap_log((double)x); }

/* What training asks for: x >= 0. */
double __wrap_pow(double x, double y)
{
    if (y == 0 || x == 1) return 1;
    if (x == 0) return y > 0 ? 0 : HUGE_VAL;
    return __wrap_exp(y * __wrap_log(x));
}

double __wrap_tanh(double x)
{
    double a = fabs(x), t;
    if (a < 0.5) { /* sinh / cosh, by Taylor: nothing cancels */
        double z = x * x, sinh_sum = 1, cosh_sum = 1;
        for (int i = 8; i > 0; i--) {
            sinh_sum = 1 + sinh_sum * z / ((2 * i) * (2 * i + 1));
            cosh_sum = 1 + cosh_sum * z / ((2 * i - 1) * (2 * i));
        }
        return x * sinh_sum / cosh_sum;
    }
    t = a > 20 ? 1 : 1 - 2 / (__wrap_exp(2 * a) + 1);
    return x < 0 ? -t : t;
}

/* x = k pi / 2 + r, |r| <= 0.79. */
void __wrap_sincos(double x, double *s, double *c)
{
    double k = floor(x / HALF_PI_HI + 0.5), r = x - k * HALF_PI_HI - k * HALF_PI_LO, z = r * r, sine = 1, cosine = 1;
    for (int i = 9; i > 0; i--) {
        sine = 1 - sine * z / ((2 * i) * (2 * i + 1));
        cosine = 1 - cosine * z / ((2 * i - 1) * (2 * i));
    }
    sine *= r;
    int quarter = (int)(int64_t)k & 3;
    *s = quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? -sine : -cosine;
    *c = quarter == 0 ? cosine : quarter == 1 ? -sine : quarter == 2 ? -cosine : sine;
}

double __wrap_sin(double x)
{
    double s, c;
    __wrap_sincos(x, &s, &c);
    return s;
}

double __wrap_cos(double x)
{
    double s, c;
    __wrap_sincos(x, &s, &c);
    return c;
}

#endif
