/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Products with matrices in few bits, to the bit: each pair of codes is told apart by a row of x that takes one number
 * from another, whose difference no rounding hides; a few rows and many, whose ways differ, give the same. Rows are cut
 * from several matrices, each with groups of its own. test_rows.c holds random calls against the reference. */
#include "each_isa.h"
#include "harness.h"
#include "kernel/codes_product.h"
#include "kernel/cpu/bits/codes_product.h"

enum { COLS = 64, PAIRS = 256, MANY = 40 };

/* A row for each pair of codes, at places that differ from row to row, in two matrices of unlike groups. */
static void build_pairs(struct kcase *k, enum packing packing, int64_t tokens)
{
    const bool bytes = packing_row(packing)->per_byte == 1, grouped = packing_row(packing)->grouped;
    const int64_t blocks = packing_row_blocks(packing, COLS);
    struct coded_attrs a = {.packing = packing, .row_blocks = blocks + 1, .n_parts = 2};
    for (int p = 0; p < 2; p++)
        a.part[p] = (struct coded_part){.rows = PAIRS / 2, .first = 250 + p, .n_groups = grouped ? 4 : 0};
    k->in[1] = kcase_bytes(k, PAIRS, packing_row_bytes(packing, COLS));
    k->in[2] = kcase_bytes(k, PAIRS, blocks);
    k->n_in = 6;
    kcase_scales(k, &a, 1);
    if (grouped)
        for (int i = 0; i < 8; i++)
            view_set(&k->in[CODED_GROUPS], 0, i, i % 4 == 3 ? 0.21 + 0.03 * i : 0.1 + 0.011 * i);
    k->in[0] = kcase_tensor(k, k->dtype, tokens, COLS);
    view_fill_zero(&k->in[0]);
    for (int64_t t = 0; t < tokens; t++) {
        view_set(&k->in[0], t, t % COLS, 1);
        view_set(&k->in[0], t, (t * 7 + 3) % COLS, -1);
    }
    for (int64_t n = 0; n < PAIRS; n++)
        for (int64_t c = 0; c < COLS; c++) {
            uint8_t *at = (uint8_t *)k->in[1].p + n * k->in[1].n[1];
            int64_t code = c % 2 ? n % 16 : n / 16;
            if (bytes) at[c] = (uint8_t)(c % 2 ? 127 - n % 128 : n - 128);
            else if (c % 2) at[c / 2] = (uint8_t)((at[c / 2] & 0xf0) | code);
            else at[c / 2] = (uint8_t)((at[c / 2] & 15) | code << 4);
        }
    k->at = attrs_coded(a);
    kcase_outputs(k);
}

static void test_pairs(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 2, 3, 4, 7, 8, 9, MANY};
    for (int p = PACKING_NF4; p < PACKING_N; p++)
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
                struct kcase k = {.op = OP_CODED, .dtype = t ? DT_BF16 : DT_F32, .seed = 11 + (uint64_t)p};
                build_pairs(&k, (enum packing)p, tokens[i]);
                assert_true(kcase_forward(&k, &kernel_family_ref, 1));
                struct view want = kcase_clone(&k, &k.out[0]);
                double most = view_max(&want);
                view_fill_zero(&k.out[0]);
                bool ran = kcase_forward(&k, &kernel_family_cpu, 2);
                assert_true(ran == (cpu_isa() > ISA_REF));
                const bool by_integers = t && cpu_isa() >= coded_registers.needs && coded_registers.fix;
                if (p == PACKING_NF4 && by_integers && tokens[i] <= CODED_FEW) ran = false; /* test_integers */
                if (ran && !view_same_bits(&k.out[0], &want))
                    fail_msg("%s, %s, %d rows: other bits than the reference", packing_row((enum packing)p)->name,
                             dtype_name(k.dtype), (int)tokens[i]);
                assert_true(most > 0.05);
                kcase_free(&k);
            }
}

/* The reference itself, against what unpacking says: a row of x that picks one number gives it. */
static void test_reference(void **state)
{
    (void)state;
    for (int p = PACKING_NF4; p < PACKING_N; p++) {
        struct kcase k = {.op = OP_CODED, .dtype = DT_F32, .seed = 3};
        float row[COLS];
        build_pairs(&k, (enum packing)p, COLS);
        view_fill_zero(&k.in[0]);
        for (int64_t c = 0; c < COLS; c++) view_set(&k.in[0], c, c, 1);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        struct kernel_call call = kcase_call(&k, KERNEL_FWD);
        for (int64_t n = 0; n < PAIRS; n++) {
            struct packed_args a;
            assert_int_equal(coded_rows(&call, n, PAIRS, &a), n < PAIRS / 2 ? PAIRS / 2 - n : PAIRS - n);
            const int64_t part = n / (PAIRS / 2);
            assert_int_equal(a.first, 250 + part + n % (PAIRS / 2) * a.row_blocks);
            if (a.groups) assert_true(a.groups == (const float *)k.in[CODED_GROUPS].p + part * 4 && a.n_groups == 4);
            a.rows = 1;
            a.x = row;
            packed_unpack_ref(NULL, &a);
            for (int64_t c = 0; c < COLS; c++) assert_true(view_get(&k.out[0], c, n) == (double)row[c]);
        }
        kcase_free(&k);
    }
}

