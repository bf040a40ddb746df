/* SPDX-License-Identifier: Apache-2.0 */
/* What each layer of a hybrid is: published patterns say it, letter by letter; other texts are refused, and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/numbers.h"

static void letters_are_layers(void **state)
{
    (void)state;
    static const struct layer_pattern p = {.text = "M-M*-"};
    static const enum layer_kind is[] = {LAYER_SCAN, LAYER_MLP, LAYER_SCAN, LAYER_ATTENTION, LAYER_MLP};
    assert_null(layer_kinds_wanted(p.text));
    assert_int_equal(layer_kinds_length(&p), 5);
    for (int64_t l = 0; l < 12; l++) assert_int_equal(layer_kind_at(&p, l), is[l % 5]); /* and again from the start */
    for (int k = LAYER_SCAN; k < LAYER_KINDS; k++) {
        struct layer_pattern one = {.text = {layer_kind_letter((enum layer_kind)k)}};
        assert_int_equal(layer_kind_at(&one, 3), k);
        for (int o = LAYER_SCAN; o < LAYER_KINDS; o++)
            assert_int_equal(layer_kinds_have(&one, (enum layer_kind)o), o == k);
    }
}

static void others_are_refused(void **state)
{
    (void)state;
    static const char *const none[] = {"", "m", "M ", "x", "2M", "M|*", "MA"};
    char longest[LAYER_PATTERN_BYTES + 1];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_non_null(strstr(layer_kinds_wanted(none[i]), "a letter"));
    assert_non_null(strstr(layer_kinds_wanted("MEM*"), "experts"));
    memset(longest, 'M', sizeof longest);
    longest[LAYER_PATTERN_BYTES] = 0;
    assert_non_null(layer_kinds_wanted(longest));
    longest[LAYER_PATTERN_BYTES - 1] = 0;
    assert_null(layer_kinds_wanted(longest));
}

/* Families without a pattern have layers of one kind each. */
static void models_know_their_layers(void **state)
{
    (void)state;
    struct model_config c = {.family = MODEL_NEMOTRON_H, .layers = 4, .pattern = {.text = "M*-"}};
    assert_true(model_scans(&c) && model_attends(&c) && model_mixes(&c) && !model_decodes(&c));
    for (int64_t l = 0; l < 4; l++) {
        assert_int_equal(model_layer_scans(&c, l), l % 3 == 0);
        assert_int_equal(model_layer_attends(&c, l), l == 1);
    }
    c.family = MODEL_MAMBA2;
    assert_true(model_layer_scans(&c, 1) && !model_layer_attends(&c, 1) && !model_attends(&c));
    c.family = MODEL_LLAMA;
    assert_true(!model_layer_scans(&c, 0) && model_layer_attends(&c, 0) && model_attends(&c) && !model_scans(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_are_layers),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(models_know_their_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
