/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: kinds, places in errors, and writing that reads back to the bit. */
#include <float.h>
#include <math.h>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"

static void reads_every_kind(void **state)
{
    (void)state;
    static const char text[] = "{\"z\": 1, \"a\": [1.5, true, null, \"t\\u00e9\\u0000x\"], \"m\": {\"k\": -9}}";
    struct json *root;
    struct err e = {0};
    assert_int_equal(json_parse(&root, text, strlen(text), "t.json", &e), OK);
    assert_int_equal(json_kind(root), JSON_OBJECT);
    assert_int_equal(json_size(root), 3);
    const struct json *a = json_get(root, "a");
    assert_int_equal(json_size(a), 4);
    assert_true(json_real(json_at(a, 0), 0) == 1.5);
    assert_true(json_bool(json_at(a, 1), false));
    assert_int_equal(json_kind(json_at(a, 2)), JSON_NULL);
    size_t n;
    const char *s = json_string(json_at(a, 3), &n, NULL);
    assert_int_equal(n, 5);
    assert_memory_equal(s, "t\xC3\xA9\0x", 5);
    assert_null(json_at(a, 4));
    assert_int_equal(json_int(json_get(json_get(root, "m"), "k"), 0), -9);
    assert_int_equal(json_int(json_get(json_get(root, "none"), "k"), 7), 7); /* NULL passes through */
    assert_true(json_real(json_get(root, "z"), 0) == 1);
    assert_int_equal(json_int(json_at(a, 0), 3), 3); /* a fraction is no integer */
    const char *order = "zam";
    for (void *it = json_iter(root); it; it = json_iter_next(root, it))
        assert_int_equal(json_iter_key(it)[0], *order++);
    assert_int_equal(*order, 0);
    json_free(root);
    json_free(NULL);
}

/* As Python's json reads it: what is not used is no error, what is used fits no range. */
static void published_documents_are_read_as_they_are(void **state)
{
    (void)state;
    static const char text[] =
        "\xEF\xBB\xBF{\"model_max_length\": 1000000000000000019884624838656,\n\"id\": 18446744073709551615, \"least\": "
        "-9223372036854775808,"
        "\"most\":9223372036854775807,\"less\":-9223372036854775809,\"nan\":NaN,\"inf\": "
        "[Infinity,-Infinity,1e400,-1e999],"
        "\"text\": \"NaN, \\\" 99999999999999999999\", \"99999999999999999999\": 1.5, \"twice\": 1, \"twice\": 2}";
    struct json *root;
    struct err e = {0};
    assert_int_equal(json_parse(&root, text + 3, strlen(text + 3), "t.json", &e), ERR_CORRUPT);
    if (json_parse_published(&root, text, strlen(text), "t.json", &e)) fail_msg("%s", e.text);
    assert_int_equal(json_kind(json_get(root, "model_max_length")), JSON_REAL);
    assert_true(json_real(json_get(root, "model_max_length"), 0) == 1e30);
    assert_int_equal(json_int(json_get(root, "id"), -7), -7); /* never another integer */
    assert_true(json_real(json_get(root, "id"), 0) == 18446744073709551616.0);
    assert_true(json_int(json_get(root, "least"), 0) == INT64_MIN && json_int(json_get(root, "most"), 0) == INT64_MAX);
    assert_int_equal(json_kind(json_get(root, "less")), JSON_REAL);
    assert_true(isnan(json_real(json_get(root, "nan"), 0)));
    for (size_t i = 0; i < 4; i++) assert_true(isnan(json_real(json_at(json_get(root, "inf"), i), 0)));
    assert_string_equal(json_string(json_get(root, "text"), NULL, ""), "NaN, \" 99999999999999999999");
    assert_true(json_real(json_get(root, "99999999999999999999"), 0) == 1.5);
    assert_int_equal(json_int(json_get(root, "twice"), 0), 2);
    int64_t v;
    assert_int_equal(json_need_int(root, "id", 0, 100, &v, "t.json", &e), ERR_CORRUPT);
    assert_contains(e.text, "t.json: id: wanted an integer from 0 to 100, got 1.84467441e+19");
    assert_int_equal(json_need_int(root, "nan", 0, 100, &v, "t.json", &e), ERR_CORRUPT);
    assert_contains(e.text, "t.json: nan: wanted an integer from 0 to 100, got nan");
    json_free(root);
}

