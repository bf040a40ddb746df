/* SPDX-License-Identifier: Apache-2.0 */
/* Where documents meet: data.mask_boundaries trains no first token of a document, data.reset_positions begins to count
 * in each; over several ranks as on one, and each changes what is learnt. */
#include "runs.h"

static void documents_open(struct folder *f)
{
    struct err e = {0};
    struct str s = {0};
    folder_open(f);
    snprintf(f->text, sizeof f->text, "%s/some.jsonl", f->dir);
    for (int i = 0; i < 300; i++) str_printf(&s, "{\"text\":\"%d %u sleeps\"}\n", i, rng_u32(1, 1, (uint64_t)i) % 9);
    assert_int_equal(fs_write_atomic(f->text, str_text(&s), s.n, &e), OK);
    str_free(&s);
}

static struct trainer_result trained(const struct folder *f, const char *name, int ranks, const char *key,
                                     const char *key2)
{
    struct trainer_result r = {0};
    struct err e = {0};
    const char *const keys[] = {"model.family=gpt2",
                                "model.kv_heads=4",
                                "precision.recipe=fp32",
                                "checkpoint.every=0",
                                "run.compare_every=0",
                                key,
                                key2,
                                NULL};
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    return r;
}

static void boundaries(void **state)
{
    (void)state;
    enum { ALL = 8 * 4 * 24 };
    struct folder f;
    documents_open(&f);
    struct trainer_result plain = trained(&f, "plain", 1, "run.seed=1", NULL),
                          masked = trained(&f, "masked", 1, "data.mask_boundaries=true", NULL),
                          reset = trained(&f, "reset", 1, "data.reset_positions=true", NULL),
                          both = trained(&f, "both", 1, "data.reset_positions=true", "data.mask_boundaries=true"),
                          two = trained(&f, "two", 2, "data.reset_positions=true", "data.mask_boundaries=true");
    assert_int_equal(plain.tokens, ALL);
    assert_int_equal(reset.tokens, ALL);
    assert_true(masked.tokens < ALL - ALL / 40 && masked.tokens > ALL * 3 / 4);
    assert_int_equal(both.tokens, masked.tokens);
    assert_int_equal(two.tokens, masked.tokens);
    assert_true(plain.loss != masked.loss && plain.loss != reset.loss && both.loss != masked.loss);
    assert_true(fabs(two.loss - both.loss) < 1e-4 * both.loss);
    folder_close(&f);
}

/* numerics.deterministic reaches the communicator. */
static void order_is_asked_for(void **state)
{
    (void)state;
    for (int free = 0; free < 2; free++) {
        char key[] = "numerics.deterministic=true ", *keys[] = {key};
        snprintf(key, sizeof key, "numerics.deterministic=%s", free ? "false" : "true");
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        assert_int_equal(config_load(&c, NULL, a, NULL, keys, 1, &e), OK);
        assert_int_equal(config_comm(&c).any_order, free);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(boundaries), cmocka_unit_test(order_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
