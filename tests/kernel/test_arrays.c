/* SPDX-License-Identifier: Apache-2.0 */
/* test_arrays.c: whole arrays as rows of the operation table: what a constructor makes fits its row, all chains give
 * the same bits for it, what does not fit is refused in words, and a row of updates says the same in both tables. What
 * each computes: test_flat.c, test_sums.c, test_update.c, test_codec.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/codec_rows.h"
#include "kernel/exponent_bins.h"
#include "kernel/flat.h"
#include "kernel/packed_rows.h"
#include "kernel/update.h"

enum { N = 1027, PARTS = 4, ROWS = 13, COLS = 79, ROOM = 8 * PARTS * N };

/* Two operands and a third, all of them read or written by one call. */
struct arrays {
    char from[ROOM], to[ROOM], more[ROOM];
};

static void fill(struct arrays *a, uint64_t seed)
{
    float *f = (float *)(void *)a->from;
    for (int i = 0; i < ROOM / 4; i++) f[i] = (float)(int32_t)rng_u32(seed, 1, (uint64_t)i) * 0x1p-30f;
    memset(a->to, 0, sizeof a->to);
    memset(a->more, 0, sizeof a->more);
    for (int i = 0; i < N; i++) ((float *)(void *)a->to)[i] = f[N + i];
}

static struct codec_args codes_of(struct arrays *a, enum codec codec, void *x, void *codes)
{
    (void)a;
    struct codec_args c = {.codec = codec, .shape = {ROWS, COLS, 5}, .x = x, .t = DT_F32, .codes = codes};
    c.parts = 2;
    c.stride = codec_bytes(codec, &c.shape, c.t) + 12;
    return c;
}

/* A call of each row but updates; false: there are no more. */
static bool nth(int i, struct arrays *a, struct kernel_call *c)
{
    float *x = (float *)(void *)a->from, *y = (float *)(void *)a->to;
    struct codec_args codec = codes_of(a, CODEC_FP8, x, a->more);
    struct packed_args packed =
        {.packing = PACKING_INT8, .rows = ROWS, .cols = COLS, .row_blocks = 3, .x = y, .t = DT_BF16};
    struct view v = {.p = x, .dtype = DT_F32, .nd = 2, .n = {ROWS, COLS}, .stride = COLS + 3};
    packed.codes = (const uint8_t *)a->from;
    packed.scales = (const uint8_t *)a->more;
    switch (i) {
    case 0: *c = cast_call(y, DT_BF16, x, DT_F32, N); return true;
    case 1: *c = sum_into_call(y, DT_F32, x, DT_F32, N, true); return true;
    case 2: *c = sum_into_call(y, DT_BF16, x, DT_F32, N, false); return true;
    case 3: *c = sum_tree_call(y, x, PARTS, N); return true;
    case 4: *c = sum_parts_call(y, DT_F32, x, PARTS, N); return true;
    case 5: *c = sum_squares_call((double *)(void *)a->more, x, N); return true;
    case 6: *c = exact_squares_call((int64_t *)(void *)a->more, x, N); return true;
    case 7:
        x[N - 3] = NAN;
        *c = find_nonfinite_call((int64_t *)(void *)a->more, x, DT_F32, N);
        return true;
    case 8: *c = codec_call(OP_ENCODE, &codec); return true;
    case 9:
        memset(a->more, 0x7e, sizeof a->more); /* 448 and 2^-1 */
        codec.x = y, codec.add = true;
        *c = codec_call(OP_DECODE, &codec);
        return true;
    case 10: *c = packed_call(&packed); return true;
    case 11: *c = exponents_call(&v, 3, (int64_t *)(void *)a->more); return true;
    default: return false;
    }
}

