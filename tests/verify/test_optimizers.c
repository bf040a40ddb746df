/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Every optimizer of the table beside AdamW and SGD, in layouts of up to four ranks against one rank: steps, and what
 * the checkpoint of another layout brings back. Bounds are verify's (verify/verify.c). */
#include "verify/toy_layouts.h"

static const struct variant {
    unsigned axes;
    int ranks, resumed; /* that many layouts at least go on from another's checkpoint */
    const char *key[6];
} variants[] = {
    {VERIFY_DP | VERIFY_TP | VERIFY_SERVERS, 3, 6, {"optimizer.name=lion", "optimizer.betas=[0.9,0.99]"}},
    {VERIFY_DP | VERIFY_TP | VERIFY_SERVERS,
     3,
     6,
     {"optimizer.name=muon", "optimizer.lr=0.005", "optimizer.schedule.warmup_steps=0"}},
    {VERIFY_DP | VERIFY_TP | VERIFY_SERVERS, 2, 3, {"optimizer.moments=bf16", "optimizer.schedule.warmup_steps=0"}},
    {VERIFY_DP | VERIFY_TP | VERIFY_SERVERS, 2, 3, {"optimizer.moments=8bit", "optimizer.block=16", "model.ffn=64"}},
    {VERIFY_DP | VERIFY_PP | VERIFY_EP,
     2,
     3,
     {"optimizer.moments=fp8", "optimizer.block=32", "model.family=mixtral", "model.moe.experts=4"}},
    {VERIFY_DP | VERIFY_TP, 3, 4, {"optimizer.name=adafactor"}},
    {VERIFY_DP | VERIFY_PP | VERIFY_EP,
     2,
     3,
     {"optimizer.name=adafactor", "model.family=mixtral", "model.moe.experts=4"}},
    {VERIFY_DP | VERIFY_SERVERS, 2, 2, {"optimizer.name=sgd", "optimizer.ema=0.9"}},
    {VERIFY_DP | VERIFY_TP, 3, 4, {"precision.recipe=bf16", "precision.master=none", "optimizer.ema=0.9"}},
    {VERIFY_DP | VERIFY_PP | VERIFY_EP,
     2,
     3,
     {"optimizer.name=muon", "model.family=mixtral", "model.moe.experts=4", "optimizer.lr=0.005"}},
};

static void test_optimizers_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (!drawn_here((int64_t)i, 2)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        struct str out = {0};
        int resumed = 0, n = 0;
        while (variants[i].key[n]) n++;
        resolve(&c, a, variants[i].key, n);
        if (verify_run(&v, &c, variants[i].ranks, variants[i].axes, 2, &e)) fail_msg("variant %zu: %s", i, e.text);
        verify_print(&v, &out);
        for (int k = 0; k < v.n; k++) resumed += v.layout[k].resumed[0] && v.layout[k].resume_identical;
        if (!v.ok || resumed < variants[i].resumed)
            fail_msg("variant %zu, %d resumed:\n%s", i, resumed, str_text(&out));
        assert_true(v.layout[0].bit_identical);
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optimizers_equal_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
