/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: growth, distances, suggestions, UTF-8, numbers for people. */
#include "base/check.h"

#include <math.h>

#include "base/str.h"

static void grows_and_stays_terminated(void **state)
{
    (void)state;
    struct str s = {0};
    assert_string_equal(str_text(&s), "");
    for (int i = 0; i < 1000; i++) str_printf(&s, "%d,", i % 10);
    assert_int_equal(s.n, 2000);
    assert_int_equal(strlen(s.p), 2000);
    str_add(&s, "a\0b", 3);
    assert_int_equal(s.n, 2003);
    str_clear(&s);
    str_add(&s, NULL, 0);
    assert_string_equal(str_text(&s), "");
    str_free(&s);
    assert_null(s.p);
}

static void edit_distance_is_a_distance(void **state)
{
    (void)state;
    static const char *const words[] = {"", "a", "layers", "layrs", "heads", "hidden", "kitten", "sitting"};
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("layers", "layrs"), 1);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            int d = str_distance(words[i], words[j]);
            assert_int_equal(d, str_distance(words[j], words[i]));
            assert_int_equal(d == 0, i == j);
            for (int k = 0; k < 8; k++)
                assert_true(d <= str_distance(words[i], words[k]) + str_distance(words[k], words[j]));
        }
}

static void suggests_what_is_near_and_nothing_else(void **state)
{
    (void)state;
    static const char *const words[] = {"layers", "hidden", "heads", "kv_heads", "lr"};
    assert_string_equal(str_nearest("layrs", words, 5), "layers");
    assert_string_equal(str_nearest("kvheads", words, 5), "kv_heads");
    assert_string_equal(str_nearest("lrr", words, 5), "lr");
    assert_null(str_nearest("optimizer", words, 5));
    assert_null(str_nearest("zz", words, 5));
    static const char *const numbers[] = {"fp32", "bf16", "h100-sxm"};
    assert_null(str_nearest("fp16", numbers, 1));
    assert_null(str_nearest("h200-sxm", numbers, 3));
    assert_null(str_nearest("fp8", numbers, 1));
    assert_string_equal(str_nearest("pf32", numbers, 1), "fp32");
}

static void utf8_takes_only_what_is_valid(void **state)
{
    (void)state;
    uint32_t c = 0;
    assert_int_equal(str_utf8("a", &c), 1);
    assert_int_equal(str_utf8("\xC3\xA9", &c), 2);
    assert_int_equal(c, 0xE9);
    assert_int_equal(str_utf8("\xF0\x9F\x98\x80", &c), 4);
    assert_int_equal(c, 0x1F600);
    static const char *const bad[] =
        {"\x80",     "\xC3", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80",
         "\xE2\x82", "\xFF"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(str_utf8(bad[i], &c), 0);
}

static void numbers_read_well(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(str_bytes(out, 512), "512 B");
    assert_string_equal(str_bytes(out, 1.5 * (1 << 30)), "1.5 GiB");
    assert_string_equal(str_bytes(out, 340.0 * (1 << 20)), "340 MiB");
    assert_string_equal(str_count(out, 12345), "12.3k");
    assert_string_equal(str_count(out, 124439808), "124M");
    assert_string_equal(str_count(out, 7), "7");
    assert_string_equal(str_flops(out, 12), "12 FLOP");
    assert_string_equal(str_flops(out, 4500), "4.5 kFLOP");
    assert_string_equal(str_flops(out, 12.7e15), "12.7 PFLOP");
    assert_string_equal(str_flops(out, 3.1e24), "3.1 YFLOP");
    assert_string_equal(str_duration(out, 0.05), "50ms");
    assert_string_equal(str_duration(out, 4.2), "4.2s");
    assert_string_equal(str_duration(out, 190), "3m 10s");
    assert_string_equal(str_duration(out, 3720), "1h 02m");
    assert_string_equal(str_duration(out, 3 * 86400 + 7200), "3d 02h");
    assert_string_equal(str_duration(out, -1), "?");
    assert_true(str_starts("model.layers", "model.") && !str_starts("mod", "model"));
    assert_true(str_ends("a.jsonl", ".jsonl") && !str_ends("l", ".jsonl"));
}

/* What str_bytes writes reads back, units are binary with an i and decimal without. */
static void sizes_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want; /* 0: no size */
    } all[] = {{"24GiB", 24.0 * (1 << 30)},
               {"1.5 KiB", 1536},
               {"800MB", 8e8},
               {"12", 12},
               {"12B", 12},
               {"1kB", 1000},
               {"2KB", 2000},
               {"1e3KiB", 1024e3},
               {"3TiB", 3.0 * (1LL << 40)},
               {"", 0},
               {"GiB", 0},
               {"3GiBs", 0},
               {"3G", 0},
               {"3Gi", 0},
               {"-3GiB", 0},
               {"0", 0},
               {"0x10", 0},
               {"1e400", 0},
               {"nan", 0},
               {"inf", 0},
               {"3 GiB ", 0},
               {"3iB", 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double got = -1;
        int rc = str_to_bytes(all[i].text, &got);
        if (all[i].want > 0 ? rc != 0 || got != all[i].want : rc != -1)
            fail_msg("'%s': %d, %.17g", all[i].text, rc, got);
    }
    for (double b = 1; b < 1e18; b *= 1.7) {
        char text[32];
        double got;
        assert_int_equal(str_to_bytes(str_bytes(text, b), &got), 0);
        assert_true(fabs(got - b) <= 0.06 * b + 0.5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(edit_distance_is_a_distance),
        cmocka_unit_test(suggests_what_is_near_and_nothing_else),
        cmocka_unit_test(utf8_takes_only_what_is_valid),
        cmocka_unit_test(numbers_read_well),
        cmocka_unit_test(sizes_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