static void published_documents_are_still_json(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\": nan}",
                                      "{\"a\": +99999999999999999999}",
                                      "{\"a\": 099999999999999999999}",
                                      "[99999999999999999999.]",
                                      "[NaNs]",
                                      "[--Infinity]",
                                      "[Infinity",
                                      "[1e400e]",
                                      "",
                                      "\xEF\xBB\xBF",
                                      "\xEF\xBB\xBF\xEF\xBB\xBF{}",
                                      "[\"\\ud800\"]",
                                      "[\"\xff\"]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json *root;
        struct err e = {0};
        if (json_parse_published(&root, bad[i], strlen(bad[i]), "t.json", &e) != ERR_CORRUPT)
            fail_msg("%s was read", bad[i]);
        assert_null(root);
        assert_contains(e.text, "t.json:1: not valid JSON");
    }
    struct json *root;
    struct err e = {0};
    struct str deep = {0};
    for (int i = 0; i < 100000; i++) str_putc(&deep, '[');
    assert_int_equal(json_parse_published(&root, deep.p, deep.n, "t.json", &e), ERR_CORRUPT);
    str_clear(&deep);
    for (int i = 0; i < 1000; i++) str_putc(&deep, '9'); /* no double either */
    assert_int_equal(json_parse_published(&root, deep.p, deep.n, "t.json", &e), OK);
    assert_true(isnan(json_real(root, 0)));
    json_free(root);
    str_free(&deep);
    assert_int_equal(json_parse_published(&root, NULL, 0, "t.json", &e), ERR_CORRUPT);
}

static void errors_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"{\n \"a\": 1,\n \"a\": 2}", "t.json:3: not valid JSON: duplicate object key"},
        {"", "t.json:1: not valid JSON"},
        {"[1, 2", "t.json:1: not valid JSON"},
        {"[1]\n]", "t.json:2: not valid JSON"},
        {"{\"a\": \"\xff\"}", "t.json:1: not valid JSON: unable to decode byte 0xff"},
        {"[99999999999999999999]", "too big integer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json *root;
        struct err e = {0};
        assert_int_equal(json_parse(&root, rows[i].text, strlen(rows[i].text), "t.json", &e), ERR_CORRUPT);
        assert_null(root);
        assert_contains(e.text, rows[i].want);
    }
    struct json *root;
    struct err e = {0};
    static char deep[100000];
    memset(deep, '[', sizeof deep);
    assert_int_equal(json_parse(&root, deep, sizeof deep, "deep", &e), ERR_CORRUPT);
    assert_contains(e.text, "depth");
    assert_int_equal(json_parse_file(&root, "/nonexistent.json", 100, &e), ERR_REQUEST);
}

