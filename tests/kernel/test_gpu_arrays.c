/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays and updates of a GPU's family: the bits of the reference for odd lengths, addresses that nothing
 * divides, all types, in every order of a simulated block's threads. What they mean: test_flat.c, test_update.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/factored.h"
#include "kernel/flat_ops.h"
#include "kernel/moments.h"
#include "kernel/sim_orders.h"

enum { ROOM = 1 << 21 };
static char want[ROOM], got[ROOM], from[ROOM];

static bool built_in(void) { return kernel_family_cuda.slot[OP_CAST][KERNEL_FWD].run != NULL; }

static void run(const struct kernel_family *f, struct kernel_call *c)
{
    const struct kernel_slot *s = kernel_way(f, c);
    struct stream here = kernel_here(NULL);
    if (!s) fail_msg("%s does not take %s", f->name, op_row(c->op)->name);
    c->scratch_bytes = s->scratch ? s->scratch(c, 1) : 0;
    c->scratch = xmalloc(c->scratch_bytes + 64);
    memset(c->scratch, 0xff, c->scratch_bytes + 64);
    c->stream = &here;
    s->run(c);
    for (int i = 0; i < 64; i++)
        assert_int_equal(((const unsigned char *)c->scratch)[c->scratch_bytes + (size_t)i], 0xff);
    xfree(c->scratch);
}

/* The same call on both; out[0] lies `at` bytes into the rooms. */
static void compare(struct kernel_call c, size_t at, const char *what, int64_t n)
{
    struct kernel_call d = c;
    c.out[0].p = want + at;
    d.out[0].p = got + at;
    run(&kernel_family_ref, &c);
    run(&kernel_family_cuda, &d);
    if (memcmp(want, got, sizeof want)) fail_msg("%s, %lld", what, (long long)n);
}

static void spoil(void)
{
    for (int i = 0; i < ROOM / 4; i++) {
        float x = (float)((int64_t)i * 7919 % 4001 - 2000) * 0x1p-11f;
        memcpy(want + (size_t)i * 4, &x, 4);
    }
    memcpy(got, want, sizeof got);
}

/* Numbers of a type: usual ones, and those at the ends. */
static void numbers(enum dtype t, int64_t n, char *p)
{
    static const double odd[] = {0,       -0.0,    1e-41,     -1e-45, 65519, 65520,   3.3e38,  0x1.01p0,
                                 0x1p-14, 0x1p-24, 0x1.8p-25, 1e-8,   448,   -3.4e38, 1.0 / 3, 0x1.008p0};
    for (int64_t i = 0; i < n; i++) {
        double x = (double)rng_normal(5, 1, (uint64_t)i) * (i % 3 ? 1 : 1e-3);
        if (i % 5 == 0) x = odd[i / 5 % 16];
        bool real = t == DT_F64 || t == DT_F32 || t == DT_BF16 || t == DT_F16;
        if (!real) x = (double)(i * 37 % 251);
        float f = (float)x;
        uint32_t u = i % 97 ? 0x7fc00000u | (uint32_t)i << 9 : 0xff800000u;
        if (i % 31 == 7 && real) memcpy(&f, &u, 4), x = (double)f;
        if (t == DT_F64 && i % 7 == 3) x = 1 + 0x1p-11 + 0x1p-40 + (double)i * 0x1p-8;
        char *at = p + (size_t)i * dtype_bytes(t);
        if (t == DT_F64) memcpy(at, &x, 8);
        else if (t == DT_F32) memcpy(at, &f, 4);
        else if (t == DT_BF16) memcpy(at, &(bf16){bf16_from_f32(f)}, 2);
        else if (t == DT_F16) memcpy(at, &(uint16_t){f16_from_f32(f)}, 2);
        else if (t == DT_I32) memcpy(at, &(int32_t){(int32_t)x}, 4);
        else if (t == DT_I64) memcpy(at, &(int64_t){(int64_t)x}, 8);
        else if (t == DT_U8) memcpy(at, &(uint8_t){(uint8_t)x}, 1);
        else memcpy(at, &(uint16_t){(uint16_t)x}, 2);
    }
}
static bool real(enum dtype t) { return dtype_info(t)->is_float; }

