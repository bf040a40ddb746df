/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Optimizers chosen for groups of parameters, in layouts of up to four ranks against one rank: steps, and what a
 * checkpoint of another layout brings back of arrays that some parameters have and others do not. */
#include "verify/toy_layouts.h"

/* clang-format off */
static const char *const variants[][5] = {
    {"model.family=gpt2", "optimizer.name=sgd", "optimizer.embeddings.name=adamw", "optimizer.momentum=0", "optimizer.embeddings.lr_factor=0.1"},
    {"model.family=llama", "optimizer.vectors.name=sgd", "optimizer.vectors.lr_factor=5", "precision.recipe=bf16", "optimizer.momentum=0"},
};
/* clang-format on */

static void test_groups_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        int resumed = 0;
        resolve(&c, a, variants[i], 5);
        verified(&v, &c, 4, i ? VERIFY_DP | VERIFY_PP : VERIFY_DP | VERIFY_TP | VERIFY_SERVERS, 2,
                 arena_printf(a, "variant %zu", i), 0, 1);
        for (int k = 0; k < v.n; k++) resumed += v.layout[k].resumed[0] && v.layout[k].resume_identical;
        if (resumed < (drawn_whole() ? 12 : 6)) fail_msg("variant %zu, %d resumed", i, resumed);
        assert_true(v.eps > 0); /* settled for the group that has one */
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups_equal_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