/* More codes than a panel has room for, the last panel shorter than the others: the ordinary product's bits, which it
 * has with the same numbers as whole weights, and a bias that goes on where the panel begins. */
static void panels_of(int64_t deep, int64_t rows)
{
    enum { TOKENS = 9 };
    for (int t = 0; t < 2 && cpu_isa() > ISA_REF; t++) {
        struct kcase k = {.op = OP_CODED, .dtype = t ? DT_BF16 : DT_F32, .seed = 3}, w = {.op = OP_LINEAR};
        struct coded_attrs a = {.packing = PACKING_MXFP4, .row_blocks = deep / 32, .n_parts = 2};
        a.part[0].rows = 500;
        a.part[1].rows = rows - 500;
        k.in[0] = kcase_floats(&k, TOKENS, deep, 1);
        k.in[1] = kcase_bytes(&k, rows, deep / 2);
        k.in[2] = kcase_bytes(&k, rows, deep / 32);
        kcase_scales(&k, &a, 1);
        k.in[CODED_BIAS] = kcase_floats(&k, rows, 0, 0.5);
        k.n_in = 6;
        k.at = attrs_coded(a);
        kcase_outputs(&k);
        assert_true(kcase_forward(&k, &kernel_family_cpu, 2));
        w.dtype = k.dtype;
        w.at = op_attrs_zero(OP_LINEAR);
        w.n_in = 3;
        w.in[0] = k.in[0];
        w.in[1] = (struct view){.dtype = k.dtype, .nd = 2, .n = {rows, deep}, .stride = deep};
        kcase_memory(&w, &w.in[1]);
        w.in[2] = k.in[CODED_BIAS];
        struct kernel_call call = kcase_call(&k, KERNEL_FWD);
        for (int64_t r = 0, got; r < rows; r += got) {
            struct packed_args p;
            got = coded_rows(&call, r, rows - r, &p);
            p.x = (char *)w.in[1].p + (size_t)(r * deep) * dtype_bytes(p.t);
            packed_unpack_ref(NULL, &p);
        }
        kcase_outputs(&w);
        assert_true(kcase_forward(&w, &kernel_family_cpu, 1));
        assert_true(view_same_bits(&k.out[0], &w.out[0]));
        kcase_free(&k);
        kcase_free(&w);
    }
}

static void test_panels(void **state)
{
    (void)state;
    panels_of(3 * 1024, 720);
    panels_of(768, 2304);
}

/* ---- by integers ---- */

/* What the header allows row t of x times row n of codes; in *exact their product in double, in *sizes the sum of its
 * terms' sizes. */
static double allowed(const struct kernel_call *call, int64_t t, int64_t n, double *exact, double *sizes)
{
    struct packed_args a;
    struct packed_scales s;
    const struct view *x = &call->in[0];
    const int64_t cols = x->n[1];
    float *w = xmalloc((size_t)cols * sizeof *w);
    double off = 0;
    (void)coded_rows(call, n, 1, &a);
    packed_scales_init(&s, &a);
    a.x = w;
    a.t = DT_F32;
    packed_unpack_ref(NULL, &a);
    *exact = *sizes = 0;
    for (int64_t b = 0; b < cols; b += CODED_FIXED_BLOCK) {
        double largest = 0, sum_w = 0;
        int e;
        for (int64_t c = b; c < b + CODED_FIXED_BLOCK && c < cols; c++) {
            const double v = view_get(x, t, c);
            *exact += v * (double)w[c];
            *sizes += fabs(v * (double)w[c]);
            sum_w += fabs((double)w[c]);
            largest = fabs(v) > largest ? fabs(v) : largest;
            if (a.packing == PACKING_NF4)
                off += 0x1p-15 * fabs((double)packed_scale(&s, 0, c / packing_row(a.packing)->block) * v);
        }
        (void)frexp(largest, &e);
        off += ldexp(sum_w, (e < -96 ? -96 : e) - 16);
    }
    xfree(w);
    const double most = off * (1 + 0x1p-9) + *sizes * (double)(cols + 8) * 0x1p-24;
    int e;
    (void)frexp(fabs(*exact) + most, &e);
    return most + ldexp(1, e - 9); /* the result's own rounding */
}