static void test_casts(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 1, 7, 8, 9, 4099};
    if (!built_in()) skip();
    for (int f = 0; f < DT_N; f++)
        for (int t = 0; t < DT_N; t++)
            for (int l = 0; l < 6; l++)
                for (size_t off = 0; off < 2; off++) {
                    int64_t n = lengths[l];
                    char *x = from + off * dtype_bytes((enum dtype)f);
                    numbers((enum dtype)f, n, x);
                    for (int64_t i = 0; !real((enum dtype)t) && real((enum dtype)f) && i < n; i++) /* what fits */
                        memset(x + (size_t)i * dtype_bytes((enum dtype)f), 0, dtype_bytes((enum dtype)f));
                    spoil();
                    sim_order_ask((l + t) % SIM_ORDERS);
                    compare(cast_call(want, (enum dtype)t, x, (enum dtype)f, n), off * dtype_bytes((enum dtype)t),
                            dtype_name((enum dtype)t), n);
                }
}

static void test_sums(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 1, 3, 4, 5, 8, 1023, 2048, 2051};
    if (!built_in()) skip();
    for (int l = 0; l < 9; l++)
        for (size_t off = 0; off < 2; off++) {
            int64_t n = lengths[l];
            float *x = (float *)(void *)from + off;
            for (int64_t i = 0; i < 128 * 2100; i++) x[i] = (float)((i * 7919) % 4001 - 2000) * 0x1p-11f;
            sim_order_ask(l % SIM_ORDERS);
            for (int add = 0; add < 2; add++) {
                spoil();
                compare(sum_into_call(want, DT_F32, x, DT_F32, n, add), off * 4, "f32 into f32", n);
                compare(sum_into_call(want, DT_BF16, x, DT_F32, n, add), off * 2, "f32 into bf16", n);
                compare(sum_into_call(want, DT_BF16, x, DT_BF16, n, add), off * 2, "bf16 into bf16", n);
            }
            for (int parts = 1; parts <= 128; parts *= 2)
                compare(sum_tree_call((float *)(void *)want, x, parts, n), off * 4, "a tree", n);
            for (int parts = 1; parts <= 5; parts++)
                for (int t = 0; t < 3; t++)
                    compare(sum_parts_call(want, (enum dtype)t, x, parts, n), off * dtype_bytes((enum dtype)t), "parts",
                            n);
        }
}

static void test_squares(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 1, 15, 16, 4095, 4096, 4097, 65535, 65537, 262144, 300001};
    if (!built_in()) skip();
    for (int l = 0; l < 11; l++) {
        int64_t n = lengths[l];
        float *x = (float *)(void *)from + l % 2;
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)((i * 2654435761u) % 1009) * (i % 13 ? 0.001f : 1e-30f) - (i % 3 ? 0.5f : 0);
        if (l % 3 == 2) x[n / 2] = INFINITY;
        for (int o = 0; o < (n > 70000 ? 2 : SIM_ORDERS); o++) {
            sim_order_ask(o);
            spoil();
            compare(sum_squares_call((double *)(void *)want, x, n), 8, "squares", n);
            memset(want, 0, sizeof want);
            memset(got, 0, sizeof got);
            compare(exact_squares_call((int64_t *)(void *)want, x, n), 8, "exact squares", n);
            compare(exact_squares_call((int64_t *)(void *)want, x, n), 8, "exact squares added", n);
        }
    }
}

/* More sums than one thread adds at a time. */
static void test_squares_of_many(void **state)
{
    (void)state;
    int64_t n = (int64_t)1030 * FLAT_BLOCK + 17;
    float *x = xmalloc((size_t)n * sizeof *x);
    if (!built_in()) skip();
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 2654435761u) % 1009) * 0.001f - 0.5f;
    spoil();
    compare(sum_squares_call((double *)(void *)want, x, n), 0, "squares", n);
    xfree(x);
}

static void test_nonfinite(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32};
    if (!built_in()) skip();
    for (int t = 0; t < 5; t++)
        for (int64_t at = -1, n = 70001; at < n; at += at < 60000 ? 1 + at / 2 : 2000) {
            enum dtype type = types[t];
            size_t each = dtype_bytes(type);
            memset(from, 0, (size_t)n * each);
            for (int64_t i = at; at >= 0 && i < n; i += 900)
                memset(from + each + (size_t)i * each, i % 2 && type != DT_I32 ? 0x7f : 0xff, each);
            sim_order_ask((int)((at + 1) % SIM_ORDERS));
            spoil();
            compare(find_nonfinite_call((int64_t *)(void *)want, from + each, type, n), 8, dtype_name(type), at);
        }
}

