/* SPDX-License-Identifier: Apache-2.0 */
/* test_codec.c: what travels encoded (layout/codec.h) against its definition, written out here once more from the
 * values that a format has: every build, every codec, tails of rows and of columns, sums of several parts, numbers that
 * are not finite, numbers of all sizes. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/codec_rows.h"
#include "kernel/codec_spec.h"
#include "kernel/cpu/build.h"

enum { MOST = 4096, PARTS = 4, GUARD = 0xa5 };

static const struct format_ops *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i - 2);
    if (i < 2) return i ? &format_ops_cpu : &format_ops_ref;
    return b && b->needs <= cpu_isa() ? b->formats : NULL;
}

/* ---- numbers ---- */
struct room {
    float x[PARTS][MOST], there[PARTS][MOST], got[MOST + 1], want[MOST];
    uint8_t codes[PARTS][4 * MOST + 64];
    uint16_t narrow[MOST];
};

/* kind 0: normal; 1: of all sizes; 2: mostly zeros and equal numbers; 3: near the ends of fp32. */
static void fill(float *x, int64_t n, int kind, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        float v = rng_normal(seed, 1, (uint64_t)i);
        uint32_t word = rng_u32(seed, 2, (uint64_t)i);
        if (kind == 1) v = ldexpf(v, (int)(word % 60) - 30);
        if (kind == 2) v = word % 4 ? 0 : copysignf(448, v);
        if (kind == 3) v = word % 3 ? ldexpf(v, -130 - (int)(word % 19)) : ldexpf(fminf(fabsf(v), 0.85f), 128);
        x[i] = v;
    }
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || (memcmp(&a, &b, sizeof a) == 0) || (a == 0 && b == 0);
}

static void check(const struct room *r, enum codec c, const struct format_ops *o, const struct codec_rows *s,
                  const float *want)
{
    for (int64_t i = 0; i < s->rows * s->cols; i++)
        if (!same(r->got[i], want[i]))
            fail_msg("%s by %s, %d rows of %d columns from %d: element %d is %a, wanted %a", codec_row(c)->name,
                     o->name, (int)s->rows, (int)s->cols, (int)s->first, (int)i, (double)r->got[i], (double)want[i]);
}

static const struct codec_rows shapes[] = {
    {1, 1, 0},  {1, 31, 0},  {1, 32, 0}, {1, 33, 0},   {5, 36, 0},  {7, 64, 0}, {3, 100, 0}, {3, 100, 32},
    {2, 70, 5}, {4, 17, 30}, {9, 3, 31}, {1, 999, 64}, {61, 67, 0}, {0, 12, 0}, {3, 0, 0},   {16, 256, 96},
};
enum { SHAPES = (int)(sizeof shapes / sizeof *shapes) };

static size_t encode(struct room *r, const struct format_ops *o, enum codec c, const struct codec_rows *s, int part,
                     struct team *team)
{
    size_t bytes = codec_bytes(c, s, DT_F32);
    memset(r->codes[part], GUARD, sizeof r->codes[part]);
    o->encode_rows(team, &(struct codec_args){.codec = c,
                                              .shape = *s,
                                              .x = r->x[part],
                                              .t = DT_F32,
                                              .codes = r->codes[part]});
    assert_int_equal(r->codes[part][bytes], GUARD);
    return bytes;
}

static void each_arrives_as_defined(void **state)
{
    struct room *r = *state;
    for (int threads = 1; threads <= 3; threads++) {
        struct team *team = team_new(threads);
        for (int i = 0; build(i); i++)
            for (int k = 0; k < SHAPES * 4; k++)
                for (enum codec c = 0; c < CODEC_N; c++) {
                    const struct codec_rows *s = &shapes[k / 4];
                    struct codec_args a =
                        {.codec = c, .shape = *s, .x = r->got, .t = DT_F32, .codes = r->codes[0], .parts = 1};
                    fill(r->x[0], s->rows * s->cols, k % 4, (uint64_t)k);
                    codec_defined(c, r->x[0], s, r->want);
                    encode(r, build(i), c, s, 0, team);
                    r->got[s->rows * s->cols] = 12345;
                    build(i)->decode_rows(team, &a);
                    check(r, c, build(i), s, r->want);
                    assert_true(r->got[s->rows * s->cols] == 12345);
                    memcpy(r->x[0], r->got, sizeof r->x[0]); /* and again: unchanged */
                    encode(r, build(i), c, s, 0, team);
                    build(i)->decode_rows(team, &a);
                    check(r, c, build(i), s, r->want);
                }
        team_free(team);
    }
}