static void required_members_are_checked(void **state)
{
    (void)state;
    static const char text[] = "{\"vocab\": \"many\", \"heads\": 99, \"name\": \"x\\u0000y\", \"ok\": 5, \"s\": \"t\"}";
    struct json *root;
    struct err e = {0};
    assert_int_equal(json_parse(&root, text, strlen(text), "c.json", &e), OK);
    int64_t n = -1;
    const char *s;
    assert_int_equal(json_need_int(root, "vocab", 1, 9, &n, "c.json", &e), ERR_CORRUPT);
    assert_string_equal(e.text, "c.json: vocab: wanted an integer, got a string");
    assert_int_equal(json_need_int(root, "heads", 1, 9, &n, "c.json", &e), ERR_CORRUPT);
    assert_string_equal(e.text, "c.json: heads: wanted an integer from 1 to 9, got 99");
    assert_int_equal(json_need_int(root, "layers", 1, 9, &n, "c.json", &e), ERR_CORRUPT);
    assert_string_equal(e.text, "c.json: layers: missing; wanted an integer");
    assert_int_equal(json_need_int(json_get(root, "s"), "x", 1, 9, &n, "c.json", &e), ERR_CORRUPT);
    assert_int_equal(json_need_int(NULL, "x", 1, 9, &n, "c.json", &e), ERR_CORRUPT);
    assert_int_equal(n, -1);
    assert_int_equal(json_need_int(root, "ok", 5, 5, &n, "c.json", &e), OK);
    assert_int_equal(n, 5);
    assert_int_equal(json_need_string(root, "name", &s, "c.json", &e), ERR_CORRUPT);
    assert_int_equal(json_need_string(root, "s", &s, "c.json", &e), OK);
    assert_string_equal(s, "t");
    json_free(root);
}

static void writes_commas_and_escapes(void **state)
{
    (void)state;
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_object(&o, NULL);
    json_put_int(&o, "i", INT64_MIN);
    json_begin_array(&o, "a");
    json_begin_array(&o, NULL);
    json_end_array(&o);
    json_put_string(&o, NULL, "q\"\\\n\x01\xC3\xA9\xFF");
    json_put_bool(&o, NULL, true);
    json_put_null(&o, NULL);
    json_end_array(&o);
    json_put_real(&o, "nan", NAN);
    json_put_real_digits(&o, "pi", 3.14159265358979, 3);
    json_end_object(&o);
    assert_string_equal(str_text(&s),
                        "{\"i\":-9223372036854775808,\"a\":[[],\"q\\\"\\\\\\n\\u0001\xC3\xA9\xEF\xBF\xBD\","
                        "true,null],\"nan\":null,\"pi\":3.14}");
    str_clear(&s);
    o = (struct json_out){.s = &s, .pretty = true};
    json_begin_object(&o, NULL);
    json_put_int(&o, "a", 1);
    json_begin_object(&o, "b");
    json_end_object(&o);
    json_end_object(&o);
    assert_string_equal(str_text(&s), "{\n  \"a\": 1,\n  \"b\": {}\n}");
    str_free(&s);
}

static void reals_read_back_to_the_bit(void **state)
{
    (void)state;
    static const double special[] = {0, -0.0, 0.1, 1e308, DBL_MIN, 5e-324, DBL_MAX, 1.0 / 3, 1e22, 123456789.0};
    for (uint64_t i = 0; i < 3000; i++) {
        union {
            uint64_t bits;
            double x;
        } v = {.bits = rng_u64(1, 2, i)};
        if (i < sizeof special / sizeof *special) v.x = special[i];
        if (!isfinite(v.x)) continue;
        struct str s = {0};
        struct json_out o = {.s = &s};
        json_begin_array(&o, NULL);
        json_put_real(&o, NULL, v.x);
        json_end_array(&o);
        struct json *root;
        struct err e = {0};
        assert_int_equal(json_parse(&root, s.p, s.n, "real", &e), OK);
        double got = json_real(json_at(root, 0), NAN);
        assert_memory_equal(&got, &v.x, sizeof got);
        json_free(root);
        str_free(&s);
    }
}

