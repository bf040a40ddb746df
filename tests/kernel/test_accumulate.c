/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Sums as tensor cores make them: one instruction of an H100, and whole FP8 products of its cuBLAS, to the bit; and the
 * families that stand in front of the table, which must have the same sums in every direction.
 *
 * fixtures/h100_products.txt: KIND a b c d, hex, as scripts/cuda/products.cu prints them: d = c + sum of a_i b_i.
 * fixtures/h100_linear.txt: NAME rows columns hex: operands as codes, descales, and the first rows of what cuBLAS makes
 * of them: `fast` with its fast accumulation, `slow` without, block_ with 1 x 128 and 128 x 128 blocks. */
#include "harness.h"

#include <stdlib.h>

#include "kernel/ref/accumulate.h"
#include "layout/format.h"
#include "layout/bits.h"

static double value_of(enum format f, uint32_t code) { return (double)format_decode(f, code); }

static FILE *fixture(const char *name)
{
    char path[500];
    snprintf(path, sizeof path, "%s/kernel/fixtures/%s", TEST_DIR, name);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s cannot be read", path);
    return f;
}

/* k codes of `digits` hex digits each, ready. */
static void read_codes(const char *hex, enum format f, int k, struct accumulate_term *out)
{
    const int digits = 2 * format_info(f).bytes;
    for (int i = 0; i < k; i++) {
        char one[9] = {0};
        memcpy(one, hex + i * digits, (size_t)digits);
        out[i] = accumulate_term((float)value_of(f, (uint32_t)strtoul(one, NULL, 16)), format_info(f).lowest);
    }
}

