/* SPDX-License-Identifier: Apache-2.0 */
/* test_normal_form.c: normal forms of every code point and of mixtures against digests of the reference's
 * (make_normal_forms.py), in parts as at once, in linear time; grapheme clusters; lower case and the sets beside it.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "data_test.h"
#include "sanitized.h"
#include "text/normal_form.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"

static const struct {
    enum normal_form form;
    uint64_t points, mixed;
} reference[] = {
    {NORMAL_NFC, 0xca5438bd3c7d48b9u, 0x9183854d9fa5e85cu},
    {NORMAL_NFD, 0x5dfc38ab78a774fdu, 0xfa1e70f27954b692u},
    {NORMAL_NFKC, 0x7ce88776dc08263du, 0x0ceaaec16861c47du},
    {NORMAL_NFKD, 0xb8eb7f01eee9ebcfu, 0x9f8678cba5705d81u},
};

static const struct range mixed_ranges[] =
    {{0x20, 0x7E},       {0xA0, 0x24F},    {0x300, 0x36F},     {0x591, 0x5C7},   {0x610, 0x6DC},     {0x8D0, 0x8FF},
     {0x93C, 0x9D7},     {0xB3C, 0xBD7},   {0xC4D, 0xD57},     {0xF71, 0xFB9},   {0x1026, 0x1037},   {0x1100, 0x11FF},
     {0x1E00, 0x1FFF},   {0x2000, 0x206F}, {0x2100, 0x218F},   {0x2460, 0x24FF}, {0x3040, 0x30FF},   {0x3131, 0x318E},
     {0xAC00, 0xAC40},   {0xF900, 0xFB4F}, {0xFE20, 0xFE2F},   {0xFF01, 0xFFEE}, {0x11099, 0x110BA}, {0x1D15E, 0x1D172},
     {0x1F100, 0x1F251}, {0x32FF, 0x32FF}, {0x11935, 0x11938}, {0x1DC0, 0x1DFF}};

static void put(struct str *s, uint32_t code)
{
    unsigned char utf8[4];
    str_add(s, utf8, (size_t)utf8_put(utf8, code));
}

static void form_into(struct hash64 *h, enum normal_form form, const struct str *text)
{
    struct str out = {0};
    normal_form(&out, form, (const unsigned char *)text->p, text->n);
    hash64_add(h, str_text(&out), out.n);
    str_free(&out);
}

static void test_every_code_point(void **state)
{
    (void)state;
    if (SANITIZED) skip();
    for (size_t f = 0; f < sizeof reference / sizeof *reference; f++) {
        struct hash64 h;
        struct str s = {0};
        hash64_init(&h);
        for (uint32_t c = 1; c <= UNICODE_MAX; c++) {
            if (c >= 0xD800 && c < 0xE000) continue;
            str_clear(&s);
            str_putc(&s, 'a');
            put(&s, c);
            put(&s, 0x334);
            form_into(&h, reference[f].form, &s);
            str_clear(&s);
            put(&s, 0x300);
            put(&s, c);
            form_into(&h, reference[f].form, &s);
        }
        str_free(&s);
        if (hash64_value(&h) != reference[f].points) fail_msg("form %zu: other forms than the reference", f);
    }
}

static uint64_t next(uint64_t *seed) { return *seed = *seed * 6364136223846793005u + 1442695040888963407u; }

static void mixture(struct str *s, uint64_t *seed)
{
    str_clear(s);
    for (uint64_t left = 1 + (next(seed) >> 33) % 12; left; left--) {
        uint64_t r = next(seed);
        const struct range *x = &mixed_ranges[(r >> 33) % (sizeof mixed_ranges / sizeof *mixed_ranges)];
        put(s, x->lo + (uint32_t)((r >> 40) % (x->hi - x->lo + 1)));
    }
}

static void test_mixtures(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof reference / sizeof *reference; f++) {
        struct hash64 h;
        struct str s = {0};
        uint64_t seed = 17;
        hash64_init(&h);
        for (int i = 0; i < 20000; i++) {
            mixture(&s, &seed);
            form_into(&h, reference[f].form, &s);
            hash64_add(&h, "\n", 1);
        }
        str_free(&s);
        if (hash64_value(&h) != reference[f].mixed) fail_msg("form %zu: other forms than the reference", f);
    }
}

/* The text brought `part` bytes at a time, what is not done brought again. */
static void in_parts(struct str *out, enum normal_form form, const struct str *text, size_t part)
{
    size_t at = 0, have = 0;
    while (have < text->n) {
        have = have + part < text->n ? have + part : text->n;
        const unsigned char *p = (const unsigned char *)text->p + at;
        size_t valid = utf8_run(p, have - at);
        size_t used = normal_form_part(out, form, p, valid, have == text->n);
        assert_true(used <= valid);
        at += used;
    }
    assert_int_equal(at, text->n);
}

