/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Recipes of fewer bits in the layouts of two ranks against one rank, each within its stated bound (verify.c). Sizes
 * are whole blocks where tp and cp cut them; a layout that would cut one is none (config/config_recipe.h). */
#include "verify/toy_layouts.h"

#define EXPERTS(recipe, axes, least)                                                                                   \
    {                                                                                                                  \
        axes, least,                                                                                                   \
        {                                                                                                              \
            "precision.recipe=bf16", "precision.layers={layers.*.experts.*: " recipe "}", "model.family=mixtral",      \
                "model.layers=1", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=64", "model.hidden=64",   \
                "model.heads=2", "batch.global=4",                                                                     \
        }                                                                                                              \
    }
static const struct variant {
    unsigned axes;
    int least; /* layouts */
    const char *key[10];
} variants[] = {
    {VERIFY_ALL, 8, {"precision.recipe=fp8-current", "model.layers=3", "batch.global=4"}},
    {VERIFY_DP | VERIFY_TP | VERIFY_CP, 6, {"precision.recipe=fp8-delayed", "precision.history=2", "batch.global=4"}},
    {VERIFY_TP,
     2,
     {"precision.recipe=mxfp8", "model.layers=1", "model.hidden=64", "model.heads=2", "model.ffn=64",
      "model.seq_len=32", "batch.global=2", "batch.micro=1"}},
    {VERIFY_TP | VERIFY_CP,
     3,
     {"precision.recipe=nvfp4", "precision.layers={layers.0.*: nvfp4}", "model.layers=1", "model.hidden=32",
      "model.heads=2", "model.ffn=32", "model.seq_len=64", "batch.global=2", "batch.micro=1"}},
    {VERIFY_TP,
     2,
     {"precision.recipe=fp8-block", "model.layers=1", "model.hidden=256", "model.heads=2", "model.ffn=256",
      "model.seq_len=8", "batch.global=2", "batch.micro=1"}},
    {VERIFY_DP | VERIFY_EP,
     2,
     {"precision.recipe=bf16", "model.family=mixtral", "model.layers=1", "model.moe.experts=4", "model.moe.top_k=2",
      "model.moe.ffn=52", "precision.layers={layers.*.attn.*: fp8-delayed, layers.0.attn.o.weight: fp8-current}",
      "batch.global=4"}},
    /* batches that ranks do not fill: sequences that do not exist are in no history */
    {VERIFY_DP,
     4,
     {"precision.recipe=fp8-delayed", "precision.history=2", "batch.global=4", "batch.micro=4", "model.seq_len=3",
      "model.family=gpt2", "run.seed=3"}},
    {VERIFY_DP | VERIFY_EP,
     4,
     {"precision.recipe=fp8-delayed", "batch.global=4", "batch.micro=4", "model.seq_len=3", "model.family=mixtral",
      "model.moe.experts=3", "model.moe.top_k=2", "model.moe.ffn=44", "model.hidden=32", "model.heads=2"}},
    EXPERTS("fp8-delayed", VERIFY_TP | VERIFY_CP | VERIFY_DP | VERIFY_EP, 25),
    EXPERTS("fp8-current", VERIFY_TP | VERIFY_DP | VERIFY_EP, 13),
    EXPERTS("fp8-current", VERIFY_CP | VERIFY_EP, 4),
    EXPERTS("mxfp8", VERIFY_TP | VERIFY_CP | VERIFY_DP | VERIFY_EP, 14),
    EXPERTS("nvfp4", VERIFY_TP | VERIFY_DP | VERIFY_EP, 12),
    EXPERTS("fp8-block", VERIFY_DP | VERIFY_EP, 10),
};

static void test_layouts_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += CASE_STRIDE) {
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        int n = 0;
        while (n < 10 && variants[i].key[n]) n++;
        resolve(&c, a, variants[i].key, n);
        verified(&v, &c, 2, variants[i].axes, 2, arena_printf(a, "variant %zu", i), 0, 1);
        if (v.n < (drawn_whole() ? variants[i].least : variants[i].least / 2))
            fail_msg("variant %zu: %d layouts", i, v.n);
        bool both = !c.model.moe.experts || !(variants[i].axes & VERIFY_CP);
        for (int k = 0; k < v.n; k++) both |= strstr(v.layout[k].layout, " ep2 cp2") != NULL;
        if (!both) fail_msg("variant %zu: no layout with ep beside cp", i);
        for (int k = 0; k < v.n; k++) { /* an expert's rows of one microbatch are a part of their own, wherever it is */
            bool sums = strstr(v.layout[k].layout, "tp2") || strstr(v.layout[k].layout, "cp2");
            if (!sums && v.layout[k].max_rel_error > 1e-5)
                fail_msg("variant %zu: %s: %g", i, v.layout[k].layout, v.layout[k].max_rel_error);
        }
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