static const struct kind {
    const char *name;
    enum format a, b;
    bool fp8;
} kinds[] = {
    {"wgmma-bf16", FORMAT_BF16, FORMAT_BF16, false},
    {"wgmma-f16", FORMAT_F16, FORMAT_F16, false},
    {"wgmma-e4m3", FORMAT_E4M3, FORMAT_E4M3, true},
    {"wgmma-e5m2e4m3", FORMAT_E5M2, FORMAT_E4M3, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void test_one_instruction(void **state)
{
    (void)state;
    const struct accumulate_way *hopper = &accumulate_ways[1];
    FILE *file = fixture("h100_products.txt");
    char name[40], a[200], b[200], c[20], d[20];
    int seen[KINDS] = {0};
    while (fscanf(file, "%39s %199s %199s %19s %19s", name, a, b, c, d) == 5) {
        int i = 0;
        while (i < KINDS && strcmp(name, kinds[i].name) != 0) i++;
        assert_true(i < KINDS);
        const struct accumulate_unit *u = kinds[i].fp8 ? &hopper->fp8 : &hopper->wide;
        struct accumulate_term x[ACCUMULATE_MOST_K], y[ACCUMULATE_MOST_K];
        read_codes(a, kinds[i].a, u->k, x);
        read_codes(b, kinds[i].b, u->k, y);
        uint32_t want = (uint32_t)strtoul(d, NULL, 16),
                 got = float_bits(accumulate_step(u, x, y, u->k, float_of((uint32_t)strtoul(c, NULL, 16))));
        if (got != want) fail_msg("%s %s %s + %s is %08x, not %s", name, a, b, c, got, d);
        seen[i]++;
    }
    fclose(file);
    for (int i = 0; i < KINDS; i++) assert_true(seen[i] >= 40);
}

/* What is not finite. */
static void test_special(void **state)
{
    (void)state;
    const struct accumulate_unit *u = &accumulate_ways[0].wide;
    const float inf = INFINITY;
    struct accumulate_term one = accumulate_term(1, -126), no = accumulate_term(0, -126),
                           big = accumulate_term(inf, -126), less = accumulate_term(-inf, -126),
                           nan = accumulate_term(NAN, -126);
    assert_true(accumulate_step(u, &big, &one, 1, 0) == inf);
    assert_int_equal(float_bits(accumulate_step(u, &big, &no, 1, 0)), 0x7fffffff);
    assert_int_equal(float_bits(accumulate_step(u, &nan, &one, 1, 0)), 0x7fffffff);
    assert_int_equal(float_bits(accumulate_step(u, &one, &less, 1, inf)), 0x7fffffff);
    assert_true(accumulate_step(u, &one, &one, 1, -inf) == -inf);
    assert_int_equal(float_bits(accumulate_step(u, &no, &no, 1, 0)), 0);
    struct accumulate_term most = accumulate_term(0x1.fep127f, -126);
    assert_true(accumulate_step(u, &most, &one, 1, 0x1.fffffep127f) == inf);
}

/* ---- whole products ---- */
enum { MOST = 30 };
struct fixture_tensor {
    char name[40];
    int rows, cols, digits;
    char *hex;
};
static struct fixture_tensor tensors[MOST];
static int n_tensors;

static void read_tensors(void)
{
    FILE *file = fixture("h100_linear.txt");
    static char hex[100000];
    for (struct fixture_tensor *t = tensors; n_tensors < MOST; t++, n_tensors++) {
        if (fscanf(file, "%39s %d %d %99999s", t->name, &t->rows, &t->cols, hex) != 4) break;
        t->hex = xmalloc(strlen(hex) + 1);
        strcpy(t->hex, hex);
        t->digits = (int)strlen(hex) / (t->rows * t->cols);
    }
    fclose(file);
}
static const struct fixture_tensor *tensor(const char *name)
{
    for (int i = 0; i < n_tensors; i++)
        if (!strcmp(tensors[i].name, name)) return &tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}
static uint32_t word(const struct fixture_tensor *t, int64_t r, int64_t c)
{
    char one[9] = {0};
    memcpy(one, t->hex + (r * t->cols + c) * t->digits, (size_t)t->digits);
    return (uint32_t)strtoul(one, NULL, 16);
}

/* Codes as bf16 values; fp32 as they are. */
static struct view codes(struct kcase *k, const char *name, enum format f)
{
    const struct fixture_tensor *t = tensor(name);
    struct view v = kcase_tensor(k, DT_BF16, t->rows, t->cols);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++) view_set(&v, r, c, value_of(f, word(t, r, c)));
    return v;
}
static struct view numbers(struct kcase *k, const char *name)
{
    const struct fixture_tensor *t = tensor(name);
    bool one = t->rows == 1 && t->cols == 1;
    struct view v = kcase_tensor(k, DT_F32, one ? 1 : t->rows, one ? 0 : t->cols);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++) view_set(&v, r, c, (double)float_of(word(t, r, c)));
    return v;
}

/* The result's first rows and columns are the machine's. */
static void check_result(const struct view *got, const char *name)
{
    const struct fixture_tensor *t = tensor(name);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++) {
            uint32_t mine = float_bits((float)view_get(got, r, c)), want = word(t, r, c);
            if (mine != want)
                fail_msg("%s at (%lld, %lld) is %08x, an H100's %08x", name, (long long)r, (long long)c, mine, want);
        }
}

static struct view fresh(struct kcase *k, int64_t rows, int64_t cols) { return kcase_tensor(k, DT_F32, rows, cols); }

static void run(struct kcase *k, const char *way, enum kernel_phase phase)
{
    struct kernel_table t;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&t, "auto", 2, false, &e), OK);
    assert_int_equal(kernel_table_accumulate(&t, way, &e), OK);
    struct kernel_call c = kcase_call(k, phase);
    const char *family = NULL;
    assert_non_null(kernel_find(&t, &c, &family));
    assert_string_equal(family, way);
    for (int f = 1; f <= 2; f++) assert_true(kcase_run(&c, t.chain[0], f));
}