static void test_parts_do_not_matter(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct str s = {0}, whole = {0}, parts = {0};
    for (int i = 0; i < 4000 / CASE_STRIDE; i++) {
        enum normal_form form = (enum normal_form)(i % 4);
        mixture(&s, &seed);
        if (i % 100 == 0) /* more marks than are kept together */
            for (int k = 0; k < NORMAL_MARKS_MAX + 50; k++) put(&s, k % 2 ? 0x300 : 0x323);
        str_clear(&whole);
        str_clear(&parts);
        normal_form(&whole, form, (const unsigned char *)s.p, s.n);
        in_parts(&parts, form, &s, i % 100 == 0 ? 997 : 1 + (size_t)i % 7);
        assert_int_equal(parts.n, whole.n);
        assert_memory_equal(str_text(&parts), str_text(&whole), whole.n);
    }
    str_free(&s);
    str_free(&whole);
    str_free(&parts);
}

/* A megabyte of marks in the worst order takes no longer than ordinary text would, give or take. */
static void test_hostile_marks(void **state)
{
    (void)state;
    struct str s = {0}, out = {0};
    while (s.n < 1 << 20) put(&s, s.n % 3 ? 0x300 : 0x334);
    double from = clock_thread_s();
    normal_form(&out, NORMAL_NFC, (const unsigned char *)s.p, s.n);
    assert_true(clock_thread_s() - from < 10);
    assert_int_equal(out.n, s.n);
    str_free(&s);
    str_free(&out);
}

static void test_graphemes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t end;
    } rows[] = {{"ab", 1},
                {"a\xCC\x81z", 3},
                {"\r\nx", 2},
                {"\n\r", 1},
                {"\xF3\xA0\x82\xB2\xCC\x81", 4},
                {"\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9z", 11},
                {"\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\xF0\x9F\x87\xA9", 8},
                {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8q", 9}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(grapheme_end((const unsigned char *)rows[i].text, strlen(rows[i].text), true), rows[i].end);
    assert_int_equal(grapheme_end((const unsigned char *)"a", 1, false), 0);
    struct str s = {0};
    while (s.n < 2 * GRAPHEME_MAX) put(&s, 0x301);
    size_t end = grapheme_end((const unsigned char *)s.p, s.n, false);
    assert_true(end >= GRAPHEME_MAX && end < GRAPHEME_MAX + 4);
    str_free(&s);
}

static void test_sets(void **state)
{
    (void)state;
    assert_int_equal(unicode_lower_of('A'), 'a');
    assert_int_equal(unicode_lower_of('['), '[');
    assert_int_equal(unicode_lower_of(0xC9), 0xE9);
    assert_int_equal(unicode_lower_of(0xD7), 0xD7);
    assert_int_equal(unicode_lower_of(0x1C4), 0x1C6);
    assert_int_equal(unicode_lower_of(0x1E9E), 0xDF);
    assert_int_equal(unicode_lower_of(0x10400), 0x10428);
    assert_true(unicode_in(LEGACY_YOUNG, 0x32FF));
    assert_false(unicode_in(LEGACY_YOUNG, 0x32FE));
    assert_true(unicode_in(LEGACY_CONTROL, 0x200B));
    assert_true(unicode_in(LEGACY_NONSPACING, 0x301));
    assert_false(unicode_in(LEGACY_NONSPACING, 0x903)); /* spacing */
    assert_true(unicode_in(LEGACY_MARK, 0x903));
    assert_true(unicode_in(LEGACY_PUNCTUATION, '$'));
    assert_false(unicode_in(LEGACY_PUNCTUATION, 0x20AC));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),    cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_parts_do_not_matter), cmocka_unit_test(test_hostile_marks),
        cmocka_unit_test(test_graphemes),           cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
