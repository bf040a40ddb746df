/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: lists of megabytes, which stay where they were collected, many keys asked for at once, and characters and
 * numbers at every place of a block. */
#include "base/check.h"
#include "base/json.h"
#include "base/str.h"

enum { MANY = 70000 };

static void put_members(struct str *s, int n)
{
    for (int i = 0; i < n; i++) str_printf(s, "%s\"k%d\": %d", i ? ",\n  " : "", i, i);
}

static void put_numbers(struct str *s, int n)
{
    for (int i = 0; i < n; i++) str_printf(s, "%s%d", i ? "," : "", i);
}

static void check_members(const struct json *object, int n)
{
    char key[16];
    assert_int_equal(json_size(object), n);
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(json_int(json_get(object, key), -1), i);
    }
    assert_null(json_get(object, "k"));
}

static void check_numbers(const struct json *list, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(json_int(json_at(list, (size_t)i), -1), i);
}

/* What is below a large list on the stack, beside it and behind it. */
static void test_large_lists(void **state)
{
    (void)state;
    struct str s = {0};
    struct json *root;
    struct err e = {0};
    str_puts(&s, "[\"first\", {\"before\": 1, \"large\": {");
    put_members(&s, MANY);
    str_puts(&s, "}, \"after\": [");
    put_numbers(&s, MANY);
    str_puts(&s, "]}, [");
    put_numbers(&s, MANY);
    str_puts(&s, ", [");
    put_numbers(&s, MANY); /* no larger than what is below it */
    str_puts(&s, "]], \"last\"]");
    assert_int_equal(json_parse(&root, s.p, s.n, "t.json", &e), OK);
    assert_int_equal(json_size(root), 4);
    assert_string_equal(json_string(json_at(root, 0), NULL, ""), "first");
    assert_string_equal(json_string(json_at(root, 3), NULL, ""), "last");
    const struct json *object = json_at(root, 1), *list = json_at(root, 2);
    assert_int_equal(json_int(json_get(object, "before"), 0), 1);
    check_members(json_get(object, "large"), MANY);
    assert_int_equal(json_size(json_get(object, "after")), MANY);
    check_numbers(json_get(object, "after"), MANY);
    assert_int_equal(json_size(list), MANY + 1);
    check_numbers(list, MANY);
    check_numbers(json_at(list, MANY), MANY);
    json_free(root);
    /* It ends inside a list that follows. */
    assert_int_equal(json_parse(&root, s.p, s.n - 20, "t.json", &e), ERR_CORRUPT);
    str_free(&s);
}

static void test_large_object_with_keys_twice(void **state)
{
    (void)state;
    struct str s = {0};
    struct json *root;
    struct err e = {0};
    str_puts(&s, "{\"k7\": -7, \"k69999\": -1, ");
    put_members(&s, MANY);
    str_puts(&s, "}");
    assert_int_equal(json_parse(&root, s.p, s.n, "t.json", &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "t.json:8: not valid JSON: duplicate object key"));
    assert_int_equal(json_parse_published(&root, s.p, s.n, "t.json", &e), OK);
    check_members(root, MANY);
    void *it = json_iter(root);
    assert_string_equal(json_iter_key(it), "k7");
    assert_string_equal(json_iter_key(json_iter_next(root, it)), "k69999");
    json_free(root);
    str_free(&s);
}

static void ask(int n, const char *end)
{
    struct str s = {0};
    struct json *root;
    struct err e = {0};
    str_puts(&s, "{");
    put_members(&s, n);
    str_puts(&s, end);
    assert_int_equal(json_parse(&root, s.p, s.n, "t.json", &e), OK);
    char keys[64][16];
    struct json_asked asked[64];
    for (int i = 0; i < 64; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        asked[i] = (struct json_asked){.key = keys[i], .n = strlen(keys[i])};
    }
    json_ask(root, asked, 64);
    for (int i = 0; i < 64; i++) {
        assert_true((asked[i].it != NULL) == (i < n));
        if (asked[i].it) assert_int_equal(json_int(json_iter_value(asked[i].it), -1), i);
    }
    json_ask(json_get(root, "k0"), asked, 64); /* no object */
    for (int i = 0; i < 64; i++) assert_null(asked[i].it);
    asked[0] = (struct json_asked){.key = "a\0b", .n = 3};
    json_ask(root, asked, 1);
    assert_int_equal(asked[0].it ? json_int(json_iter_value(asked[0].it), -1) : -1, strstr(end, "u0000") ? 5 : -1);
    json_free(root);
    str_free(&s);
}