/* Codes and scales themselves are the reference's. */
static void builds_write_the_same_bytes(void **state)
{
    struct room *r = *state;
    for (int k = 0; k < SHAPES * 4; k++)
        for (enum codec c = 0; c < CODEC_N; c++) {
            fill(r->x[0], shapes[k / 4].rows * shapes[k / 4].cols, k % 4, 100 + (uint64_t)k);
            memcpy(r->x[1], r->x[0], sizeof r->x[1]);
            size_t bytes = encode(r, &format_ops_ref, c, &shapes[k / 4], 0, NULL);
            for (int i = 1; build(i); i++) {
                encode(r, build(i), c, &shapes[k / 4], 1, NULL);
                assert_memory_equal(r->codes[1], r->codes[0], bytes);
            }
        }
}

/* fp32 in the order of the parts, rounded once, added to what is there or not. */
static void sums_are_in_order(void **state)
{
    struct room *r = *state;
    struct team *team = team_new(2);
    for (int i = 0; build(i); i++)
        for (int k = 0; k < SHAPES; k++)
            for (enum codec c = 0; c < CODEC_N; c++)
                for (int add = 0; add < 2; add++) {
                    const struct codec_rows *s = &shapes[k];
                    int64_t n = s->rows * s->cols;
                    for (int p = 0; p < PARTS; p++) {
                        fill(r->x[p], n, p % 2, 7 + (uint64_t)p);
                        codec_defined(c, r->x[p], s, r->there[p]);
                        encode(r, build(i), c, s, p, team);
                    }
                    fill(r->got, n, 0, 99);
                    for (int64_t j = 0; j < n; j++) {
                        float sum = ((r->there[0][j] + r->there[1][j]) + r->there[2][j]) + r->there[3][j];
                        r->want[j] = add ? r->got[j] + sum : sum;
                    }
                    struct codec_args a = {.codec = c,
                                           .shape = *s,
                                           .x = r->got,
                                           .t = DT_F32,
                                           .codes = r->codes[0],
                                           .parts = PARTS,
                                           .stride = sizeof r->codes[0],
                                           .add = add};
                    build(i)->decode_rows(team, &a);
                    check(r, c, build(i), s, r->want);
                }
    team_free(team);
}

/* From and to 16 bits: as if they had been fp32, and rounded once. */
static void narrow_numbers_travel_too(void **state)
{
    struct room *r = *state;
    for (int i = 0; build(i); i++)
        for (int k = 0; k < 2 * SHAPES; k++)
            for (enum codec c = 0; c < CODEC_N; c++) {
                const struct codec_rows *s = &shapes[k / 2];
                int64_t n = s->rows * s->cols;
                enum dtype t = k % 2 ? DT_F16 : DT_BF16;
                fill(r->x[0], n, 0, 3);
                for (int64_t j = 0; j < n; j++) {
                    r->narrow[j] = t == DT_F16 ? f16_from_f32(r->x[0][j]) : bf16_from_f32(r->x[0][j]);
                    r->x[0][j] = t == DT_F16 ? f16_to_f32(r->narrow[j]) : bf16_to_f32(r->narrow[j]);
                }
                codec_defined(c, r->x[0], s, r->want);
                struct codec_args a =
                    {.codec = c, .shape = *s, .x = r->narrow, .t = t, .codes = r->codes[0], .parts = 1};
                build(i)->encode_rows(NULL, &a);
                memset(r->narrow, 0, sizeof r->narrow);
                build(i)->decode_rows(NULL, &a);
                for (int64_t j = 0; j < n; j++) {
                    r->got[j] = t == DT_F16 ? f16_to_f32(r->narrow[j]) : bf16_to_f32(r->narrow[j]);
                    r->want[j] =
                        t == DT_F16 ? f16_to_f32(f16_from_f32(r->want[j])) : bf16_to_f32(bf16_from_f32(r->want[j]));
                }
                check(r, c, build(i), s, r->want);
            }
}

/* One number that is not finite, anywhere: its block is NaN (bf16: itself), the others are as they were. */
static void what_is_not_finite_arrives(void **state)
{
    struct room *r = *state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct codec_rows s = {2, 70, 5};
    for (int i = 0; build(i); i++)
        for (enum codec c = 0; c < CODEC_N; c++)
            for (int64_t at = 0; at < 140; at++) {
                fill(r->x[0], 140, 0, 8);
                r->x[0][at] = bad[at % 3];
                codec_defined(c, r->x[0], &s, r->want);
                encode(r, build(i), c, &s, 0, NULL);
                build(i)->decode_rows(NULL, &(struct codec_args){.codec = c,
                                                                 .shape = s,
                                                                 .x = r->got,
                                                                 .t = DT_F32,
                                                                 .codes = r->codes[0],
                                                                 .parts = 1});
                check(r, c, build(i), &s, r->want);
                assert_false(isfinite(r->got[at]));
                int gone = 0;
                for (int64_t j = 0; j < 140; j++) gone += !isfinite(r->got[j]);
                assert_in_range(gone, 1, c <= CODEC_BF16 ? 1 : 32);
            }
}

