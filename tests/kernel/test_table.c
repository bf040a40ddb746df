/* SPDX-License-Identifier: Apache-2.0 */
/* The table itself: shapes that do not fit are refused in words, costs are the closed forms, a call finds the
 * right family, and a dry table counts what a real one needs and touches nothing. */
#include "harness.h"

#include "kernel/cpuid.h"

static struct view shape(enum dtype t, int64_t n0, int64_t n1)
{
    return (struct view){.dtype = t, .nd = n1 ? 2 : 1, .n = {n0, n1}, .stride = n1 ? n1 : n0};
}

struct refusal {
    enum op op;
    struct op_attrs at;
    struct view in[KERNEL_MAX_IN];
    int n_in;
    const char *word; /* NULL: accepted */
};

#define M(t, r, c)                                                                                                     \
    {                                                                                                                  \
        .dtype = t, .nd = 2, .n = {r, c}, .stride = c                                                                  \
    }
#define VEC(t, n0)                                                                                                     \
    {                                                                                                                  \
        .dtype = t, .nd = 1, .n = {n0}, .stride = n0                                                                   \
    }
/* clang-format off */
static const struct refusal refusals[] = {
    {OP_LINEAR, {.kind = ATTRS_LINEAR}, {M(DT_F32, 5, 6), M(DT_F32, 7, 6)}, 2, NULL},
    {OP_LINEAR, {.kind = ATTRS_LINEAR}, {M(DT_F32, 5, 6), M(DT_F32, 7, 8)}, 2, "in-features"},
    {OP_LINEAR, {.kind = ATTRS_LINEAR}, {M(DT_F32, 5, 6), M(DT_BF16, 7, 6)}, 2, "dtype"},
    {OP_LINEAR, {.kind = ATTRS_LINEAR}, {M(DT_F32, 5, 6), M(DT_F32, 7, 6), VEC(DT_F32, 6)}, 3, "out-feature"},
    {OP_EMBED, {.kind = ATTRS_VOCAB}, {VEC(DT_I64, 5), M(DT_F32, 7, 6)}, 2, "i32"},
    {OP_RMSNORM, {ATTRS_NORM, {.norm = {.eps = 0}}}, {M(DT_F32, 5, 6), VEC(DT_F32, 6)}, 2, "eps"},
    {OP_RMSNORM, {ATTRS_NORM, {.norm = {.eps = 1}}}, {M(DT_F32, 5, 6), VEC(DT_F32, 5)}, 2, "one element per column"},
    {OP_LAYERNORM, {ATTRS_NORM, {.norm = {.eps = 1}}}, {M(DT_F32, 5, 6), VEC(DT_F32, 6), VEC(DT_F32, 5)}, 3, "one element per column"},
    {OP_ROTARY, {ATTRS_ROTARY, {.rotary = {.heads = 2, .head_dim = 3}}}, {M(DT_F32, 5, 6), VEC(DT_I32, 5), M(DT_F32, 9, 3)}, 3, "even"},
    {OP_ROTARY, {ATTRS_ROTARY, {.rotary = {.heads = 1, .head_dim = 6}}}, {M(DT_F32, 5, 6), VEC(DT_I32, 5), M(DT_F32, 9, 4)}, 3, "table"},
    {OP_ATTENTION, {ATTRS_ATTENTION, {.attention = {.heads = 3, .kv_heads = 2, .head_dim = 2}}}, {{0}}, 3, "divide"},
    {OP_ATTENTION, {ATTRS_ATTENTION, {.attention = {.heads = 2, .kv_heads = 1, .head_dim = 3, .batch = 2, .seq = 3}}},
     {M(DT_F32, 5, 6), M(DT_F32, 5, 3), M(DT_F32, 5, 3)}, 3, "batch * seq"},
    {OP_ATTENTION, {ATTRS_ATTENTION, {.attention = {.heads = 2, .kv_heads = 1, .head_dim = 3, .batch = 1, .seq = 5, .window = 2}}},
     {M(DT_F32, 5, 6), M(DT_F32, 5, 3), M(DT_F32, 5, 3)}, 3, "causal"},
    {OP_ACT, {ATTRS_ACT, {.act = {ACT_SWIGLU}}}, {M(DT_F32, 5, 7)}, 1, "even"},
    {OP_ADD, {.kind = ATTRS_DROPOUT}, {M(DT_F32, 5, 7), M(DT_F32, 5, 6)}, 2, "one shape"},
    {OP_DROPOUT, {ATTRS_DROPOUT, {.dropout = {.p = 1}}}, {M(DT_F32, 5, 7)}, 1, "[0, 1)"},
    {OP_XENT, {.kind = ATTRS_VOCAB}, {M(DT_F32, 5, 7), VEC(DT_I32, 4)}, 2, "one per token"},
    {OP_COPY, {.kind = ATTRS_NONE}, {VEC(DT_I32, 4)}, 1, "float"},
    {OP_INSERT, {ATTRS_INSERT, {.insert = {{2, 3, 1, 0, 0, 6}}}}, {M(DT_F32, 6, 4), VEC(DT_I32, 6), M(DT_F32, 4, 4)}, 3, NULL},
    {OP_INSERT, {ATTRS_INSERT, {.insert = {{2, 3, 1, 0, 0, 6}}}}, {M(DT_F32, 6, 4), VEC(DT_I32, 6), M(DT_F32, 5, 4)}, 3, "each sequence"},
    {OP_INSERT, {ATTRS_INSERT, {.insert = {{2, 3, 1, 0, 0, 6}}}}, {M(DT_F32, 6, 4), VEC(DT_I32, 5), M(DT_F32, 4, 4)}, 3, "one per row"},
};
/* clang-format on */