/* ---- updates ---- */
static const int64_t update_lengths[] = {0, 1, 7, 8, 15, 16, 17, 64, 1000, 4099};
enum { N_LENGTHS = sizeof update_lengths / sizeof *update_lengths, MOST = 4099 + 64 };

static enum dtype type_of(const struct update_row *row, enum update_kind kind, int k, enum dtype copy, bool fp8)
{
    if (row->at[k].count == UPDATE_ONE || row->at[k].count == UPDATE_TWO) return DT_F64;
    if ((kind == UPDATE_FACTOR_SUMS && k != FACTOR_SUMS_GRAD) ||
        (kind == UPDATE_FACTOR_KEEP && k == FACTOR_KEEP_SUMS) || (kind == UPDATE_FACTOR_SIZE && k == FACTOR_SIZE_EACH))
        return DT_F64;
    if (kind == UPDATE_ADAMW8 && k == ADAMW8_M) return DT_U8;
    if (kind == UPDATE_ADAMW8 && k == ADAMW8_V) return fp8 ? DT_F16 : DT_U8;
    if (k == row->param) return copy;
    if (kind == UPDATE_AVERAGE && k == AVERAGE_OF) return copy == DT_BF16 ? DT_BF16 : DT_F32;
    bool narrow = kind == UPDATE_BLEND || (kind == UPDATE_ROUND && k == ROUND_TO) ||
                  (kind == UPDATE_UNIT && k == UNIT_TO) || (kind == UPDATE_APPLY && k == APPLY_O) ||
                  (kind == UPDATE_ADAMW16 && (k == ADAMW16_M || k == ADAMW16_V));
    return narrow ? DT_BF16 : DT_F32;
}

static void fill_operand(const struct update_args *a, int k)
{
    const struct update_row *row = &update_rows[a->kind];
    for (int i = 0; i < MOST; i++) {
        float x = i % 11 ? (float)((i * 7919 + k * 104729) % 4001 - 2000) * 0x1p-11f : 0;
        if (a->kind == UPDATE_ROUND && i % 13 == 5) x = i % 2 ? 1e-40f * (float)i : 3.4e38f;
        bool second = (a->kind == UPDATE_ADAMW && k == ADAMW_V) || (a->kind == UPDATE_ADAMW16 && k == ADAMW16_V);
        if (second) x = x < 0 ? -x : x; /* no NaN: a processor's is another */
        if (a->at[k].t == DT_F64) ((double *)a->at[k].p)[i] = 7.25 + i % 3;
        else if (a->at[k].t == DT_F32) ((float *)a->at[k].p)[i] = x;
        else if (a->at[k].t == DT_U8) ((uint8_t *)a->at[k].p)[i] = (uint8_t)(i % 127 + 128 * (i % 2)); /* no NaN */
        else if (a->at[k].t == DT_F16) ((uint16_t *)a->at[k].p)[i] = (uint16_t)(i * 37 % 0x7c00);
        else ((bf16 *)a->at[k].p)[i] = bf16_from_f32(x);
        if (is_factored(a->kind) && a->at[k].t == DT_F32 && row->at[k].count != UPDATE_EACH)
            ((float *)a->at[k].p)[i] = (float)(1 + i % 5); /* second moments */
        if (row->at[k].count == UPDATE_BLOCK) ((float *)a->at[k].p)[i] = (float)(i % 5) * 0x1p-9f;
    }
}

static struct update_args update_in(enum update_kind kind, int64_t n, enum dtype copy, bool flag, char *room, int by)
{
    static const double words[STEP_WORDS] =
        {[WORD_LR] = 0.013, [WORD_MADE] = 6, [WORD_SCALE] = (double)0.37f, [WORD_GOES] = 1};
    struct update_args a = {.kind = kind,
                            .n = n,
                            .flag = flag,
                            .blocks = {n % 5 ? n : n / 5 + !n, n > 1000 ? 256 : 24, n + 3},
                            .chance = {3, 1ull << 40 | 9, 5, 37, 1000, flag ? 37 : 50}};
    if (n == 4099 && !flag) a.blocks.block = MOMENTS_BLOCK;
    if (by) a.by_words = true, a.words = words;
    for (int k = 0; k < UPDATE_NUMBERS; k++) a.g[k] = 0.75 + 0.03 * k;
    for (int k = 0; k < UPDATE_FACTORS; k++) a.f[k] = 0.9f - 0.11f * (float)k;
    for (int k = 0; k < update_rows[kind].n; k++) {
        enum dtype t = type_of(&update_rows[kind], kind, k, copy, flag);
        a.at[k] = (struct update_operand){room + (size_t)k * MOST * 8 + (by ? dtype_bytes(t) : 0), t};
        fill_operand(&a, k);
    }
    if (kind == UPDATE_SGD && n % 2) a.at[SGD_M] = (struct update_operand){0};
    return a;
}

