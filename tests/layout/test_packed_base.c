/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices in few bits: the codes, scales and values of bitsandbytes (tests/golden/make_packing.py), the nearest of a
 * table found by looking at all of it, and boxes of a matrix that say what the whole says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/mem.h"
#include "kernel/formats.h"
#include "kernel/packed_rows.h"
#include "layout/bits.h"

enum { ROWS = 80, COLS = 256, BLOCK = 64, BLOCKS = ROWS * COLS / BLOCK };

static void matrix(float *x)
{
    uint32_t word = 12345;
    for (int i = 0; i < ROWS * COLS; i++) {
        word = word * 1664525u + 1013904223u;
        x[i] = ldexpf((float)((int)(word >> 8) - (1 << 23)), -26 - i / COLS % 3);
    }
    memset(x + 7 * COLS, 0, BLOCK * sizeof *x);
}

struct packed {
    uint8_t *codes, *scales;
    float *groups;
    int64_t n_groups;
};

static struct packed pack(enum packing kind, const float *x, int64_t rows, int64_t cols)
{
    const int64_t block = packing_row(kind)->block, blocks = packing_row_blocks(kind, cols);
    const int64_t width = packing_row_bytes(kind, cols), per = packing_row(kind)->per_byte;
    struct packed p = {.codes = xcalloc((size_t)(rows * width), 1),
                       .scales = xmalloc((size_t)(rows * blocks)),
                       .n_groups = packing_groups(kind, rows, cols)};
    p.groups = xmalloc((size_t)(p.n_groups + 1) * sizeof *p.groups);
    float *scale = xmalloc((size_t)(rows * blocks) * sizeof *scale);
    uint8_t code[64];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t at = k * block, n = cols - at < block ? cols - at : block;
            scale[r * blocks + k] = packing_encode(kind, x + r * cols + at, n, code);
            for (int64_t c = 0; c < n; c++)
                p.codes[r * width + (at + c) / per] |= (uint8_t)(code[c] << (per == 1 || c % 2 ? 0 : 4));
        }
    packing_encode_scales(kind, scale, rows * blocks, p.scales, p.groups);
    xfree(scale);
    return p;
}

static void packed_free(struct packed *p)
{
    xfree(p->codes);
    xfree(p->scales);
    xfree(p->groups);
}

static struct packed_args args_of(enum packing kind, const struct packed *p, int64_t rows, int64_t cols, float *x)
{
    return (struct packed_args){.packing = kind,
                                .rows = rows,
                                .cols = cols,
                                .row_blocks = packing_row_blocks(kind, cols),
                                .codes = p->codes,
                                .scales = p->scales,
                                .groups = p->n_groups ? p->groups : NULL,
                                .n_groups = p->n_groups,
                                .x = x,
                                .t = DT_F32};
}

/* ---- bitsandbytes ---- */
static const char *line_of(const char *text, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "\n%s ", name);
    const char *at = strstr(text, key);
    if (!at) fail_msg("packing.txt has no line %s", name);
    return at + strlen(key);
}

/* fp32 may differ in its last bit: they make their map and their mean in fp32. */
static void same(const char *text, const char *name, int64_t i, uint32_t ours, bool real)
{
    const char *at = line_of(text, name);
    for (int64_t k = 0; k < i; k++) strtoul(at, (char **)(uintptr_t)&at, 16);
    uint32_t theirs = (uint32_t)strtoul(at, NULL, 16);
    bool near =
        real && (ours == theirs || fabsf(float_of(ours) - float_of(theirs)) <= 2.5e-7f * fabsf(float_of(theirs)));
    if (ours != theirs && !near) fail_msg("%s %lld: %x, bitsandbytes has %x", name, (long long)i, ours, theirs);
}