static void test_shapes_are_refused_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *x = &refusals[i];
        struct view out[KERNEL_MAX_OUT] = {{0}};
        const char *why = op_row(x->op)->infer(&x->at, x->n_in, x->in, out);
        if (x->word ? !why || !strstr(why, x->word) : why != NULL)
            fail_msg("%s: wanted %s, got %s", op_row(x->op)->name, x->word ? x->word : "no refusal",
                     why ? why : "none");
    }
}

static void test_rows_are_consistent(void **state)
{
    (void)state;
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++) {
        const struct op_row *row = op_row((enum op)op);
        assert_true(row->name && row->infer && row->flops && row->bytes && row->rule);
        assert_true(row->min_in >= 1 && row->min_in <= row->max_in && row->max_in <= KERNEL_MAX_IN);
        assert_true(row->n_out >= 1 && row->n_out <= KERNEL_MAX_OUT);
        assert_int_equal(row->weight_in & row->grad_in, 0);
        assert_true(row->has_backward == ((row->weight_in | row->grad_in) != 0));
        assert_true((row->weight_in | row->grad_in | row->save_in | row->save_in_w) < 1u << row->max_in);
        for (int phase = 0; phase < KERNEL_N_PHASES; phase++) { /* ref has exactly the phases of the row */
            bool has = phase == KERNEL_FWD || (phase == KERNEL_BWD_IN ? row->grad_in : row->weight_in) != 0;
            has |=
                op == OP_ATTENTION_PART && phase == KERNEL_BWD_IN; /* the collective row around it has the gradients */
            assert_true((kernel_family_ref.slot[op][phase].run != NULL) == has);
            assert_true(kernel_family_ref.slot[op][phase].accepts == NULL);
        }
    }
}

static void test_costs(void **state)
{
    (void)state;
    struct kernel_call c = {.op = OP_LINEAR, .n_in = 3, .n_out = 1};
    c.in[0] = shape(DT_BF16, 5, 6);
    c.in[1] = shape(DT_BF16, 7, 6);
    c.in[2] = shape(DT_BF16, 7, 0);
    assert_null(op_row(OP_LINEAR)->infer(&c.at, 3, c.in, c.out));
    assert_true(op_row(OP_LINEAR)->flops(&c) == 2 * 5 * 6 * 7 + 5 * 7);
    assert_true(op_row(OP_LINEAR)->bytes(&c) == 2 * (30 + 42 + 7 + 35));
    c.phase = KERNEL_BWD_W;
    c.dout[0] = c.out[0];
    c.din[1] = shape(DT_F32, 7, 6);
    c.acc[1] = c.din[1];
    assert_true(op_row(OP_LINEAR)->bytes(&c) == 2 * (30 + 35) + 4 * (42 + 42)); /* x, dy, dw read and written */

    for (int64_t window = 0; window <= 9; window += 3) { /* pairs counted one by one */
        for (int causal = window > 0; causal < 2; causal++) {
            struct kernel_call a = {.op = OP_ATTENTION};
            a.at = ATTRS(attention, .heads = 3, .kv_heads = 1, .head_dim = 4, .batch = 2, .seq = 8, .causal = causal,
                         .window = window);
            int64_t pairs = 0;
            for (int64_t i = 0; i < 8; i++)
                for (int64_t j = 0; j < 8; j++) pairs += (!causal || j <= i) && (!window || j > i - window);
            assert_true(op_row(OP_ATTENTION)->flops(&a) == (double)(2 * 3 * pairs * (4 * 4 + 5)));
        }
    }
}