/* Rows and, from multiples of a block on, columns of a matrix arrive as they do with the rest of it. */
static void parts_are_parts_of_the_whole(void **state)
{
    struct room *r = *state;
    enum { ROWS = 9, COLS = 160, FROM = 64, N = 70 };
    struct codec_rows whole = {ROWS, COLS, 0}, part = {4, N, FROM};
    for (enum codec c = 0; c < CODEC_N; c++) {
        fill(r->x[0], (int64_t)ROWS * COLS, 1, 5);
        encode(r, &format_ops_cpu, c, &whole, 0, NULL);
        struct codec_args a =
            {.codec = c, .shape = whole, .x = r->there[0], .t = DT_F32, .codes = r->codes[0], .parts = 1};
        format_ops_cpu.decode_rows(NULL, &a);
        for (int y = 0; y < 4; y++) memcpy(r->x[1] + y * N, r->x[0] + (y + 3) * COLS + FROM, N * sizeof(float));
        for (int y = 0; y < 4; y++) /* but for the columns of its last block, of which it has only some */
            memcpy(r->want + y * N, r->there[0] + (y + 3) * COLS + FROM, N * sizeof(float));
        encode(r, &format_ops_cpu, c, &part, 1, NULL);
        format_ops_cpu.decode_rows(NULL, &(struct codec_args){.codec = c,
                                                              .shape = part,
                                                              .x = r->got,
                                                              .t = DT_F32,
                                                              .codes = r->codes[1],
                                                              .parts = 1});
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 64; x++) assert_true(same(r->got[y * N + x], r->want[y * N + x]));
    }
}

static void bytes_are_as_stated(void **state)
{
    (void)state;
    struct codec_rows s = {10, 100, 0}, cut = {10, 100, 31}, odd = {3, 5, 0}, none = {0, 5, 0};
    assert_int_equal(codec_bytes(CODEC_KEPT, &s, DT_F32), 4000);
    assert_int_equal(codec_bytes(CODEC_KEPT, &s, DT_BF16), 2000);
    assert_int_equal(codec_bytes(CODEC_BF16, &s, DT_F32), 2000);
    assert_int_equal(codec_bytes(CODEC_INT8, &s, DT_F32), 1000 + 40);
    assert_int_equal(codec_bytes(CODEC_FP8, &cut, DT_F32), 1000 + 52); /* 50 blocks, and up to a multiple of 4 */
    assert_int_equal(codec_blocks(&cut), 5);
    assert_int_equal(codec_block_at(&cut, 1), 1);
    assert_int_equal(codec_block_at(&cut, 5), 100);
    assert_int_equal(codec_bytes(CODEC_FP8_E5M2, &odd, DT_F32), 20);
    assert_int_equal(codec_bytes(CODEC_BF16, &odd, DT_F32), 32);
    assert_int_equal(codec_bytes(CODEC_INT8, &none, DT_F32), 0);
}

/* The last numbers before 2^128 round to it: Inf, not a number that is nearly right. */
static void what_rounds_past_the_end_is_not_finite(void **state)
{
    struct room *r = *state;
    struct codec_rows s = {1, 32, 0};
    for (int i = 0; build(i); i++)
        for (enum codec c = CODEC_BF16; c < CODEC_INT8; c++) {
            fill(r->x[0], 32, 0, 8);
            r->x[0][3] = 0x1.fffffep127f;
            encode(r, build(i), c, &s, 0, NULL);
            build(i)->decode_rows(NULL, &(struct codec_args){.codec = c,
                                                             .shape = s,
                                                             .x = r->got,
                                                             .t = DT_F32,
                                                             .codes = r->codes[0],
                                                             .parts = 1});
            assert_true(isinf(r->got[3]));
            assert_true(isfinite(r->got[4]));
        }
}

static int setup(void **state)
{
    *state = xcalloc(1, sizeof(struct room));
    return 0;
}
static int teardown(void **state)
{
    xfree(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_arrives_as_defined),
        cmocka_unit_test(builds_write_the_same_bytes),
        cmocka_unit_test(sums_are_in_order),
        cmocka_unit_test(narrow_numbers_travel_too),
        cmocka_unit_test(what_is_not_finite_arrives),
        cmocka_unit_test(parts_are_parts_of_the_whole),
        cmocka_unit_test(what_rounds_past_the_end_is_not_finite),
        cmocka_unit_test(bytes_are_as_stated),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
