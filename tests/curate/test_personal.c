/* SPDX-License-Identifier: Apache-2.0 */
/* Personal data: what is found and what looks like it and is left; every single wrong digit of a checked number; marks
 * in hostile texts, in time that grows with the text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"
#include "curate/personal.h"
#include "sanitized.h"

static void mask(const char *text, bool private_ips, struct str *out)
{
    struct personal_scan s = {.private_ips = private_ips};
    size_t from, to, done = 0, n = strlen(text);
    enum personal kind;
    for (int i = 0; i < N_PERSONAL; i++) s.wanted[i] = true;
    str_clear(out);
    while (personal_next(&s, text, n, &from, &to, &kind)) {
        assert_true(from >= done && to > from && to <= n && to - from <= PERSONAL_LONGEST);
        str_add(out, text + done, from - done);
        str_puts(out, personal_marks[kind]);
        done = to;
    }
    str_puts(out, text + done);
}

static void becomes(const char *text, const char *want)
{
    struct str out = {0};
    mask(text, false, &out);
    if (strcmp(str_text(&out), want)) fail_msg("'%s' became '%s', not '%s'", text, str_text(&out), want);
    str_free(&out);
}

static void found(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"write to jane.doe+x@mail.example.org.", "write to [EMAIL]."},
        {"<a@b.io>, 'c_d@e-f.co.uk';", "<[EMAIL]>, '[EMAIL]';"},
        {"mailto:x%y@xn--bcher-kva.example", "mailto:[EMAIL]"},
        {"first@one.com,second@two.net", "[EMAIL],[EMAIL]"},
        {"\xE9\x82\xAE\xE7\xAE\xB1\xEF\xBC\x9Auser@qq.com\xE3\x80\x82",
         "\xE9\x82\xAE\xE7\xAE\xB1\xEF\xBC\x9A[EMAIL]\xE3\x80\x82"},
        {"from 8.8.8.8 to 93.184.216.34:443", "from [IP] to [IP]:443"},
        {"at 2606:2800:220:1:248:1893:25c8:1946.", "at [IP]."},
        {"[2a00:1450:4001:81b::200e]:80", "[[IP]]:80"},
        {"call +49 30 1234567 or +1 (212) 555-0199.", "call [PHONE] or [PHONE]."},
        {"+442079460958", "[PHONE]"},
        {"(212) 555-0123, 212-555-0123, 1-212-555-0123, 212.555.0123", "[PHONE], [PHONE], [PHONE], [PHONE]"},
        {"Tel.: 030/123456-78", "Tel.: [PHONE]"},
        {"phone 06 12 34 56 78", "phone [PHONE]"},
        {"card 4111 1111 1111 1111, exp. 12/29", "card [CARD], exp. 12/29"},
        {"5500-0000-0000-0004 340000000000009 6011000000000004", "[CARD] [CARD] [CARD]"},
        {"3530111333300000 30569309025904", "[CARD] [CARD]"},
        {"DE89 3704 0044 0532 0130 00.", "[IBAN]."},
        {"GB29NWBK60161331926819 and FR1420041010050500013M02606", "[IBAN] and [IBAN]"},
        {"IdNr 86095742719, 86 095 742 719", "IdNr [ID], [ID]"},
        {"NIR 255081416802538; 2 55 08 14 168 025 38", "NIR [ID]; [ID]"},
        {"DNI 12345678Z, NIE X1234567L", "DNI [ID], NIE [ID]"},
        {"CF RSSMRA85T10A562S", "CF [ID]"},
        {"CPF 529.982.247-25", "CPF [ID]"},
        {"PESEL 44051401359", "PESEL [ID]"},
        {"pnr 811218-9876, hetu 131052-308T, 010594Y9032", "pnr [ID], hetu [ID], [ID]"},
        {"11010519491231002X", "[ID]"},
        {"Aadhaar 2341 2341 2346", "Aadhaar [ID]"},
        {"NHS 943 476 5919", "NHS [ID]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) becomes(rows[i][0], rows[i][1]);
    struct str out = {0};
    mask("10.0.0.1 ::1 8.8.4.4", true, &out);
    assert_string_equal(out.p, "[IP] ::1 [IP]"); /* one group is no address, whatever is asked for */
    str_free(&out);
}