/* Numbers of x of all sizes, next to each other, and far between blocks; columns that end anywhere. */
static void build_sizes(struct kcase *k, enum packing packing, int64_t tokens, int64_t cols)
{
    const int64_t blocks = packing_row_blocks(packing, cols), rows = 37;
    struct coded_attrs a = {.packing = packing, .row_blocks = blocks, .n_parts = 1};
    a.part[0] = (struct coded_part){.rows = rows, .first = 251, .n_groups = 0};
    if (packing_row(packing)->grouped) a.part[0].n_groups = to_int((251 + rows * blocks) / PACKING_GROUP + 2);
    k->in[1] = kcase_bytes(k, rows, packing_row_bytes(packing, cols));
    k->in[2] = kcase_bytes(k, rows, blocks);
    k->n_in = 6;
    kcase_scales(k, &a, 1);
    if (!packing_row(packing)->grouped) memset(k->in[2].p, 0, (size_t)blocks); /* a row of the least scale, 2^-127 */
    k->in[0] = kcase_tensor(k, k->dtype, tokens, cols);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < cols; c++) {
            const uint32_t r = rng_u32(k->seed, 7, (uint64_t)(t * cols + c));
            const int size = (int)(r % 20) + (int)(c / 32 % 3) * 30;
            view_set(&k->in[0], t, c,
                     c / 32 % 5 == 4 ? 0 : ldexp(r & 1024 ? 1 + r % 7 / 8.0 : -1 - r % 5 / 8.0, 30 - size));
        }
    k->at = attrs_coded(a);
    kcase_outputs(k);
}

static void test_integers(void **state)
{
    (void)state;
    static const int64_t depth[] = {64, 256, 30, 330, 768, 96};
    for (int p = PACKING_NF4; p < PACKING_N; p++)
        for (int i = 0; i < 6; i++)
            for (int64_t m = 1; m <= CODED_FEW && cpu_isa() > ISA_REF; m += i < 2 ? 1 : 3) {
                struct kcase k = {.op = OP_CODED, .dtype = DT_BF16, .seed = 11 + (uint64_t)p};
                build_sizes(&k, (enum packing)p, m, depth[i] + (p == PACKING_INT8 && i > 2));
                assert_true(kcase_forward(&k, &kernel_family_cpu, 2));
                struct kernel_call call = kcase_call(&k, KERNEL_FWD);
                for (int64_t t = 0; t < m; t++)
                    for (int64_t n = 0; n < k.out[0].n[1]; n++) {
                        double exact, sizes, most = allowed(&call, t, n, &exact, &sizes),
                                             got = view_get(&k.out[0], t, n);
                        if (p == PACKING_NF4 && !coded_registers.fix) most += sizes * 0x1p-9; /* each rounded to bf16 */
                        if (!(fabs(got - exact) <= most))
                            fail_msg("%s, %d rows of %d: (%d, %d) is %g, wanted %g, may be off by %g",
                                     packing_row((enum packing)p)->name, (int)m, (int)depth[i], (int)t, (int)n, got,
                                     exact, most);
                    }
                kcase_free(&k);
            }
}

/* What no integer says: the sums are those of floats, in which it shows. */
static void test_no_integers(void **state)
{
    (void)state;
    static const double odd[] = {INFINITY, NAN, 0x1p101};
    for (int p = PACKING_NF4; p < PACKING_N; p++)
        for (size_t i = 0; i < 3 && cpu_isa() > ISA_REF; i++) {
            struct kcase k = {.op = OP_CODED, .dtype = DT_BF16, .seed = 4};
            build_pairs(&k, (enum packing)p, 2);
            view_set(&k.in[0], 1, 5, odd[i]);
            assert_true(kcase_forward(&k, &kernel_family_ref, 1));
            struct view want = kcase_clone(&k, &k.out[0]);
            assert_true(kcase_forward(&k, &kernel_family_cpu, 2));
            for (int64_t n = 0; n < PAIRS; n++) {
                const double a = view_get(&k.out[0], 1, n), b = view_get(&want, 1, n);
                if (isnan(b) ? !isnan(a) : isinf(b) ? a != b : !(fabs(a - b) <= 0x1p-7 * fabs(b)))
                    fail_msg("%s, %g: %g, wanted %g", packing_row((enum packing)p)->name, odd[i], a, b);
            }
            kcase_free(&k);
        }
}

/* What does not belong together is said in words. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const words[] =
        {"columns", "rows must be those", "scale for each of its blocks", "mean", "f32", "as many rows", "bias"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct kcase k = {.op = OP_CODED, .dtype = DT_F32, .seed = 5};
        struct view out[KERNEL_MAX_OUT];
        build_pairs(&k, PACKING_NF4, 3);
        struct coded_attrs *a = edit_coded(&k.at);
        struct view bias = {.dtype = DT_F32, .nd = 1, .n = {PAIRS - 1}, .stride = PAIRS - 1};
        switch (i) {
        case 0: k.in[0].n[1]--, k.in[0].n[1]--; break;
        case 1: a->part[0].rows++; break;
        case 2: a->row_blocks = 0; break;
        case 3: a->part[1].first = 3 * PACKING_GROUP; break;
        case 4: k.in[CODED_GROUPS].n[0]--; break;
        case 5: k.in[2].n[0]--; break;
        default: k.in[CODED_BIAS] = bias;
        }
        const char *why = op_row(OP_CODED)->infer(&k.at, k.n_in, k.in, out);
        if (!why || !strstr(why, words[i])) fail_msg("%s: %s", words[i], why ? why : "not refused");
        kcase_free(&k);
    }
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs),       cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_panels),      cmocka_unit_test(test_integers),
                                       cmocka_unit_test(test_no_integers), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
