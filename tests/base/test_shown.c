/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others as a screen may have it: nothing that a terminal obeys comes through, what people write does, and a
 * text that comes in pieces is shown as one that comes at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/shown.h"

static void expect(const char *p, size_t n, bool newlines, const char *wanted)
{
    struct str s = {0};
    shown_put(&s, p, n, newlines);
    if (strcmp(str_text(&s), wanted) != 0) fail_msg("'%s', wanted '%s'", str_text(&s), wanted);
    str_free(&s);
}

static void test_shown(void **state)
{
    (void)state;
    expect("\033]0;mine\007", 9, true, "\\x1b]0;mine\\x07");
    expect("a\nb\tc\r", 6, true, "a\nb\tc\\x0d");
    expect("a\nb\tc", 5, false, "a\\nb\\x09c");
    expect("\0\x7f", 2, true, "\\x00\\x7f");
    expect("\xC2\x9B"
           "31m",
           5, true, "\\x9b31m"); /* CSI in one character */
    expect("\x9B"
           "31m",
           4, true, "\\x9b31m"); /* and in one byte */
    expect("\xE2\x80\xAE"
           "fdp",
           6, true, "\\u202efdp"); /* from right to left */
    expect("\xE2\x81\xA6x", 4, true, "\\u2066x");
    expect("gr\xC3\xBC\xC3\x9F \xE4\xBD\xA0\xF0\x9F\x98\x80", 14, true,
           "gr\xC3\xBC\xC3\x9F \xE4\xBD\xA0\xF0\x9F\x98\x80");
    expect("\xE4\xBD", 2, true, "\\xe4\\xbd"); /* cut */
    expect("\xC0\xAF\xED\xA0\x80\xFF", 6, true, "\\xc0\\xaf\\xed\\xa0\\x80\\xff");
}

/* Whatever is put in, what comes out has no such byte, and the same in pieces. */
static void test_any_bytes(void **state)
{
    (void)state;
    uint64_t x = 7;
    for (int i = 0; i < 2000; i++) {
        char p[40];
        struct str whole = {0}, parts = {0}, held = {0};
        for (size_t k = 0; k < sizeof p; k++) {
            static const char some[] = "\033\x9B\xC2\x9B\xE2\x80\xAE\xF0\x9F\x98\x80 a\n\xC3\xBC";
            x = x * 6364136223846793005u + 1442695040888963407u;
            p[k] = x >> 62 ? some[(x >> 33) % (sizeof some - 1)] : (char)(x >> 33);
        }
        shown_put(&whole, p, sizeof p, true);
        for (size_t k = 0; k < whole.n; k++) {
            unsigned char c = (unsigned char)whole.p[k];
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) fail_msg("a control character comes through");
            if (c == 0xC2 && (unsigned char)whole.p[k + 1] < 0xA0) fail_msg("an upper control character comes through");
        }
        for (size_t at = 0, n; at < sizeof p; at += n) {
            n = 1 + (size_t)(x >> 40) % 5;
            x = x * 6364136223846793005u + 1;
            if (n > sizeof p - at) n = sizeof p - at;
            str_add(&held, p + at, n);
            size_t rest = shown_rest(held.p, held.n);
            assert_true(rest < 4);
            shown_put(&parts, held.p, held.n - rest, true);
            memmove(held.p, held.p + held.n - rest, rest);
            held.n = rest;
        }
        shown_put(&parts, str_text(&held), held.n, true);
        assert_string_equal(str_text(&whole), str_text(&parts));
        str_free(&whole);
        str_free(&parts);
        str_free(&held);
    }
}

/* JSON spells the same characters in its own way, and reads back as it was. */
static void test_json(void **state)
{
    (void)state;
    struct str s = {0}, shown = {0};
    struct json *v;
    struct err e = {0};
    const char *text = "\033[31m\xC2\x9B\xE2\x80\xAE\x7f gr\xC3\xBC";
    json_put_string(&(struct json_out){.s = &s}, NULL, text);
    shown_put(&shown, s.p, s.n, true);
    assert_string_equal(str_text(&s), str_text(&shown));
    struct str list = {0};
    str_printf(&list, "[%s]", str_text(&s));
    if (json_parse(&v, list.p, list.n, "here", &e)) fail_msg("%s", e.text);
    assert_string_equal(json_string(json_at(v, 0), NULL, ""), text);
    json_free(v);
    str_free(&s);
    str_free(&shown);
    str_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shown), cmocka_unit_test(test_any_bytes),
                                       cmocka_unit_test(test_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