/* The reference's chain, this machine's best, a GPU's with the reference behind it. */
enum { TABLES = 3 };
static void tables_of(struct kernel_table t[TABLES], int n_threads)
{
    struct err e;
    assert_int_equal(kernel_table_init(&t[0], "ref", n_threads, false, &e), OK);
    assert_int_equal(kernel_table_init(&t[1], "auto", n_threads, false, &e), OK);
    t[2] = t[0];
    t[2].chain[0] = &kernel_family_cuda;
    t[2].chain[1] = &kernel_family_ref;
}

static bool same_shape(const struct view *a, const struct view *b)
{
    return a->dtype == b->dtype && a->nd == b->nd && !memcmp(a->n, b->n, sizeof a->n) && a->stride == b->stride;
}

static void test_calls_fit_their_rows(void **state)
{
    (void)state;
    static struct arrays a;
    struct kernel_call c;
    unsigned long long seen = 0;
    for (int i = 0; fill(&a, 1), nth(i, &a, &c); i++) {
        const struct op_row *row = op_row(c.op);
        struct view out[KERNEL_MAX_OUT] = {{0}};
        seen |= 1ull << (c.op - OP_FIRST_ARRAY);
        const char *why = row->infer(&c.at, c.n_in, c.in, out);
        if (why || !same_shape(&out[0], &c.out[0])) fail_msg("%s: %s", row->name, why ? why : "another shape");
        assert_true(c.n_in >= row->min_in && c.n_in <= row->max_in && c.n_out == row->n_out && c.phase == KERNEL_FWD);
        assert_true(c.at.kind == row->attrs && row->by == BY_KERNEL && !row->has_backward && !row->changes_in);
        assert_true(row->bytes(&c) > 0 && row->flops(&c) >= 0);
        assert_true(kernel_computes(&c));
    }
    for (int op = OP_FIRST_ARRAY; op < OP_FIRST_UPDATE; op++) /* what counts after QUANTISE: test_quantise.c */
        if (op != OP_ROUNDED && op != OP_ROUNDED_PARTS && op < OP_LOSSES && !(seen >> (op - OP_FIRST_ARRAY) & 1))
            fail_msg("%s has no call here", op_row((enum op)op)->name);
}

/* A bin is a sum of both of its words (flat_ops.h): families carry at different times. */
static void carry(struct arrays *a)
{
    int64_t *word = (int64_t *)(void *)a->more;
    for (int i = 0; i < FLAT_SQUARES_WORDS; i += 2) {
        word[i + 1] += word[i] >> 32;
        word[i] &= 0xffffffff;
    }
}

static void run_of(const struct kernel_table *t, struct kernel_call *c)
{
    static _Alignas(64) char scratch[1 << 16];
    c->scratch = scratch;
    c->scratch_bytes = kernel_scratch(t, c);
    assert_true(c->scratch_bytes <= sizeof scratch);
    kernel_run(t, c);
}

static void test_all_chains_give_the_same_bits(void **state)
{
    (void)state;
    static struct arrays a, b, before;
    struct kernel_table t[TABLES];
    struct kernel_call c, d;
    tables_of(t, 3);
    for (int k = 1; k < TABLES; k++)
        for (int i = 0; fill(&a, 2), nth(i, &a, &c); i++) {
            struct stream here = kernel_here(team_new(1 + i % 3));
            memcpy(&before, &a, sizeof a);
            fill(&b, 2);
            assert_true(nth(i, &b, &d));
            c.stream = d.stream = &here;
            run_of(&t[0], &c);
            run_of(&t[k], &d);
            if (c.op == OP_EXACT_SQUARES) carry(&a), carry(&b);
            if (memcmp(&a, &b, sizeof a)) fail_msg("%s differs", op_row(c.op)->name);
            if (!memcmp(&a, &before, sizeof a)) fail_msg("%s does nothing", op_row(c.op)->name);
            team_free(here.team);
        }
}