static void test_updates(void **state)
{
    (void)state;
    static const enum dtype copies[] = {DT_F32, DT_BF16, DT_F16};
    _Static_assert((size_t)UPDATE_OPERANDS * MOST * 8 + 64 < ROOM, "room");
    if (!built_in()) skip();
    for (int kind = 0; kind < UPDATE_KINDS; kind++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (int c = 0; c < 12; c++) {
                int64_t n = update_lengths[l];
                memset(want, 7, sizeof want);
                memset(got, 7, sizeof got);
                sim_order_ask((l + c) % SIM_ORDERS);
                struct update_args x = update_in((enum update_kind)kind, n, copies[c % 3], c / 3 % 2, want, c / 6);
                struct update_args y = update_in((enum update_kind)kind, n, copies[c % 3], c / 3 % 2, got, c / 6);
                struct kernel_call of_ref = update_call(&x), of_gpu = update_call(&y);
                run(&kernel_family_ref, &of_ref);
                run(&kernel_family_cuda, &of_gpu);
                if (memcmp(want, got, sizeof want))
                    fail_msg("%s, n %lld, case %d", update_rows[kind].name, (long long)n, c);
            }
}

/* More rows, and more elements, than blocks do at once; the compute copy is the master. */
static void test_long_updates(void **state)
{
    (void)state;
    static const struct {
        enum update_kind kind;
        int64_t cols, rows, block;
    } of[] = {{UPDATE_ADAMW, 1, 1100 * 2048 / 8, 1}, {UPDATE_ADAMW8, 8, 1500, 4},      {UPDATE_FACTOR_SUMS, 3, 2100, 1},
              {UPDATE_FACTOR_SIZE, 1, 5000, 1},      {UPDATE_FACTOR_MEAN, 1, 5000, 1}, {UPDATE_FACTOR_APPLY, 7, 700, 1},
              {UPDATE_FACTOR_SUMS, 1000, 4, 1}};
    if (!built_in()) skip();
    for (int i = 0; i < 7; i++) {
        const struct update_row *row = &update_rows[of[i].kind];
        struct update_args a[2];
        char *room[2];
        size_t each = (size_t)(of[i].cols * of[i].rows) * 16 + 64; /* pairs of f64 */
        for (int k = 0; k < 2; k++) {
            room[k] = xcalloc((size_t)row->n, each);
            a[k] = (struct update_args){.kind = of[i].kind, .n = of[i].cols * of[i].rows};
            a[k].blocks = (struct update_blocks){of[i].cols, of[i].block, a[k].n};
            for (int j = 0; j < UPDATE_FACTORS; j++) a[k].f[j] = 0.9f - 0.11f * (float)j;
            for (int j = 0; j < row->n; j++) {
                enum dtype t = type_of(row, of[i].kind, j, DT_F32, false);
                a[k].at[j] = (struct update_operand){room[k] + (size_t)j * each, t};
                for (int64_t e = 0; e < update_elements(&a[k], j); e++) {
                    float v = (float)(1 + (e * 7919 + j) % 1000) * 0x1p-9f;
                    if (t == DT_F32) ((float *)a[k].at[j].p)[e] = v;
                    if (t == DT_F64) ((double *)a[k].at[j].p)[e] = (double)v;
                    if (t == DT_U8) ((uint8_t *)a[k].at[j].p)[e] = (uint8_t)(e % 127);
                }
            }
            if (row->param >= 0) a[k].at[row->param].p = a[k].at[0].p;
        }
        sim_order_ask(i % SIM_ORDERS);
        struct kernel_call of_ref = update_call(&a[0]), of_gpu = update_call(&a[1]);
        run(&kernel_family_ref, &of_ref);
        run(&kernel_family_cuda, &of_gpu);
        if (memcmp(room[0], room[1], (size_t)row->n * each)) fail_msg("%s", row->name);
        xfree(room[0]);
        xfree(room[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casts),           cmocka_unit_test(test_sums),      cmocka_unit_test(test_squares),
        cmocka_unit_test(test_squares_of_many), cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_long_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
