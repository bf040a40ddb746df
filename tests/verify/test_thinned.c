/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of layouts take of all layouts (thinned.h): every answer in every variant, every two in one of them at
 * least, few enough, other ones for another number, and all of them where the whole is asked for. */
#include "verify/toy_layouts.h"

enum { Q = THINNED_QUESTIONS };

static void enumerate(struct layouts *l, const char *const *keys, int n)
{
    struct arena *a = arena_new();
    struct config c;
    resolve(&c, a, keys, n);
    layouts_enumerate(l, &c, 4);
    arena_free(a);
}

static struct layouts copy(const struct layouts *l)
{
    struct layouts of = {.at = xcalloc((size_t)l->n, sizeof *l->at), .n = l->n, .room = l->n};
    memcpy(of.at, l->at, (size_t)l->n * sizeof *l->at);
    return of;
}

/* Whether a layout of l answers f and g as t does. */
static bool has(const struct layouts *l, const struct layout_try *t, int f, int g)
{
    int64_t want[Q], is[Q];
    thinned_values(t, want);
    for (int k = 0; k < l->n; k++) {
        thinned_values(&l->at[k], is);
        if (is[f] == want[f] && is[g] == want[g]) return true;
    }
    return false;
}

static void test_every_two_are_met(void **state)
{
    (void)state;
    static const char *const models[][2] = {{"model.family=llama", "model.layers=4"},
                                            {"model.family=mixtral", "model.moe.experts=4"}};
    for (int m = 0; m < 2; m++)
        for (int n = 1; n <= 5; n += 2) {
            struct layouts all, of[5];
            int taken = 0;
            enumerate(&all, models[m], 2);
            assert_true(all.n > 80);
            for (int i = 0; i < n; i++) {
                of[i] = copy(&all);
                thinned_take(&of[i], 7, i, n);
                taken += of[i].n;
                assert_memory_equal(&of[i].at[0], &all.at[0], sizeof all.at[0]);
            }
            for (int k = 0; k < all.n; k++)
                for (int f = 0; f < Q; f++) {
                    for (int i = 0; i < n; i++) assert_true(has(&of[i], &all.at[k], f, f));
                    for (int g = 0; g < f; g++) {
                        int met = 0;
                        for (int i = 0; i < n; i++) met += has(&of[i], &all.at[k], f, g);
                        assert_true(met > 0);
                    }
                }
            assert_true(taken <
                        n * all.n * 3 / (n == 1 ? 4 : 6)); /* of one variant three quarters, of several a half */
            for (int i = 0; i < n; i++) layouts_free(&of[i]);
            layouts_free(&all);
        }
}

static void test_another_number_takes_others(void **state)
{
    (void)state;
    struct layouts all;
    enumerate(&all, (const char *const[]){"model.family=llama"}, 1);
    struct layouts a = copy(&all), b = copy(&all), again = copy(&all);
    thinned_take(&a, 1, 0, 3);
    thinned_take(&b, 2, 0, 3);
    thinned_take(&again, 1, 0, 3);
    assert_int_equal(a.n, again.n);
    assert_memory_equal(a.at, again.at, (size_t)a.n * sizeof *a.at);
    assert_true(a.n != b.n || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at));
    layouts_free(&a);
    layouts_free(&b);
    layouts_free(&again);
    layouts_free(&all);
}

/* Whatever is drawn, a variant has some of each kind (toy_layouts.h asks for twelve). */
static void test_no_number_leaves_a_variant_bare(void **state)
{
    (void)state;
    struct layouts all;
    enumerate(&all, (const char *const[]){"model.family=llama", "batch.global=7"}, 2);
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int i = 0; i < 3; i++) {
            struct layouts some = copy(&all);
            thinned_take(&some, seed, i, 3);
            assert_in_range(some.n, 16, all.n / 2);
            layouts_free(&some);
        }
    layouts_free(&all);
}

static void test_whole_is_all(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct layouts all, few, dp;
    const char *was = getenv("TUTTI_WHOLE");
    char *back = was ? xstrdup(was) : NULL;
    resolve(&c, a, (const char *const[]){"model.family=llama"}, 1);
    setenv("TUTTI_WHOLE", "1", 1);
    thinned_layouts(&all, &c, 4, VERIFY_ALL, 0, 3);
    thinned_layouts(&dp, &c, 4, VERIFY_DP, 0, 3);
    unsetenv("TUTTI_WHOLE");
    thinned_layouts(&few, &c, 4, VERIFY_ALL, 0, 3);
    assert_true(few.n < all.n && dp.n < all.n);
    for (int k = 0; k < dp.n; k++) assert_int_equal(layout_axes(&dp.at[k]) & ~(unsigned)VERIFY_DP, 0);
    layouts_free(&few);
    layouts_free(&dp);
    layouts_enumerate(&few, &c, 4);
    assert_int_equal(few.n, all.n);
    if (back) setenv("TUTTI_WHOLE", back, 1);
    layouts_free(&few);
    layouts_free(&all);
    xfree(back);
    arena_free(a);
}

/* What is drawn of a list is as many as is said, and never nothing of what a sanitizer has thinned already. */
static void test_some_are_always_drawn(void **state)
{
    (void)state;
    for (int k = 1; k <= 4; k++)
        for (int n = 0; n <= 12; n++) {
            int drawn = 0;
            for (int i = 0; i < n; i++) drawn += drawn_here(i, k);
            assert_int_equal(drawn, drawn_number(n, k));
            assert_true(drawn >= n / k);
        }
    for (size_t i = 0; i < 6; i++) {
        assert_true(drawn_half(i, 2) && drawn_half(i, 5));
        assert_true(drawn_half(i, 1) != drawn_half(i + 1, 1) || drawn_whole());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_two_are_met),
        cmocka_unit_test(test_another_number_takes_others),
        cmocka_unit_test(test_no_number_leaves_a_variant_bare),
        cmocka_unit_test(test_some_are_always_drawn),
        cmocka_unit_test(test_whole_is_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