/* ---- refusals ---- */
static void refused(const char *word, struct kernel_call c)
{
    struct view out[KERNEL_MAX_OUT] = {{0}};
    const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, out);
    if (!why || !strstr(why, word)) fail_msg("%s: wanted %s, got %s", op_row(c.op)->name, word, why ? why : "none");
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static struct arrays a;
    struct kernel_call c;
    float x[4];
    refused("into f32 or bf16", sum_into_call(x, DT_F16, x, DT_F32, 4, true));
    refused("into bf16", sum_into_call(x, DT_F32, x, DT_BF16, 4, true));
    refused("power of two", sum_tree_call(x, x, 3, 1));
    refused("dense matrix", sum_tree_call(x, x, 0, 1));
    c = sum_parts_call(x, DT_F32, x, 2, 2);
    edit_array(&c.at)->to = DT_BF16;
    refused("one type", c);
    c = sum_squares_call(NULL, x, 4);
    c.in[0].dtype = DT_BF16;
    refused("of f32", c);
    c = cast_call(x, DT_F32, x, DT_F32, 4);
    c.in[0].nd = 2;
    refused("an array", c);
    for (int i = 0; fill(&a, 1), nth(i, &a, &c); i++) {
        c.in[0].n[c.in[0].nd - 1]++;
        if (c.op == OP_ENCODE) refused("rows * cols", c);
        if (c.op == OP_DECODE) c.in[0].stride = c.in[0].n[1], refused("as many bytes", c);
        if (c.op == OP_UNPACK) refused("as many a row", c);
        c.in[0].dtype = DT_I32;
        if (c.op == OP_EXPONENTS) refused("f32, bf16", c);
    }
    struct update_args u = {.kind = UPDATE_LION, .n = 4};
    for (int k = 0; k < 4; k++) u.at[k] = (struct update_operand){x, DT_F32};
    c = update_call(&u);
    c.in[1].n[0] = 3;
    refused("another length", c);
    u.at[LION_GRAD].p = NULL;
    refused("missing", update_call(&u));
    u = (struct update_args){.kind = UPDATE_FACTOR_MEAN, .n = 4};
    c = update_call(&u);
    edit_update(&c.at)->kind = UPDATE_KINDS;
    refused("no such", c);
}

/* ---- updates ---- */
static void test_both_tables_say_the_same_of_updates(void **state)
{
    (void)state;
    static char room[UPDATE_OPERANDS][64];
    assert_int_equal(OP_N - OP_FIRST_UPDATE, UPDATE_KINDS);
    for (int kind = 0; kind < UPDATE_KINDS; kind++) {
        const struct update_row *u = &update_rows[kind];
        const struct op_row *row = op_row((enum op)(OP_FIRST_UPDATE + kind));
        struct update_args a = {.kind = (enum update_kind)kind, .n = 6, .flag = kind % 2};
        a.blocks = (struct update_blocks){3, 2, 12};
        a.chance = (struct update_chance){1, 2, 3, 4, 5, 6};
        for (int k = 0; k < UPDATE_FACTORS; k++) a.f[k] = (float)(kind + k);
        int in = 0, out = 0;
        unsigned changes = 0;
        for (int k = 0; k < u->n; k++) {
            a.at[k] = (struct update_operand){room[k], (enum dtype)(k % 2 ? DT_F32 : DT_BF16)};
            bool output = u->at[k].use == UPDATE_WRITES;
            if (u->at[k].use == UPDATE_CHANGES) changes |= 1u << in;
            assert_string_equal(op_part((enum op)(OP_FIRST_UPDATE + kind), output, output ? out : in), u->at[k].name);
            *(output ? &out : &in) += 1;
        }
        struct kernel_call c = update_call(&a);
        struct update_args back = update_of(&c);
        struct view shapes[KERNEL_MAX_OUT] = {{0}};
        assert_int_equal(c.op, OP_FIRST_UPDATE + kind);
        assert_true(c.n_in == in && c.n_out == out && row->min_in == in && row->n_out == out);
        assert_int_equal(row->changes_in, changes);
        assert_true(back.n == a.n && back.kind == a.kind && back.flag == a.flag);
        assert_memory_equal(back.at, a.at, sizeof a.at[0] * (size_t)u->n);
        assert_memory_equal(back.f, a.f, sizeof a.f);
        assert_memory_equal(&back.blocks, &a.blocks, sizeof a.blocks);
        assert_memory_equal(&back.chance, &a.chance, sizeof a.chance);
        const char *why = row->infer(&c.at, c.n_in, c.in, shapes);
        if (why) fail_msg("%s: %s", row->name, why);
        for (int k = 0; k < out; k++) assert_true(same_shape(&shapes[k], &c.out[k]));
        double bytes = 0;
        for (int k = 0; k < u->n; k++)
            bytes += (double)(update_elements(&a, k) * (int64_t)dtype_bytes(a.at[k].t)) *
                     (u->at[k].use == UPDATE_CHANGES ? 2 : 1);
        assert_true(row->bytes(&c) == bytes);
        assert_true(kernel_computes(&c));
    }
}

