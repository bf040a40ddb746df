/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of fold.h: every instruction set gives the bits of a loop over single elements, NaN and infinities
 * included, at every length and misaligned. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "comm/fold.h"

enum { MOST = 300, SOURCES = 5 };
static const enum dtype dtypes[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64};

static double pick(double a, double b, enum comm_red r) { return r == COMM_MAX ? (a > b ? a : b) : (a < b ? a : b); }

/* One element by the words of fold.h. */
static void element(const void *const *src, int n_src, int64_t i, enum dtype t, enum comm_red r, int64_t divisor,
                    void *out)
{
    bool adds = r == COMM_SUM || r == COMM_AVG;
    if (t == DT_F32 || t == DT_BF16 || t == DT_F16) {
        float acc = 0;
        for (int s = 0; s < n_src; s++) {
            uint16_t h = t == DT_F32 ? 0 : ((const uint16_t *)src[s])[i];
            float v;
            if (t == DT_F32) memcpy(&v, (const char *)src[s] + 4 * i, 4);
            else v = t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
            acc = !s ? v : adds ? acc + v : (float)pick((double)acc, (double)v, r);
        }
        if (divisor != 1) acc *= 1.0f / (float)divisor;
        uint16_t h = t == DT_BF16 ? bf16_from_f32(acc) : t == DT_F16 ? f16_from_f32(acc) : 0;
        memcpy(out, t == DT_F32 ? (void *)&acc : (void *)&h, dtype_bytes(t));
    } else if (t == DT_F64) {
        double acc = 0, v;
        for (int s = 0; s < n_src; s++) {
            memcpy(&v, (const char *)src[s] + 8 * i, 8);
            acc = !s ? v : adds ? acc + v : pick(acc, v, r);
        }
        if (divisor != 1) acc *= 1.0 / (double)divisor;
        memcpy(out, &acc, 8);
    } else {
        int64_t acc = 0;
        for (int s = 0; s < n_src; s++) {
            int32_t narrow;
            int64_t v;
            if (t == DT_I32) {
                memcpy(&narrow, (const char *)src[s] + 4 * i, 4);
                v = narrow;
            } else memcpy(&v, (const char *)src[s] + 8 * i, 8);
            if (!s) acc = v;
            else if (adds) acc = (int64_t)((uint64_t)acc + (uint64_t)v);
            else acc = r == COMM_MAX ? (acc > v ? acc : v) : (acc < v ? acc : v);
        }
        int32_t narrow = (int32_t)((t == DT_I32 ? (int32_t)acc : 0) / divisor);
        acc /= divisor;
        memcpy(out, t == DT_I32 ? (void *)&narrow : (void *)&acc, dtype_bytes(t));
    }
}

static bool is_nan(const void *p, enum dtype t)
{
    uint16_t h;
    float f;
    double d;
    memcpy(&h, p, 2);
    if (t == DT_BF16) return isnan(bf16_to_f32(h));
    if (t == DT_F16) return isnan(f16_to_f32(h));
    if (t == DT_F32) return memcpy(&f, p, 4), isnan(f);
    if (t == DT_F64) return memcpy(&d, p, 8), isnan(d);
    return false;
}

/* Random bits: all kinds of numbers, subnormal and not finite ones too. */
static void compare(const struct fold_table *table, enum dtype t, enum comm_red r, int n_src, int64_t n, uint64_t seed)
{
    static char src[SOURCES][MOST * 8 + 64], dst[2][MOST * 8 + 64];
    size_t each = dtype_bytes(t), skew = each * (size_t)(n % 3);
    const void *from[SOURCES];
    for (int s = 0; s < n_src; s++) {
        for (size_t i = 0; i < sizeof src[s]; i += 4) {
            uint32_t bits = rng_u32(seed, (uint64_t)s, i);
            memcpy(src[s] + i, &bits, 4);
        }
        from[s] = src[s] + skew;
    }
    int64_t divisor = r == COMM_AVG ? n_src : 1;
    memset(dst, 0x5a, sizeof dst);
    void *to[2] = {dst[0] + skew, dst[1] + skew};
    fold_run(table, t, r,
             &(struct fold){.dst = to, .n_dst = 2, .src = from, .n_src = n_src, .n = n, .divisor = divisor});
    for (int64_t i = 0; i < n; i++) {
        char want[8];
        element(from, n_src, i, t, r, divisor, want);
        for (int d = 0; d < 2; d++) {
            const char *got = (const char *)to[d] + (size_t)i * each;
            if (memcmp(got, want, each) != 0 && !(is_nan(got, t) && is_nan(want, t)))
                fail_msg("%s: %s of %d %s, %d elements: [%d] differs", table->name, comm_red_name(r), n_src,
                         dtype_name(t), (int)n, (int)i);
        }
    }
    for (int d = 0; d < 2; d++) assert_int_equal(dst[d][skew + (size_t)n * each], 0x5a);
}

static void test_tables(void **state)
{
    (void)state;
    const struct fold_table *table, *last = NULL;
    static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 128, 200, MOST - 3};
    for (int k = 0; (table = fold_at(k)); k++, last = table)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            for (int r = 0; r < COMM_RED_N; r++)
                for (int n_src = 1; n_src <= SOURCES; n_src++)
                    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                        compare(table, dtypes[t], (enum comm_red)r, n_src, sizes[s], 7 * s + (size_t)r);
    assert_ptr_equal(last, fold_best());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