/* NUL in keys, and a character that is none: no two keys become one. */
static void test_keys_with_nul(void **state)
{
    (void)state;
    static const char text[] = "{\"\\u0000\": 1, \"a\\u0000b\" : {\"\\u0000\\u0000\":\"\\u0000\"}, \"\xF4\x8F\xBF\xBF"
                               "0\": 3, "
                               "\"\\uDBFF\\udfff\": 4, \"\\\\u0000\": 5, \"\": \"\\u0000:\", \"\\\"\\u0000\" \n: 6}";
    static const struct {
        const char *key;
        size_t n;
    } wanted[] = {{"", 1},
                  {"a\0b", 3},
                  {"\xF4\x8F\xBF\xBF"
                   "0",
                   5},
                  {"\xF4\x8F\xBF\xBF", 4},
                  {"\\u0000", 6},
                  {"", 0},
                  {"\"\0", 2}};
    struct json *root;
    struct err e;
    struct str key = {0};
    assert_int_equal(json_parse(&root, text, sizeof text - 1, "k.json", &e), OK);
    size_t i = 0;
    for (void *it = json_iter(root); it; it = json_iter_next(root, it), i++) {
        assert_true(i < 7);
        json_iter_key_text(it, &key);
        assert_int_equal(key.n, wanted[i].n);
        assert_memory_equal(str_text(&key), wanted[i].key, key.n);
    }
    assert_int_equal(i, 7);
    assert_int_equal(json_int(json_get(root, "\xF4\x8F\xBF\xBF"), 0), 4);
    size_t n;
    assert_memory_equal(json_string(json_get(root, ""), &n, NULL), "\0:", 2); /* values are as they were */
    assert_int_equal(n, 2);
    json_free(root);
    static const char twice[] = "{\"\\u0000\": 1, \"\\u0000\": 2}";
    assert_int_equal(json_parse(&root, twice, sizeof twice - 1, "k.json", &e), ERR_CORRUPT);
    static const char *const bad[] = {"{\"\\u0000", "{\"\\u0000\"", "{\"\\u0000\":", "\\u0000", "{\"a\\"};
    for (i = 0; i < 5; i++) assert_int_equal(json_parse(&root, bad[i], strlen(bad[i]), "k.json", &e), ERR_CORRUPT);
    str_free(&key);
}

/* A key with NUL is never a name that somebody knows. */
static void test_names_of_keys_with_nul(void **state)
{
    (void)state;
    static const char text[] = "{\"vocab\\u0000\": 1, \"\\u0000\": 2, \"x\": 3}";
    struct json *root;
    struct err e;
    assert_int_equal(json_parse(&root, text, sizeof text - 1, "k.json", &e), OK);
    void *it = json_iter(root);
    assert_string_equal(json_iter_key(it), "vocab\\u0000");
    assert_string_equal(json_iter_key(it = json_iter_next(root, it)), "\\u0000");
    assert_string_equal(json_iter_key(json_iter_next(root, it)), "x");
    assert_null(json_get(root, "vocab"));
    assert_true(json_holds_nul(root));
    json_free(root);
}

/* Members are found however many there are; of equal keys the first place and the last value stay. */
static void test_many_members(void **state)
{
    (void)state;
    struct str text = {0}, key = {0};
    for (int n = 1; n < 3000; n = n * 3 / 2 + 1) {
        struct json *root;
        struct err e;
        str_clear(&text);
        for (int i = 0; i < 3 * n; i++) str_printf(&text, "%s\"key %d\": %d", i ? ", " : "{", i % n, i);
        str_putc(&text, '}');
        assert_int_equal(json_parse(&root, text.p, text.n, "m.json", &e), ERR_CORRUPT);
        assert_contains(e.text, "duplicate object key");
        assert_int_equal(json_parse_published(&root, text.p, text.n, "m.json", &e), OK);
        assert_int_equal(json_size(root), n);
        int at = 0;
        for (void *it = json_iter(root); it; it = json_iter_next(root, it), at++) {
            str_clear(&key);
            str_printf(&key, "key %d", at);
            assert_string_equal(json_iter_key(it), key.p);
            assert_int_equal(json_int(json_iter_value(it), -1), 2 * n + at);
            assert_ptr_equal(json_get(root, key.p), json_iter_value(it));
        }
        assert_int_equal(at, n);
        str_printf(&key, "0");
        assert_null(json_get(root, key.p));
        assert_null(json_get(root, ""));
        json_free(root);
    }
    str_free(&text);
    str_free(&key);
}