static void test_init(void **state)
{
    (void)state;
    struct kernel_table t;
    struct err e;
    assert_int_equal(kernel_table_init(&t, "ref", 2, false, &e), OK);
    assert_string_equal(t.isa, "ref");
    assert_int_equal(kernel_table_init(&t, "auto", 2, false, &e), OK);
    assert_string_equal(t.isa, isa_name(cpu_isa()));
    assert_int_equal(kernel_table_init(&t, "fast", 2, false, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "fast"));
    assert_int_equal(kernel_table_init(&t, "ref", 0, false, &e), ERR_REQUEST);
}

/* Every call finds a slot in the full chain, and the chain's answer is a filled slot that accepts. */
static void test_every_call_is_served(void **state)
{
    (void)state;
    struct kernel_table t;
    struct err e;
    assert_int_equal(kernel_table_init(&t, "auto", 2, false, &e), OK);
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int d = 0; d < 3; d++)
            for (int phase = 0; phase < KERNEL_N_PHASES; phase++) {
                struct kcase k;
                kcase_random(&k, (enum op)op, kcase_dtypes[d], 1);
                struct kernel_call c = kcase_call(&k, (enum kernel_phase)phase);
                const char *family = NULL;
                const struct kernel_slot *s = kernel_find(&t, &c, &family);
                assert_true((s != NULL) == (kernel_family_ref.slot[op][phase].run != NULL));
                assert_true(!s || (family && !s->choose && s->run && (!s->accepts || s->accepts(&c))));
                kcase_free(&k);
            }
}

/* Without pointers a dry table finds the same slot, the same scratch, and runs nothing. */
static void test_dry_table_counts_and_touches_nothing(void **state)
{
    (void)state;
    struct kernel_table real, dry;
    struct err e;
    assert_int_equal(kernel_table_init(&real, "auto", 3, false, &e), OK);
    assert_int_equal(kernel_table_init(&dry, "auto", 3, true, &e), OK);
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int d = 0; d < 3; d++)
            for (int phase = 0; phase < KERNEL_N_PHASES; phase++) {
                struct kcase k;
                kcase_random(&k, (enum op)op, kcase_dtypes[d], 2);
                struct kernel_call c = kcase_call(&k, (enum kernel_phase)phase), blind = c;
                for (int i = 0; i < KERNEL_MAX_IN; i++) blind.in[i].p = blind.din[i].p = blind.acc[i].p = NULL;
                for (int i = 0; i < KERNEL_MAX_OUT; i++) blind.out[i].p = blind.dout[i].p = NULL;
                assert_ptr_equal(kernel_find(&real, &c, NULL), kernel_find(&dry, &blind, NULL));
                assert_int_equal(kernel_scratch(&real, &c), kernel_scratch(&dry, &blind));
                if (kernel_find(&dry, &blind, NULL)) kernel_run(&dry, &blind); /* would crash if it ran */
                kcase_free(&k);
            }
}

/* The chain end to end: what kernel_run computes is what the slot it names computes. */
static void test_run_through_the_chain(void **state)
{
    (void)state;
    struct kernel_table t;
    struct err e;
    struct team *team = team_new(2);
    struct stream here = kernel_here(team);
    assert_int_equal(kernel_table_init(&t, "auto", 2, false, &e), OK);
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++) {
        struct kcase k;
        kcase_random(&k, (enum op)op, DT_F32, 3);
        struct view kept = {0};
        if (op_row((enum op)op)->changes_in) kept = kcase_clone(&k, &k.in[4]);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        if (kept.p) view_copy(&k.in[4], &kept);
        struct view want = kcase_clone(&k, &k.out[0]);
        struct kernel_call c = kcase_call(&k, KERNEL_FWD);
        if (op == OP_ROTARY) {
            view_copy(&k.out[0], &k.in[0]);
            c.in[0] = c.out[0];
        }
        if (kcase_is_root((enum op)op)) view_fill_zero(&k.out[0]);
        c.scratch_bytes = kernel_scratch(&t, &c);
        char *block = xmalloc(c.scratch_bytes + 64);
        c.scratch = block + (64 - (uintptr_t)block % 64);
        c.stream = &here;
        kernel_run(&t, &c);
        assert_true(view_distance(&k.out[0], &want) < (op == OP_COPY ? 1e-12 : 5e-5));
        xfree(block);
        kcase_free(&k);
    }
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_are_refused_in_words),
        cmocka_unit_test(test_rows_are_consistent),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_every_call_is_served),
        cmocka_unit_test(test_dry_table_counts_and_touches_nothing),
        cmocka_unit_test(test_run_through_the_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
