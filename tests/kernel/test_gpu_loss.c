/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Cross-entropy of a GPU's family over vocabularies as wide as models have, which random cases do not reach: against
 * the reference, with the same bits in every order of a simulated block's threads; its sums where tokens are in several
 * chunks; and a target that is no token. */
#include "kernel/harness.h"
#include "kernel/sim_orders.h"

static bool built_in(void) { return kernel_family_cuda.slot[OP_XENT][KERNEL_FWD].run != NULL; }

static void near(const struct view *got, const struct view *want, double of_largest)
{
    if (!(view_distance(got, want) <= of_largest)) fail_msg("differs by %.3g of the largest", view_distance(got, want));
}

static void case_of(struct kcase *k, enum op op, enum dtype t, int64_t rows, int64_t cols, struct vocab_attrs at)
{
    *k = (struct kcase){.op = op, .dtype = t, .seed = (uint64_t)(rows + cols), .n_in = 2, .at = attrs_vocab(at)};
    k->step.loss_scale = 0.5f;
    k->in[0] = kcase_floats(k, rows, cols, 3);
    k->in[1] = kcase_ints(k, rows, -1, cols - 1);
    kcase_outputs(k);
    if (op == OP_XENT) kcase_gradients(k);
}

static void check(enum op op, enum dtype t, int64_t rows, int64_t cols, struct vocab_attrs at, int n_orders)
{
    struct kcase k;
    case_of(&k, op, t, rows, cols, at);
    assert_true(kcase_forward(&k, &kernel_family_ref, 1));
    struct view want = kcase_clone(&k, &k.out[0]), grad = {0}, first = {0}, first_grad = {0};
    if (op == OP_XENT) {
        assert_true(kcase_backward(&k, &kernel_family_ref, 1));
        grad = kcase_clone(&k, &k.din[0]);
    }
    for (int o = 0; o < n_orders; o++) {
        sim_order_ask(o);
        assert_true(kcase_forward(&k, &kernel_family_cuda, 1));
        near(&k.out[0], &want, 2e-6);
        if (!o) first = kcase_clone(&k, &k.out[0]);
        assert_true(view_same_bits(&k.out[0], &first));
        if (op != OP_XENT) continue;
        assert_true(kcase_backward(&k, &kernel_family_cuda, 1));
        near(&k.din[0], &grad, t == DT_F32 ? 2e-5 : t == DT_F16 ? 1e-3 : 8e-3);
        if (!o) first_grad = kcase_clone(&k, &k.din[0]);
        assert_true(view_same_bits(&k.din[0], &first_grad));
    }
    kcase_free(&k);
}

static void test_wide_vocabularies(void **state)
{
    (void)state;
    static const int64_t cols[] = {8191, 8192, 8193, 50257, 262147};
    if (!built_in()) skip();
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 5; i++) {
            check(OP_XENT, kcase_dtypes[t], 3, cols[i], (struct vocab_attrs){.right = i % 2}, i < 4 ? SIM_ORDERS : 1);
            if (i < 4) check(OP_XENT_PART, kcase_dtypes[t], 3, cols[i], (struct vocab_attrs){0}, SIM_ORDERS);
        }
}

static void test_many_tokens(void **state)
{
    (void)state;
    if (!built_in()) skip();
    check(OP_XENT, DT_F32, 6151, 3, (struct vocab_attrs){.right = true}, 1); /* four chunks of rows */
    check(OP_XENT, DT_BF16, 4097, 2, (struct vocab_attrs){.plain = true}, 2);
}

/* Logits that are -inf have no probability; what is not finite is said by the loss. */
static void test_not_finite(void **state)
{
    (void)state;
    if (!built_in()) skip();
    for (int bad = 0; bad < 4; bad++) {
        struct kcase k;
        case_of(&k, OP_XENT, DT_F32, 2, 700, (struct vocab_attrs){0});
        for (int64_t v = 0; v < 700; v++) view_set(&k.in[0], 0, v, v % 3 && v != 4 ? -INFINITY : (double)(v % 7));
        view_set(&k.in[1], 0, 0, 3);
        view_set(&k.in[1], 0, 1, bad == 3 ? 700 : 3);
        if (bad == 1) view_set(&k.in[0], 0, 300, NAN);
        if (bad == 2) view_set(&k.in[0], 0, 300, INFINITY);
        assert_true(kcase_forward(&k, &kernel_family_cuda, 1));
        double got = view_get(&k.out[0], 0, 0);
        assert_true(isfinite(got) == !bad);
        if (!bad) {
            assert_true(kcase_forward(&k, &kernel_family_ref, 1));
            assert_true(fabs(got - view_get(&k.out[0], 0, 0)) < 1e-5);
            assert_true(kcase_backward(&k, &kernel_family_cuda, 1));
            assert_true(view_get(&k.din[0], 0, 2) == 0 && view_get(&k.din[0], 0, 3) < 0);
        }
        kcase_free(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide_vocabularies), cmocka_unit_test(test_many_tokens),
                                       cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