/* Every length around the eight bytes that are copied at once, with each kind of end behind them. */
static void test_texts_of_every_length(void **state)
{
    (void)state;
    static const struct {
        const char *spelt, *meant; /* NULL: refused */
    } ends[] = {{"", ""},
                {"\\u00e9", "\xC3\xA9"},
                {"\\ud83d\\uDE00", "\xF0\x9F\x98\x80"},
                {"\\u20ac", "\xE2\x82\xAC"},
                {"\xC4\xA0", "\xC4\xA0"},
                {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
                {"\\\"\\\\\\/\\b\\f\\n\\r\\t\x7F", "\"\\/\b\f\n\r\t\x7F"},
                {"\\ud83d", NULL},
                {"\\ud83d\\u0041", NULL},
                {"\\ude00", NULL},
                {"\\u00g", NULL},
                {"\\x", NULL},
                {"\x1F", NULL},
                {"\xC0\x80", NULL},
                {"\xE0\x80\x80", NULL},
                {"\xED\xA0\x80", NULL},
                {"\xF4\x90\x80\x80", NULL},
                {"\xE4\xB8", NULL}};
    for (int n = 0; n < 40; n++) {
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            char text[80], want[80];
            struct json *root;
            struct err e;
            size_t got_n;
            snprintf(text, sizeof text, "\"%.*s%s%.*s\"", n, "abcdefghijklmnopqrstuvwxyz !#$%&'()*+,-./0123456789",
                     ends[k].spelt, n % 11, "0123456789ABC");
            int code = json_parse(&root, text, strlen(text), "t.json", &e);
            assert_int_equal(code, ends[k].meant ? OK : ERR_CORRUPT);
            if (code) continue;
            snprintf(want, sizeof want, "%.*s%s%.*s", n, "abcdefghijklmnopqrstuvwxyz !#$%&'()*+,-./0123456789",
                     ends[k].meant, n % 11, "0123456789ABC");
            assert_string_equal(json_string(root, &got_n, ""), want);
            assert_int_equal(got_n, strlen(want));
            json_free(root);
        }
    }
}

static void test_bounds(void **state)
{
    (void)state;
    static char deep[3 * 2049];
    for (int n = 2047; n <= 2049; n++) {
        struct json *root;
        struct err e;
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        assert_int_equal(json_parse(&root, deep, 2 * (size_t)n, "deep", &e), n <= 2048 ? OK : ERR_CORRUPT);
        if (n <= 2048) json_free(root);
    }
    static const char *const bad[] = {"[1 \0]",
                                      "true\0",
                                      "{\"a\": 1\0}",
                                      "[1e400]",
                                      "[-1e999]",
                                      "[NaN]",
                                      "[Infinity]",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "[01]",
                                      "[-]",
                                      "[.5]",
                                      "[+1]",
                                      "[1.e5]",
                                      "{1: 2}",
                                      "[\xEF\xBB\xBF]",
                                      "[9223372036854775808]",
                                      "[-9223372036854775809]",
                                      "tru",
                                      "nulll"};
    static const size_t n_bad[] = {5, 5, 9};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json *root;
        struct err e;
        size_t n = i < 3 ? n_bad[i] : strlen(bad[i]);
        if (json_parse(&root, bad[i], n, "b.json", &e) != ERR_CORRUPT) fail_msg("%s was read", bad[i]);
        assert_contains(e.text, "b.json:1: not valid JSON: ");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_with_nul),
        cmocka_unit_test(test_names_of_keys_with_nul),
        cmocka_unit_test(test_many_members),
        cmocka_unit_test(test_texts_of_every_length),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(reads_every_kind),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(published_documents_are_read_as_they_are),
        cmocka_unit_test(published_documents_are_still_json),
        cmocka_unit_test(required_members_are_checked),
        cmocka_unit_test(writes_commas_and_escapes),
        cmocka_unit_test(reals_read_back_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
