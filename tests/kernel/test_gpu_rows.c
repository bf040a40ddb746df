/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* The rows that a GPU's family has: the same bits in every order of its threads, and shapes beyond what one thread, one
 * warp or one look at the tokens takes. Without the simulator there is nothing to be held. */
#include "drawn.h"
#include "rows.h"

static const struct kernel_family *const gpu = &kernel_family_cuda;
static bool built(void) { return gpu->slot[OP_COPY][KERNEL_FWD].run != NULL; }

static const char *const orders[] = {"forward", "backward", "random:3", "greedy:5", "greedy:9"};
enum { ORDERS = sizeof orders / sizeof *orders };

/* All that the family does of a case, in every order: as in the first. */
static int in_every_order(struct kcase *k)
{
    struct view out[KERNEL_MAX_OUT] = {0}, din[KERNEL_MAX_IN] = {0}, caches[2] = {0};
    bool cached = op_row(k->op)->changes_in, ran = false;
    if (cached) clone_all(k, caches, &k->in[4], 2);
    for (int o = 0; o < ORDERS; o++) {
        assert_int_equal(setenv("TUTTI_SIM_ORDER", orders[o], 1), 0);
        for (int i = 0; cached && i < 2; i++)
            if (caches[i].p) view_copy(&k->in[4 + i], &caches[i]);
        for (int i = 0; i < k->n_out; i++) view_spoil(&k->out[i]);
        bool forward = kcase_forward(k, gpu, 1);
        if (forward && !o) clone_all(k, out, k->out, k->n_out);
        for (int i = 0; forward && i < k->n_out; i++) same(k, &k->out[i], &out[i], orders[o], "output", i);
        ran |= forward;
    }
    for (int i = 0; cached && i < 2; i++)
        if (caches[i].p) view_copy(&k->in[4 + i], &caches[i]);
    if (op_row(k->op)->has_backward) {
        assert_true(forward_ref(k));
        for (int o = 0; o < ORDERS; o++) {
            assert_int_equal(setenv("TUTTI_SIM_ORDER", orders[o], 1), 0);
            for (int i = 0; i < k->n_in; i++)
                if (k->din[i].p) view_spoil(&k->din[i]);
            ran |= kcase_backward(k, gpu, 1);
            if (!o) clone_all(k, din, k->din, k->n_in);
            for (int i = 0; i < k->n_in; i++)
                if (k->din[i].p) same(k, &k->din[i], &din[i], orders[o], "gradient", i);
        }
    }
    unsetenv("TUTTI_SIM_ORDER");
    return ran;
}

static void test_orders(void **state)
{
    (void)state;
    int ran = 0;
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int t = 0; t < 3; t++)
            for (uint64_t seed = 0; seed < CASES / 3; seed++) {
                struct kcase k;
                if (!drawn_here((int64_t)seed, 2)) continue;
                kcase_random(&k, (enum op)op, kcase_dtypes[t], seed);
                ran += in_every_order(&k);
                kcase_free(&k);
            }
    print_message("  %d cases in %d orders\n", ran, (int)ORDERS);
    if (built()) assert_true(ran > 0);
}

/* ---- large ---- */
static void held(struct kcase *k)
{
    struct view out[KERNEL_MAX_OUT] = {0}, din[KERNEL_MAX_IN] = {0};
    kcase_outputs(k);
    kcase_gradients(k);
    assert_true(forward_ref(k));
    clone_all(k, out, k->out, k->n_out);
    for (int i = 0; i < k->n_out; i++) view_spoil(&k->out[i]);
    assert_true(kcase_forward(k, gpu, 1));
    for (int i = 0; i < k->n_out; i++) near(k, &k->out[i], &out[i], gpu->name, "output", i, 1);
    for (int i = 0; i < k->n_out; i++) view_copy(&k->out[i], &out[i]);
    assert_true(kcase_backward(k, &kernel_family_ref, 1));
    clone_all(k, din, k->din, k->n_in);
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p) view_spoil(&k->din[i]);
    assert_true(kcase_backward(k, gpu, 1));
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p) near(k, &k->din[i], &din[i], gpu->name, "gradient", i, 1);
    kcase_check_gaps(k);
    kcase_free(k);
}

