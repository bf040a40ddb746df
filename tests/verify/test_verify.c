/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Every layout of up to four ranks against one rank: gradients, values, norm, loss, evaluation, going on from another
 * layout. Zero 0 to 3 of one size have the same bits when gradients are reduced once. */
#include "verify/toy_layouts.h"

static const char *const variants[][4] = {
    {"model.family=llama", "model.kv_heads=1"},
    {"model.family=gpt2", "model.tie_embeddings=true", "model.dropout=0.2"},
    {"model.family=llama", "model.tie_embeddings=true", "batch.global=7"}, /* uneven parts */
};

static void test_layouts_equal_one_rank(void **state)
{
    (void)state;
    check_equal_one_rank(variants, sizeof variants / sizeof *variants);
}

static void test_zero_levels_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const keys[] = {"batch.global=4", "batch.micro=2",
                                       "model.family=llama"}; /* one microbatch each */
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    resolve(&c, a, keys, 3);
    if (verify_run(&v, &c, 4, VERIFY_DP | VERIFY_TP | VERIFY_PP, 3, &e)) fail_msg("%s", e.text);
    int compared = 0;
    for (int i = 1; i < v.n; i++) {
        if (v.layout[i].n_ranks < 2 || strstr(v.layout[i].layout, "replicate")) continue;
        if (strstr(v.layout[i].layout, "zero0") || strstr(v.layout[i].layout, " cp"))
            continue; /* cp: other algorithms too */
        if (v.layout[i].bits != v.layout[i - 1].bits)
            fail_msg("%s and %s have other bits", v.layout[i - 1].layout, v.layout[i].layout);
        compared++;
    }
    assert_true(compared >= 9);
    verify_free(&v);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_equal_one_rank),
        cmocka_unit_test(test_zero_levels_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
