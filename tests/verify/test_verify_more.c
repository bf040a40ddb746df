/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* More models in every layout of up to four ranks against one rank; and what a run has compared at all. */
#include "verify/toy_layouts.h"

static const char *const variants[][4] = {
    {"model.family=gpt2", "batch.global=3", "memory.recompute=full"}, /* a rank with nothing to do */
    {"model.family=llama", "precision.recipe=bf16", "model.document_mask=true"},
    {"model.family=llama", "optimizer.name=sgd", "memory.loss_chunk=7"},
};

static void test_layouts_equal_one_rank(void **state)
{
    (void)state;
    check_equal_one_rank(variants, sizeof variants / sizeof *variants);
}

/* What every run has compared beside steps: an evaluation, a checkpoint of another layout, plain loops, dualpipe with
 * zero levels. */
static void test_all_is_compared(void **state)
{
    (void)state;
    static const char *const keys[] = {"model.family=llama", "batch.micro=1"};
    static const char *const wanted[] = {"dp2 zero1 pp2:dualpipe", "dp2 zero2 pp2:dualpipe", "dp2 zero3 pp2:dualpipe",
                                         "dp2 zero3 pp2:dualpipev"};
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    struct str out = {0};
    resolve(&c, a, keys, 2);
    if (verify_run(&v, &c, 4, VERIFY_DP | VERIFY_PP, 2, &e)) fail_msg("%s", e.text);
    int resumed = 0, plain = 0, found = 0, same_way = 0;
    for (int i = 0; i < v.n; i++) {
        const struct verify_layout *l = &v.layout[i];
        resumed += l->resumed[0] != 0;
        same_way += !strcmp(l->resumed, l->layout);
        plain += l->ref_rel_error >= 0;
        for (int k = 0; k < 4; k++) found += !strcmp(l->layout, wanted[k]);
        if (l->resumed[0]) assert_true(l->resume_identical);
    }
    verify_json(&v, &out);
    if (!v.ok || found != 4 || resumed < 20 || same_way || plain < 3 || !(v.ref_rel_error > 0) ||
        v.ref_rel_error > 1e-5)
        fail_msg("%d dualpipe with zero, %d resumed, %d from themselves, %d plain, ref %g\n%s", found, resumed,
                 same_way, plain, v.ref_rel_error, str_text(&out));
    assert_non_null(strstr(str_text(&out), "\"eval_rel_error\""));
    assert_non_null(strstr(str_text(&out), "\"resumed_from\""));
    assert_string_equal(v.layout[0].resumed, "one rank");
    assert_true(v.layout[0].resume_rel_error == 0);
    str_free(&out);
    verify_free(&v);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_equal_one_rank),
        cmocka_unit_test(test_all_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