static void test_cublas_by_tensor(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        const char *way = slow ? "hopper-fp8-promoted" : "hopper-fp8";
        struct kcase k = {.op = OP_LINEAR_SCALED, .seed = 5};
        k.at = op_attrs_zero(OP_LINEAR_SCALED);
        k.in[0] = codes(&k, "x_codes", FORMAT_E4M3);
        k.in[1] = codes(&k, "w_codes", FORMAT_E4M3);
        k.in[3] = numbers(&k, "x_descale");
        k.in[4] = numbers(&k, "w_descale");
        k.in[5] = numbers(&k, "dy_descale");
        k.n_in = 6;
        k.n_out = 1;
        struct linear_scaled_attrs *at = edit_linear_scaled(&k.at);
        at->x.of = at->w.of = FORMAT_E4M3;
        at->dy.of = FORMAT_E5M2;
        int64_t t = k.in[0].n[0], in = k.in[0].n[1], out = k.in[1].n[0];
        k.out[0] = fresh(&k, t, out);
        k.dout[0] = codes(&k, "dy_codes", FORMAT_E5M2);
        k.din[0] = fresh(&k, t, in);
        k.din[1] = fresh(&k, out, in);
        for (int phase = 0; phase < KERNEL_N_PHASES; phase++) run(&k, way, (enum kernel_phase)phase);
        check_result(&k.out[0], slow ? "y_slow_first_rows" : "y_fast_first_rows");
        check_result(&k.din[0], slow ? "dx_slow_first_rows" : "dx_fast_first_rows");
        check_result(&k.din[1], slow ? "dw_slow_first_rows" : "dw_fast_first_rows");
        kcase_free(&k);
    }
}

static void test_cublas_by_block(void **state)
{
    (void)state;
    struct kcase k = {.op = OP_LINEAR_SCALED, .seed = 6};
    k.at = op_attrs_zero(OP_LINEAR_SCALED);
    k.in[0] = codes(&k, "block_x_codes", FORMAT_E4M3);
    k.in[1] = codes(&k, "block_w_codes", FORMAT_E4M3);
    k.in[3] = numbers(&k, "block_x_descale");
    k.in[4] = numbers(&k, "block_w_descale");
    k.n_in = 5;
    k.n_out = 1;
    struct linear_scaled_attrs *at = edit_linear_scaled(&k.at);
    at->x = (struct scale_blocks){.rows = 1, .cols = 128, .of = FORMAT_E4M3};
    at->w = (struct scale_blocks){.rows = 128, .cols = 128, .of = FORMAT_E4M3};
    k.out[0] = fresh(&k, k.in[0].n[0], k.in[1].n[0]);
    run(&k, "hopper-fp8-promoted", KERNEL_FWD);
    check_result(&k.out[0], "block_y");
    kcase_free(&k);
}

/* The codes and descales that the machine's library made of the same numbers are those of QUANTISE. */
static void test_quantise_as_there(void **state)
{
    (void)state;
    static const char *const name[2][4] = {{"x_first_rows", "x_amax", "x_codes", "x_descale"},
                                           {"w_first_rows", "w_amax", "w_codes", "w_descale"}};
    for (int i = 0; i < 2; i++) {
        struct kcase k = {.op = OP_QUANTISE, .dtype = DT_BF16, .seed = 8, .n_in = 2};
        k.at = ATTRS(quantise, .format = FORMAT_E4M3);
        const struct fixture_tensor *x = tensor(name[i][0]), *q = tensor(name[i][2]);
        k.in[0] = kcase_tensor(&k, DT_BF16, x->rows, x->cols);
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t c = 0; c < x->cols; c++) view_set(&k.in[0], r, c, (double)bf16_to_f32((bf16)word(x, r, c)));
        k.in[1] = numbers(&k, name[i][1]);
        kcase_outputs(&k);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t c = 0; c < x->cols; c++)
                assert_true(view_get(&k.out[0], r, c) == value_of(FORMAT_E4M3, word(q, r, c)));
        assert_int_equal(float_bits((float)view_get(&k.out[1], 0, 0)), word(tensor(name[i][3]), 0, 0));
        kcase_free(&k);
    }
}