/* ---- by a step's words ---- */
static void clips(const struct kernel_table *t)
{
    const double most[] = {0, 0.5, 100}, times[] = {1, 1024};
    for (int i = 0; i < 12; i++) {
        const double m = most[i % 3], k = times[i / 3 % 2], norm = 5;
        double words[STEP_WORDS] = {[WORD_TIMES] = k}, squares = norm * k * norm * k;
        int64_t exact[FLAT_SQUARES_WORDS] = {0};
        float each[25];
        for (int j = 0; j < 25; j++) each[j] = (float)k;
        struct view v = i < 6 ? flat_view(&squares, DT_F64, 1) : flat_view(exact, DT_I64, FLAT_SQUARES_WORDS);
        struct stream here = kernel_here(NULL);
        double bad = 0;
        int64_t exactly_bad = 0;
        struct view count = i < 6 ? flat_view(&bad, DT_F64, 1) : flat_view(&exactly_bad, DT_I64, 1);
        struct kernel_call sum = exact_squares_call(exact, each, 25), c = clip_call(words, m, &v, &count);
        struct view out[KERNEL_MAX_OUT];
        sum.stream = c.stream = &here;
        kernel_run(t, &sum);
        kernel_run(t, &c);
        assert_null(op_row(OP_CLIP)->infer(&c.at, 3, c.in, out));
        assert_true(words[WORD_NORM] == norm && words[WORD_GOES] == 1);
        double want = m > 0 && m < norm ? m / (norm + 1e-6) / k : 1 / k;
        assert_true(words[WORD_SCALE] == (double)(float)want && words[WORD_SCALE] == (double)step_scale(norm, m, k));
        c.in[1].n[0]++;
        assert_non_null(op_row(OP_CLIP)->infer(&c.at, 3, c.in, out));
        c.in[1].n[0]--;
        c.in[2].dtype = i < 6 ? DT_I64 : DT_F64;
        assert_non_null(op_row(OP_CLIP)->infer(&c.at, 3, c.in, out));
        c.in[2] = count;
        bad = exactly_bad = 1; /* a loss of some rank */
        kernel_run(t, &c);
        assert_true(words[WORD_NORM] == norm && words[WORD_GOES] == 0);
        bad = exactly_bad = 0;
        squares = i % 2 ? NAN : INFINITY;
        exact[2 * 255] = 1; /* a gradient that is not finite */
        kernel_run(t, &c);
        assert_true(words[WORD_GOES] == 0);
    }
}

static void test_clipping(void **state)
{
    (void)state;
    struct kernel_table t[TABLES];
    tables_of(t, 1);
    for (int k = 0; k < TABLES; k++) clips(&t[k]);
}