static void test_many_keys_at_once(void **state)
{
    (void)state;
    int n[] = {0, 1, 7, 8, 9, 40, 64, 3000};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        ask(n[i], "}");
        if (n[i]) ask(n[i], ", \"a\\u0000b\": 5}");
    }
}

/* A character, whole or cut off by what stops a text, behind every number of bytes. */
static void test_characters_at_every_place(void **state)
{
    (void)state;
    static const char *const good[] = {"\xC3\xA9", "\xDF\xBF", "\xE2\x96\x81", "\xEF\xBF\xBF", "\xF0\x9F\x98\x80"};
    static const char *const bad[] = {"\xC3",         "\xE2\x96",         "\xF0\x9F\x98", "\xC1\x81",
                                      "\xED\xA0\x80", "\xF5\x80\x80\x80", "\x80",         "\xE0\x9F\xBF"};
    struct err e = {0};
    struct json *root;
    for (int before = 0; before < 50; before++)
        for (int behind = 0; behind < 20; behind += 19)
            for (size_t i = 0; i < 13; i++) {
                const char *c = i < 5 ? good[i] : bad[i - 5];
                char text[128], wanted[64];
                int n =
                    snprintf(text, sizeof text, "\"%.*s%s%.*s\"", before,
                             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", c, behind, "bbbbbbbbbbbbbbbbbbbb");
                int code = json_parse(&root, text, (size_t)n, "t.json", &e);
                assert_int_equal(code, i < 5 ? OK : ERR_CORRUPT);
                if (code) {
                    snprintf(wanted, sizeof wanted, "unable to decode byte 0x%02x (column %d)", (unsigned char)*c,
                             before + 2);
                    assert_non_null(strstr(e.text, wanted));
                    continue;
                }
                size_t got;
                const char *s = json_string(root, &got, "");
                assert_int_equal(got, n - 2);
                assert_memory_equal(s, text + 1, got);
                assert_int_equal(s[got], 0);
                json_free(root);
            }
}

static void test_whole_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
        bool good;
    } rows[] = {{"7", 7, true},
                {"0", 0, true},
                {"-0", 0, true},
                {"-5", -5, true},
                {"99999999999999999", 99999999999999999, true},
                {"999999999999999999", 999999999999999999, true},
                {"9223372036854775807", INT64_MAX, true},
                {"-9223372036854775808", INT64_MIN, true},
                {"9223372036854775808", 0, false},
                {"01", 0, false},
                {"-", 0, false},
                {"--1", 0, false},
                {"1-", 0, false},
                {"1e", 0, false},
                {"1.", 0, false},
                {"123456789012345678.", 0, false}};
    struct err e = {0};
    struct json *root;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int form = 0; form < 2; form++) {
            char text[64];
            snprintf(text, sizeof text, form ? "[%s]" : "%s", rows[i].text); /* at the end, and not */
            int code = json_parse(&root, text, strlen(text), "t.json", &e);
            assert_int_equal(code, rows[i].good ? OK : ERR_CORRUPT);
            if (!code) assert_int_equal(json_int(form ? json_at(root, 0) : root, -77), rows[i].value);
            if (!code) json_free(root);
        }
    assert_int_equal(json_parse(&root, "[12e2, 12E2, 12.0, 123456789012345678e0]", 40, "t.json", &e), OK);
    for (size_t i = 0; i < 4; i++) assert_int_equal(json_kind(json_at(root, i)), JSON_REAL);
    json_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_lists),       cmocka_unit_test(test_large_object_with_keys_twice),
        cmocka_unit_test(test_many_keys_at_once), cmocka_unit_test(test_characters_at_every_place),
        cmocka_unit_test(test_whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