/* LINEAR and GROUPED: each element is the chain of its operands, on top of what was there; bias; other ways differ. */
static void test_linear_is_the_chain(void **state)
{
    (void)state;
    for (int w = 0; w < ACCUMULATE_WAYS; w++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct kcase k, spare = {0};
            kcase_random(&k, OP_LINEAR, seed % 2 ? DT_F16 : DT_BF16, seed);
            const struct accumulate_unit *u = &accumulate_ways[w].wide;
            run(&k, accumulate_ways[w].name, KERNEL_FWD);
            int64_t n_k = k.in[0].n[1];
            int lowest = k.dtype == DT_F16 ? -14 : -126;
            struct accumulate_term *a = xmalloc((size_t)n_k * sizeof *a), *b = xmalloc((size_t)n_k * sizeof *b);
            for (int64_t r = 0; r < k.in[0].n[0]; r++)
                for (int64_t c = 0; c < k.in[1].n[0]; c++) {
                    for (int64_t i = 0; i < n_k; i++) {
                        a[i] = accumulate_term((float)view_get(&k.in[0], r, i), lowest);
                        b[i] = accumulate_term((float)view_get(&k.in[1], c, i), lowest);
                    }
                    float want = accumulate_chain(u, 0, a, b, n_k);
                    if (k.n_in > 2) want += (float)view_get(&k.in[2], 0, c);
                    struct view one = kcase_tensor(&spare, k.dtype, 1, 0);
                    view_set(&one, 0, 0, (double)want);
                    assert_true(view_get(&k.out[0], r, c) == view_get(&one, 0, 0));
                    kcase_free(&spare);
                }
            xfree(a);
            xfree(b);
            kcase_free(&k);
        }
}

/* Every direction of LINEAR and GROUPED is near the reference's. */
static void test_near_the_reference(void **state)
{
    (void)state;
    for (int w = 0; w < ACCUMULATE_WAYS; w++)
        for (int grouped = 0; grouped < 2; grouped++)
            for (uint64_t seed = 0; seed < 6; seed++) {
                struct kcase k;
                kcase_random(&k, grouped ? OP_GROUPED : OP_LINEAR, DT_BF16, seed);
                assert_true(kcase_forward(&k, &kernel_family_ref, 1) && kcase_backward(&k, &kernel_family_ref, 1));
                struct view out = kcase_clone(&k, &k.out[0]), dx = kcase_clone(&k, &k.din[0]),
                            dw = kcase_clone(&k, &k.din[1]);
                for (int phase = 0; phase < KERNEL_N_PHASES; phase++)
                    run(&k, accumulate_ways[w].name, (enum kernel_phase)phase);
                kcase_check_gaps(&k);
                assert_true(view_distance(&k.out[0], &out) < 0.008);
                assert_true(view_distance(&k.din[0], &dx) < 0.008);
                assert_true(view_distance(&k.din[1], &dw) < 1e-4);
                kcase_free(&k);
            }
}

static void test_names(void **state)
{
    (void)state;
    struct kernel_table t;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&t, "ref", 1, false, &e), OK);
    assert_int_equal(kernel_table_accumulate(&t, "fp32", &e), OK);
    assert_ptr_equal(t.chain[0], &kernel_family_ref);
    assert_true(kernel_table_accumulate(&t, "volta", &e) != OK);
    assert_non_null(strstr(e.text, "hopper-fp8-promoted"));
}

static int read_all(void **state)
{
    (void)state;
    read_tensors();
    return 0;
}
static int forget(void **state)
{
    (void)state;
    for (int i = 0; i < n_tensors; i++) xfree(tensors[i].hex);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_instruction),    cmocka_unit_test(test_special),
        cmocka_unit_test(test_cublas_by_tensor),   cmocka_unit_test(test_cublas_by_block),
        cmocka_unit_test(test_quantise_as_there),  cmocka_unit_test(test_linear_is_the_chain),
        cmocka_unit_test(test_near_the_reference), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, read_all, forget);
}