/* Only the first number of a row is a loss; it is counted into what was there. */
static void test_losses_are_counted(void **state)
{
    (void)state;
    struct kernel_table t[TABLES];
    double sums[3][4] = {{1, NAN, INFINITY, 2}, {NAN, 1, 1, 1}, {-INFINITY, 1, 1, 1}}, n = 4;
    int64_t m = 5;
    tables_of(t, 1);
    for (int i = 0; i < 2 * TABLES; i++) {
        struct stream here = kernel_here(NULL);
        struct kernel_call c = losses_call(i % 2 ? (void *)&m : &n, i % 2 ? DT_I64 : DT_F64, &sums[0][0], 3, 4);
        struct view out[KERNEL_MAX_OUT];
        c.stream = &here;
        assert_null(op_row(OP_LOSSES)->infer(&c.at, 1, c.in, out));
        assert_true(out[0].dtype == c.out[0].dtype && out[0].n[0] == 1);
        kernel_run(&t[i / 2], &c);
        c.in[0].dtype = DT_F32;
        assert_non_null(op_row(OP_LOSSES)->infer(&c.at, 1, c.in, out));
    }
    assert_true(n == 4 + 2 * TABLES && m == 5 + 2 * TABLES);
}

/* No row of an update changes anything where the words say so, whatever its gradient is. */
static void test_nothing_changes_where_words_say_so(void **state)
{
    (void)state;
    struct kernel_table t[TABLES];
    double words[STEP_WORDS] = {[WORD_LR] = 0.013, [WORD_MADE] = 6, [WORD_SCALE] = NAN};
    tables_of(t, 1);
    for (int kind = 0; kind < UPDATE_KINDS; kind++)
        for (int k = 0; k < TABLES; k++) {
            static double room[UPDATE_OPERANDS][96], was[UPDATE_OPERANDS][96];
            struct update_args a = {.kind = (enum update_kind)kind, .n = 24, .by_words = true, .words = words};
            a.blocks = (struct update_blocks){8, 4, 120};
            a.chance = (struct update_chance){1, 2, 0, 8, 0, 8};
            for (int i = 0; i < UPDATE_OPERANDS; i++) a.at[i] = (struct update_operand){room[i], DT_F32};
            for (int i = 0; i < UPDATE_OPERANDS * 96; i++) room[i / 96][i % 96] = 0.5 + i;
            memcpy(was, room, sizeof was);
            struct kernel_call c = update_call(&a);
            struct stream here = kernel_here(NULL);
            c.stream = &here;
            kernel_run(&t[k], &c);
            if (memcmp(was, room, sizeof was)) fail_msg("%s changes something", update_rows[kind].name);
        }
}

/* A gradient that is so many times what it was, or sums of its squares. */
static void times(const struct update_args *a, float k, int64_t n)
{
    const struct update_row *row = &update_rows[a->kind];
    for (int i = 0; i < row->n; i++)
        for (int64_t j = 0; j < n; j++) {
            if (!strcmp(row->at[i].name, "gradient")) ((float *)a->at[i].p)[j] *= k;
            if (a->kind == UPDATE_FACTOR_KEEP && i == FACTOR_KEEP_SUMS) ((double *)a->at[i].p)[j] *= (double)(k * k);
        }
}

/* What words make of an update where it runs is what they make of it before; and where gradients are four times as
 * large and the scale a fourth, the result is the same. */