static void test_many_rows(void **state)
{
    (void)state;
    if (!built()) return;
    struct kcase k = {.op = OP_COPY, .dtype = DT_BF16, .seed = 3, .n_in = 1}; /* several chunks a thread */
    k.in[0] = kcase_floats(&k, 4300, 1001, 1);
    k.out[0].dtype = DT_F16;
    held(&k);
    struct kcase narrow = {.op = OP_COPY, .dtype = DT_F32, .seed = 4, .n_in = 1};
    narrow.in[0] = kcase_floats(&narrow, 530000, 3, 1);
    narrow.out[0].dtype = DT_F32;
    held(&narrow);
}

static void test_long_rows(void **state)
{
    (void)state;
    if (!built()) return;
    for (int t = 0; t < 3; t++)
        for (int64_t cols = 1030; cols <= 2560; cols += 1530) {
            struct kcase k = {.op = OP_SQUARES, .dtype = kcase_dtypes[t], .seed = 3, .n_in = 1};
            k.in[0] = kcase_floats(&k, 70, cols, 1);
            held(&k);
            struct kcase by = {.op = OP_NORM_BY, .dtype = kcase_dtypes[t], .seed = 4, .n_in = 3};
            by.at = ATTRS(norm, .eps = 1e-5f, .whole = cols + 7, .plus = 1);
            by.in[0] = kcase_floats(&by, 70, cols, 1);
            by.in[1] = kcase_tensor(&by, DT_F32, 70, 1);
            for (int64_t i = 0; i < 70; i++) view_set(&by.in[1], i, 0, 0.5 + (double)i / 8);
            by.in[2] = kcase_floats(&by, cols, 0, 1);
            held(&by);
        }
}

/* Several bins of a table, several looks at the tokens, several blocks of columns; then a part of a table; then one
 * token all over. */
static void test_tables(void **state)
{
    (void)state;
    if (!built()) return;
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < 3; kind++) {
            struct kcase k = {.op = OP_EMBED, .dtype = kcase_dtypes[t], .seed = (uint64_t)kind, .n_in = 2};
            k.at = ATTRS(vocab, .first = kind == 1 ? 100 : 0, .whole = kind == 1 ? 700 : 0, .scale = 1.5f);
            k.in[0] = kcase_ints(&k, 4500, kind == 2 ? 290 : 0, kind == 1 ? 699 : kind == 2 ? 290 : 299);
            k.in[1] = kcase_floats(&k, 300, kind ? 40 : 270, 1);
            held(&k);
        }
}

/* What lies beyond a table is not read: its row is no number. */
static void test_beyond(void **state)
{
    (void)state;
    if (!built()) return;
    struct kcase k = {.op = OP_EMBED, .dtype = DT_BF16, .seed = 1, .n_in = 2, .at = ATTRS(vocab, 0)};
    k.in[0] = kcase_ints(&k, 3, 0, 4);
    view_set(&k.in[0], 0, 0, 5);
    view_set(&k.in[0], 0, 1, -1);
    k.in[1] = kcase_floats(&k, 5, 9, 1);
    kcase_outputs(&k);
    kcase_gradients(&k);
    assert_true(kcase_forward(&k, gpu, 1) && kcase_backward(&k, gpu, 1));
    for (int64_t i = 0; i < 27; i++) assert_int_equal(isnan(view_get(&k.out[0], i / 9, i % 9)) != 0, i < 18);
    kcase_free(&k);
    struct kcase r = {.op = OP_ROTARY,
                      .dtype = DT_F16,
                      .seed = 1,
                      .n_in = 3,
                      .at = ATTRS(rotary, .heads = 2, .head_dim = 6)};
    r.in[0] = kcase_floats(&r, 3, 12, 1);
    r.in[1] = kcase_ints(&r, 3, 0, 3);
    view_set(&r.in[1], 0, 0, 4);
    view_set(&r.in[1], 0, 1, -1);
    r.in[2] = kcase_tensor(&r, DT_F32, 4, 6);
    view_fill(&r.in[2], 1, 2, 1);
    kcase_outputs(&r);
    assert_true(kcase_forward(&r, gpu, 1));
    for (int64_t i = 0; i < 36; i++) assert_int_equal(isnan(view_get(&r.out[0], i / 12, i % 12)) != 0, i < 24);
    kcase_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders), cmocka_unit_test(test_many_rows), cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_tables), cmocka_unit_test(test_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
