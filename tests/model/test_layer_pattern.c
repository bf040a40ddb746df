/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns over layers: what they say of each layer, which texts are none, and that any list that fits comes back. And
 * the table of families' defaults: its rows name numbers, and values that these can have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/family_defaults.h"
#include "model/layer_pattern.h"

static void says(const char *text, const char *layers)
{
    struct layer_pattern p = {.text = ""};
    memcpy(p.text, text, strlen(text));
    int64_t n = (int64_t)strlen(layers), count = 0;
    for (int64_t l = 0; l < n; l++) {
        if (layer_pattern_has(&p, l) != (layers[l] == 'x')) fail_msg("\"%s\", layer %lld", text, (long long)l);
        count += layers[l] == 'x';
    }
    assert_int_equal(layer_pattern_count(&p, n), count);
}

static void of_each_layer(void **state)
{
    (void)state;
    says("", "xxxx");
    says("x", "xxxx");
    says("o", "oooo");
    says("xo", "xoxoxo");
    says("5xo", "xxxxxoxxxxxoxxxx");
    says("o2x", "oxxoxxo");
    says("20o8x", "ooooooooooooooooooooxxxxxxxxo");
    static const char *const none[] = {"", "y", "5", "x5", "0x", "x o", "-1x", "10001x", "99999999999999999999x", "X"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!layer_pattern_wanted(none[i])) fail_msg("\"%s\" is taken", none[i]);
    char longest[LAYER_PATTERN_BYTES + 1];
    memset(longest, 'x', sizeof longest);
    longest[LAYER_PATTERN_BYTES] = 0;
    assert_non_null(layer_pattern_wanted(longest));
    longest[LAYER_PATTERN_BYTES - 1] = 0;
    assert_null(layer_pattern_wanted(longest));
}

static void lists_come_back(void **state)
{
    (void)state;
    int fit = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        bool has[128];
        struct layer_pattern p;
        int64_t n = 1 + (int64_t)(rng_uniform(seed, 1, 0) * 127), every = 1 + (int64_t)(rng_uniform(seed, 1, 1) * 40);
        for (int64_t l = 0; l < n; l++)
            has[l] = l < every ? rng_uniform(seed, 2, (uint64_t)l / (1 + seed % 5)) < 0.5f : has[l - every];
        bool fits = layer_pattern_of(has, n, &p);
        fit += fits;
        assert_null(layer_pattern_wanted(p.text));
        for (int64_t l = 0; l < n; l++)
            if (layer_pattern_has(&p, l) != (fits ? has[l] : true)) fail_msg("seed %d: %s", (int)seed, p.text);
        for (size_t i = strlen(p.text); i < sizeof p.text; i++) assert_int_equal(p.text[i], 0);
    }
    assert_true(fit > 300);
    bool has[255]; /* no period, and runs of one */
    struct layer_pattern p;
    for (int l = 0; l < 255; l++) has[l] = l % 2 == 0 || l == 201;
    assert_false(layer_pattern_of(has, 255, &p));
    assert_string_equal(p.text, "x");
}

static bool nobody(const void *ctx, const char *path) { return ctx && !strcmp(ctx, path); }

static void defaults_are_numbers(void **state)
{
    (void)state;
    for (int f = 0; f < MODEL_N; f++) {
        struct model_config c = {.family = (enum model_family)f};
        family_defaults(&c, nobody, NULL);
        for (const struct number *n = model_numbers; n->row.path; n++) {
            const char *value = family_default(c.family, n->row.path);
            if (!value) continue;
            if (n->row.type == CONF_WORD) assert_null(layer_pattern_wanted(value));
            if (n->row.type == CONF_INT || n->row.type == CONF_REAL)
                assert_true(strtod(value, NULL) >= n->row.lo && strtod(value, NULL) <= n->row.hi);
        }
    }
    struct model_config c = {.family = MODEL_GEMMA3};
    family_defaults(&c, nobody, "model.attn.window");
    assert_true(c.attn.window == 0 && c.norm_plus_one && c.norm_place == NORM_BOTH && c.attn.qk_norm == QK_NORM_HEAD);
    assert_true(c.gate == GATE_GELU_TANH && c.attn.local_theta == 1e4 && !strcmp(c.attn.local.text, "5xo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_each_layer),
        cmocka_unit_test(lists_come_back),
        cmocka_unit_test(defaults_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
