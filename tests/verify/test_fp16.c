/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* fp16 with its loss scale in every layout of some ranks against one rank: with a scale that is always taken, and with
 * one that the first steps overflow, which every layout must leave out alike (verify compares which those were). */
#include "verify/toy_layouts.h"

static const struct variant {
    unsigned axes;
    int ranks, left_out; /* so many steps at least, and not all */
    const char *key[6];
} variants[] = {
    {VERIFY_ALL, 2, 0, {"precision.recipe=fp16", "precision.loss_scale.initial=1024"}},
    {VERIFY_DP | VERIFY_TP | VERIFY_PP, 2, 1, {"precision.recipe=fp16", "precision.loss_scale.initial=8388608"}},
    {VERIFY_DP | VERIFY_EP,
     2,
     0,
     {"precision.recipe=fp16", "model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=52"}},
};

static void test_layouts_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        int n = 0;
        while (variants[i].key[n]) n++;
        resolve(&c, a, variants[i].key, n);
        verified(&v, &c, variants[i].ranks, variants[i].axes, 4, arena_printf(a, "variant %zu", i), 0, 1);
        if (v.left_out < variants[i].left_out || v.left_out > 3)
            fail_msg("variant %zu left out %d of 4 steps", i, v.left_out);
        assert_true(v.n > 3);
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