static void test_words_are_read_where_it_runs(void **state)
{
    (void)state;
    enum { EACH = 96, WIDE = 8 * EACH };
    struct kernel_table t[TABLES];
    double words[STEP_WORDS] = {[WORD_LR] = 0.013, [WORD_MADE] = 6, [WORD_SCALE] = (double)0.37f, [WORD_GOES] = 1};
    int n = 0;
    tables_of(t, 1);
    for (int kind = 0; kind < UPDATE_KINDS; kind++)
        for (int flag = 0; flag < 2; flag++)
            for (int k = 0; k < 3 * TABLES; k++) { /* tables by ways: before, by words, scaled before */
                if (k % 3 == 2 && kind == UPDATE_FACTOR_SUMS) continue;
                static char want[UPDATE_OPERANDS][WIDE], room[UPDATE_OPERANDS][WIDE];
                const struct update_row *row = &update_rows[kind];
                char(*at)[WIDE] = k ? room : want;
                struct update_args a = {.kind = (enum update_kind)kind, .n = EACH, .by_words = true, .flag = flag};
                a.blocks = (struct update_blocks){8, 4, 120};
                a.chance = (struct update_chance){1, 2, 0, 8, 0, 8};
                for (int i = 0; i < UPDATE_FACTORS; i++) a.f[i] = 0.5f + 0.01f * (float)i;
                for (int i = 0; i < UPDATE_NUMBERS; i++) a.g[i] = 0.75 + 0.03 * i;
                for (int i = 0; i < row->n; i++) {
                    bool wide = row->at[i].count == UPDATE_ONE || row->at[i].count == UPDATE_TWO ||
                                row->at[i].count == UPDATE_ROW_PAIR || kind == UPDATE_FACTOR_SUMS ||
                                (kind == UPDATE_FACTOR_KEEP && i == FACTOR_KEEP_SUMS);
                    bool half = (kind == UPDATE_ADAMW16 && (i == ADAMW16_M || i == ADAMW16_V)) ||
                                kind == UPDATE_BLEND || (kind == UPDATE_APPLY && i == APPLY_O) ||
                                (kind == UPDATE_ROUND && i == ROUND_TO) || (kind == UPDATE_UNIT && i == UNIT_TO);
                    bool codes = kind == UPDATE_ADAMW8 && (i == ADAMW8_M || i == ADAMW8_V);
                    if (kind == UPDATE_FACTOR_SUMS && i == FACTOR_SUMS_GRAD) wide = false;
                    enum dtype type = wide    ? DT_F64
                                      : half  ? DT_BF16
                                      : codes ? (i == ADAMW8_V && flag ? DT_F16 : DT_U8)
                                              : DT_F32;
                    a.at[i] = (struct update_operand){at[i], type};
                    memset(at[i], 0, WIDE);
                    for (int j = 0; j < EACH; j++) {
                        float x = 0.25f + (float)((j * 7 + i) % 19) * 0.125f;
                        if (type == DT_F32) ((float *)(void *)at[i])[j] = x;
                        if (type == DT_F64) ((double *)(void *)at[i])[j] = (double)x;
                        if (type == DT_BF16) ((bf16 *)(void *)at[i])[j] = bf16_from_f32(x);
                        if (type == DT_U8) at[i][j] = (char)(j % 100);
                        if (type == DT_F16) ((uint16_t *)(void *)at[i])[j] = (uint16_t)(j * 11);
                    }
                }
                double scaled[STEP_WORDS];
                memcpy(scaled, words, sizeof scaled);
                if (k % 3 == 2) scaled[WORD_SCALE] /= 4, times(&a, 4, EACH);
                if (k % 3 == 1) a.words = words;
                else update_by(&a, scaled);
                struct kernel_call c = update_call(&a);
                struct stream here = kernel_here(NULL);
                struct view out[KERNEL_MAX_OUT];
                c.stream = &here;
                assert_int_equal(c.n_in, op_row(c.op)->min_in + (k % 3 == 1));
                const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, out);
                if (why) fail_msg("%s: %s", row->name, why);
                kernel_run(&t[k / 3], &c);
                if (k % 3 == 2) times(&a, 0.25f, EACH);
                if (k && memcmp(want, room, sizeof want)) fail_msg("%s, flag %d, way %d", row->name, flag, k);
                n += k && row->scale >= 0;
            }
    assert_int_equal(n, 8 * 2 * (3 * TABLES - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_fit_their_rows),
        cmocka_unit_test(test_all_chains_give_the_same_bits),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_both_tables_say_the_same_of_updates),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_losses_are_counted),
        cmocka_unit_test(test_nothing_changes_where_words_say_so),
        cmocka_unit_test(test_words_are_read_where_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