static void test_what_bitsandbytes_makes(void **state)
{
    (void)state;
    static float x[ROWS * COLS], back[ROWS * COLS];
    float map[PACKING_MAP];
    char *text;
    size_t n;
    struct err e;
    if (fs_read_all(TEST_DIR "/layout/packing.txt", 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    matrix(x);
    packing_map(map);
    struct packed p = pack(PACKING_NF4, x, ROWS, COLS);
    struct packed_args a = args_of(PACKING_NF4, &p, ROWS, COLS, back);
    packed_unpack_ref(NULL, &a);
    assert_int_equal(p.n_groups, 3);
    for (int i = 0; i < PACKING_MAP; i++) same(text, "map", i, float_bits(map[i]), true);
    for (int i = 0; i * 7 < ROWS * COLS / 2; i++) same(text, "codes", i, p.codes[i * 7], false);
    for (int i = 0; i < BLOCKS; i++) same(text, "scales", i, p.scales[i], false);
    for (int i = 0; i < 2; i++) same(text, "groups", i, float_bits(p.groups[i]), true);
    same(text, "mean", 0, float_bits(p.groups[2]), true);
    for (int i = 0; i * 97 < ROWS * COLS; i++) same(text, "values", i, float_bits(back[i * 97]), true);
    packed_free(&p);
    xfree(text);
}

/* ---- the nearest ---- */
static void test_codes_are_the_nearest(void **state)
{
    (void)state;
    static float x[ROWS * COLS], back[ROWS * COLS];
    matrix(x);
    for (int kind = PACKING_NF4; kind <= PACKING_MXFP4; kind++) {
        const int cols = 250; /* the last block of a row is short */
        const int64_t block = packing_row((enum packing)kind)->block;
        float value[PACKING_CODES], codes_worst = 0;
        struct packed p = pack((enum packing)kind, x, ROWS, cols);
        struct packed_args a = args_of((enum packing)kind, &p, ROWS, cols, back);
        struct packed_scales s;
        packed_unpack_ref(NULL, &a);
        packed_scales_init(&s, &a);
        packing_table((enum packing)kind, value);
        for (int i = 0; i < ROWS * cols; i++) {
            int64_t r = i / cols, c = i % cols, k = c / block, end = (k + 1) * block < cols ? (k + 1) * block : cols;
            float scale = packed_scale(&s, r, k), largest = 0, least = INFINITY;
            for (int64_t j = k * block; j < end; j++) largest = fmaxf(largest, fabsf(x[r * cols + j]));
            float by = kind == PACKING_NF4 ? largest : scale;
            for (int j = 0; j < PACKING_CODES; j++) least = fminf(least, fabsf(value[j] * by - x[i]));
            int code = c % 2 ? p.codes[r * cols / 2 + c / 2] & 15 : p.codes[r * cols / 2 + c / 2] >> 4;
            float off = fabsf(value[code] * by - x[i]);
            if (off > least * 1.00001f + 1e-9f) fail_msg("%d: %g has code %d", i, (double)x[i], code);
            if (back[i] != value[code] * scale) fail_msg("%d: %g is read as %g", i, (double)x[i], (double)back[i]);
            if (kind == PACKING_MXFP4 && largest > 6 * scale) fail_msg("%g is past the largest code", (double)largest);
            if (kind == PACKING_NF4) codes_worst = fmaxf(codes_worst, fabsf(scale - largest));
        }
        if (codes_worst > 0.01f) fail_msg("a scale of %g is lost", (double)codes_worst);
        packed_free(&p);
    }
}

/* ---- codes of 8 bits ---- */
/* The scale is the least power of two with which nothing is cut off, a number is half of it off at most, and what comes
 * back is a number of bf16. */
static void test_codes_of_8_bits(void **state)
{
    (void)state;
    enum { N = 32 };
    static const float largest[] = {0,     1,       127,     127.0001f,      128,          254,          254.1f,
                                    1e-3f, 3.4e38f, 1.7e38f, 1.1754944e-38f, 0x1.fcp-121f, 0x1.fep-121f, 1e-40f};
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
        float x[N];
        uint8_t codes[N], scale;
        for (int k = 0; k < N; k++) x[k] = largest[i] * ((k % 2 ? -1.0f : 1.0f) * (float)(N - k) / N);
        float by = packing_encode(PACKING_INT8, x, N, codes), most = 0;
        packing_encode_scales(PACKING_INT8, &by, 1, &scale, NULL);
        struct packed_args a =
            {.packing = PACKING_INT8, .rows = 1, .cols = N, .row_blocks = 1, .codes = codes, .scales = &scale};
        float back[N];
        bf16 narrow[N];
        a.x = back;
        a.t = DT_F32;
        packed_unpack_ref(NULL, &a);
        a.x = narrow;
        a.t = DT_BF16;
        packed_unpack_ref(NULL, &a);
        for (int k = 0; k < N; k++) {
            most = fmaxf(most, fabsf((float)(int8_t)codes[k]));
            double off = fabs((double)back[k] - (double)x[k]);
            if (off > (double)by * (largest[i] > 3.3e38f ? 1 : 0.5)) /* 64 times 2^122 is no number of fp32 */
                fail_msg("%g of at most %g came back as %g, by %g", (double)x[k], (double)largest[i], (double)back[k],
                         (double)by);
            if (bf16_to_f32(narrow[k]) != back[k]) fail_msg("%g is no number of bf16", (double)back[k]);
        }
        if (most > 127) fail_msg("a code of %g", (double)most);
        if (largest[i] > 127 * 0x1p-127f && most < (largest[i] > 3.3e38f ? 63 : 63.5f))
            fail_msg("%g: the largest code is %g", (double)largest[i], (double)most);
        if (largest[i] == 254.0f) assert_true(by == 2);
        if (largest[i] == 254.1f) assert_true(by == 4);
        if (largest[i] == 0) assert_true(back[0] == 0);
    }
    assert_int_equal(packing_row_bytes(PACKING_INT8, 33), 33);
    assert_int_equal(packing_row_bytes(PACKING_NF4, 33), 17);
}

/* ---- boxes ---- */
/* Rows and columns of a matrix, of every type and family, give the bits that the whole gives in the reference. */
static void test_boxes_say_what_the_whole_says(void **state)
{
    (void)state;
    static float x[ROWS * COLS], whole[ROWS * COLS];
    /* the last block of a row of 250 columns is short */
    static const struct format_ops *const family[] = {&format_ops_ref, &format_ops_cpu};
    struct team *team = team_new(3);
    matrix(x);
    for (int kind = PACKING_NF4; kind < PACKING_N; kind++)
        for (int t = 0; t < 12; t++) {
            const enum dtype type = (enum dtype[]){DT_F32, DT_BF16, DT_F16}[t % 3];
            const int wide = t < 9 ? COLS : 250, lo = t % 4 * 13, rows = 17, first = t % 2 * 128,
                      cols = t < 6 ? 128 : wide - first;
            const size_t width = dtype_bytes(type);
            const int64_t block = packing_row((enum packing)kind)->block;
            struct packed p = pack((enum packing)kind, x, ROWS, wide);
            struct packed_args a = args_of((enum packing)kind, &p, ROWS, wide, whole);
            a.t = type;
            packed_unpack_ref(NULL, &a);
            struct packed_args b = a;
            uint8_t *codes = xmalloc((size_t)rows * (size_t)cols), *scales = xmalloc((size_t)rows * (size_t)cols);
            char *out = xmalloc((size_t)rows * (size_t)cols * width);
            for (int r = 0; r < rows; r++) {
                const int64_t to = packing_row_bytes((enum packing)kind, cols);
                memcpy(codes + r * to,
                       p.codes + (lo + r) * packing_row_bytes((enum packing)kind, wide) +
                           packing_row_bytes((enum packing)kind, first),
                       (size_t)to);
                memcpy(scales + r * packing_row_blocks((enum packing)kind, cols),
                       p.scales + (lo + r) * b.row_blocks + first / block,
                       (size_t)packing_row_blocks((enum packing)kind, cols));
            }
            b.rows = rows;
            b.cols = cols;
            b.first = lo * b.row_blocks + first / block;
            b.codes = codes;
            b.scales = scales;
            b.x = out;
            family[t % 2]->unpack(team, &b);
            for (int r = 0; r < rows; r++)
                assert_memory_equal(out + (size_t)(r * cols) * width,
                                    (char *)whole + (size_t)((lo + r) * wide + first) * width, (size_t)cols * width);
            xfree(out);
            xfree(scales);
            xfree(codes);
            packed_free(&p);
        }
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_bitsandbytes_makes),
        cmocka_unit_test(test_codes_are_the_nearest),
        cmocka_unit_test(test_codes_of_8_bits),
        cmocka_unit_test(test_boxes_say_what_the_whole_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