static void left(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "@app.route('/x') def f(): a @ b",
        "user@localhost is no address",
        "a@b",
        "a@b.c",
        "x@-y.com",
        "@",
        "a.@b.com.1",
        "std::vector<int>::size_type a::b::c",
        "12:34:56 on 2024-01-31",
        "aa:bb:cc:dd:ee:ff",
        "::1 fe80::1 2001:db8::1",
        "192.168.0.1 10.1.2.3 127.0.0.1 224.0.0.1",
        "version 4.2.1.7 and v. 1.2.3.4",
        "1.2.3.4.5",
        "256.1.1.1 01.2.3.4",
        "1.2.3",
        "3.14159265358979 and 0.4111111111111111",
        "ISBN 978-3-16-148410-0",
        "$1,234,567,890",
        "4111 1111 1111 1112",
        "1234567890123456",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "41111111111111111111111",
        "DE88 3704 0044 0532 0130 00",
        "XX89 3704 0044 0532 0130 00",
        "DE89 3704 0044",
        "2024-05-17 17.05.2024",
        "3 +12345678",
        "f(x) +49301234567",
        "+0 123 456 789",
        "+1",
        "112-555-0123",
        "212-155-0123",
        "212-555-01234",
        "3212-555-0123",
        "pages 123-456-7890-12",
        "12345678A",
        "X1234567A",
        "86095742718",
        "44051401358",
        "529.982.247-26",
        "811218-9877",
        "131052-308U",
        "110105194912310021",
        "2341 2341 2347",
        "943 476 5918",
        "RSSMRA85T10A562T",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "0x8.8.8.8f",
        "a8.8.8.8",
        "x44051401359y",
        "id_44051401359",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) becomes(rows[i], rows[i]);
}

/* Luhn, 97 and Verhoeff notice any one wrong digit; so do mod 11 and its like. */
static void wrong_digits(void **state)
{
    (void)state;
    static const char *const numbers[] = {"4111 1111 1111 1111",
                                          "5500-0000-0000-0004",
                                          "DE89 3704 0044 0532 0130 00",
                                          "GB29NWBK60161331926819",
                                          "2341 2341 2346",
                                          "943 476 5919",
                                          "86095742719",
                                          "11010519491231002X",
                                          "44051401359"};
    struct str out = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", numbers[i]);
        for (char *p = text; *p; p++) {
            char right = *p;
            for (char c = '0'; c <= '9' && right >= '0' && right <= '9'; c++) {
                *p = c;
                mask(text, false, &out);
                bool masked = strstr(str_text(&out), "[CARD]") || strstr(str_text(&out), "[IBAN]") ||
                              strstr(str_text(&out), "[ID]");
                if (masked != (c == right)) fail_msg("'%s' became '%s'", text, str_text(&out));
            }
            *p = right;
        }
    }
    str_free(&out);
    assert_true(personal_luhn("79927398713", 11) && !personal_luhn("79927398710", 11));
    assert_int_equal(personal_mod97("3214282912345698765432161182", 28), 1);
}

/* Of numbers drawn by chance few pass. */
static void by_chance(void **state)
{
    (void)state;
    struct str out = {0};
    uint64_t x = 88172645463325252u;
    int n = 0;
    enum { DRAWS = 20000 / CASE_STRIDE };
    for (int i = 0; i < DRAWS; i++) {
        char text[32];
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        snprintf(text, sizeof text, "%016llu", (unsigned long long)(x % 10000000000000000u));
        text[8 + i % 9] = 0;
        mask(text, false, &out);
        n += strchr(str_text(&out), '[') != NULL;
    }
    printf("  of %d plain numbers of 8 to 16 digits %d are taken for somebody's\n", DRAWS, n);
    assert_true(n * 100 < 2 * DRAWS);
    str_free(&out);
}

static void hostile(void **state)
{
    (void)state;
    static const char *const units[] = {"@",    "a@",    "a.",   "a@b.", "1",      "1 ",  "1.",  "1-",
                                        ":",    "a:",    "1:",   "+1",   "+1 ",    "(",   "(1)", "4111 1111 1111 1111 ",
                                        "DE89", "Tel 1", "\xFF", "\xC3", "a@b.co", "::1", "12-", "D"};
    enum { BYTES = (1 << 20) / CASE_STRIDE };
    struct str text = {0}, out = {0};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        str_clear(&text);
        while (text.n < BYTES) str_puts(&text, units[i]);
        clock_t from = clock();
        mask(text.p, true, &out);
        double s = (double)(clock() - from) / CLOCKS_PER_SEC;
        if (s > 2) fail_msg("%.1f s for %d bytes of '%s'", s, BYTES, units[i]);
    }
    str_free(&text);
    str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(left), cmocka_unit_test(wrong_digits),
                                       cmocka_unit_test(by_chance), cmocka_unit_test(hostile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
