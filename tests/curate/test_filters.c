/* SPDX-License-Identifier: Apache-2.0 */
/* Every filter on texts that lie on both sides of its rules: what is dropped and by which, what is left of the text.
 * Refusals of RULES.yaml with file and line. Texts that are made to take long. */
#include "data/data_test.h"

#include "base/clock.h"
#include "curate/rules.h"
#include "curate/mojibake.h"
#include "sanitized.h"

struct row {
    const char *rules; /* one filter */
    const char *text;
    const char *dropped; /* the rule's name; NULL: kept */
    const char *left;    /* NULL: the text as it was */
};
#define WORDS5 "the cat and the dog "
static const struct row rows[] = {
    {"length: {min_chars: 3}", "\xC3\xA9\xC3\xA9", "chars", NULL},
    {"length: {min_chars: 3}", "\xC3\xA9\xC3\xA9\xC3\xA9", NULL, NULL},
    {"length: {max_bytes: 4}", "\xC3\xA9\xC3\xA9\xC3\xA9", "bytes", NULL},
    {"length: {min_words: 2}", "one\xE2\x80\x83two", NULL, NULL},
    {"length: {max_words: 1}", "one\ntwo", "words", NULL},
    {"length: {max_lines: 2}", "a\r\nb\r\n", NULL, NULL},
    {"length: {max_lines: 2}", "a\n\nb", "lines", NULL},
    {"gopher_quality: {min_words: 5}", WORDS5, NULL, NULL},
    {"gopher_quality: {min_words: 5}", "the cat and dogs", "words", NULL},
    {"gopher_quality: {min_words: 5}", "the cat and dogs --", "words", NULL},
    {"gopher_quality: {min_words: 5, max_words: 6}", WORDS5 WORDS5, "words", NULL},
    {"gopher_quality: {min_words: 5}", "a b c d e the and", "mean_word_length", NULL},
    {"gopher_quality: {min_words: 2}", "incomprehensibilities the and counterrevolutionaries", "mean_word_length",
     NULL},
    {"gopher_quality: {min_words: 5}", WORDS5 "# ", "hashes_per_word", NULL},
    {"gopher_quality: {min_words: 5}", WORDS5 "birds... ", "ellipses_per_word", NULL},
    {"gopher_quality: {min_words: 5}", "- the horses\n - and\n\xE2\x80\xA2 the dogsleds", "bullet_lines", NULL},
    {"gopher_quality: {min_words: 5, max_symbols_per_word: 1}", "the cats...\nand dogs\nbirds\xE2\x80\xA6 \n",
     "ellipsis_lines", NULL},
    {"gopher_quality: {min_words: 5}", WORDS5 "123 456 789", "alphabetic_words", NULL},
    {"gopher_quality: {min_words: 5}", "the cats, dogs or birds", "stop_words", NULL},
    {"gopher_quality: {min_words: 5, min_stop_words: 1, stop_words: [birds]}", "the cats, dogs or birds", NULL, NULL},
    {"gopher_repetition", "one line\n\none line\n\nanother\n\none line", "duplicate_paragraphs", NULL},
    {"gopher_repetition: {max_duplicate_paragraphs: 1}", "one line\n\none line\n\nanother\n\none line",
     "duplicate_paragraph_chars", NULL},
    {"gopher_repetition", "a b\na b\nc d", "duplicate_lines", NULL},
    {"gopher_repetition: {max_duplicate_lines: 1}", "a long line of words\na long line of words\nc",
     "duplicate_line_chars", NULL},
    {"gopher_repetition", "spam eggs and more text of other words spam eggs again here spam eggs", "top_2_gram", NULL},
    {"gopher_repetition: {max_top_n_grams: [1, 1, 1]}", "a b c d e f g h a b c d e f g h", "duplicate_5_grams", NULL},
    {"gopher_repetition: {max_top_n_grams: [1, 1, 1], max_duplicate_n_grams: [1, 1, 1, 1, 1, 0.1]}",
     "a b c d e f g h i j a b c d e f g h i j", "duplicate_10_grams", NULL},
    {"gopher_repetition: {max_top_n_grams: [1, 1, 1], max_duplicate_n_grams: [1, 1, 1, 1, 1, 0.1]}",
     "a b c d e f g h i j a b c d e f g h i k", NULL, NULL},
    {"c4: {min_sentences: 1, min_words: 3}",
     "A line of text.\nno end\nToo short.\nTurn on JavaScript to read this.\n"
     "See the privacy policy of us.\nAnd [12] one [edit] more!",
     NULL, "A line of text.\nAnd  one  more!"},
    {"c4: {min_sentences: 2, min_words: 1}", "It is 3.5 m, see www.example.org.", "sentences", NULL},
    {"c4: {min_sentences: 2, min_words: 1}", "Yes. \"No.\"", NULL, NULL},
    {"c4: {min_sentences: 3, min_words: 1}", "Well... yes?! \"No!\"", "sentences", NULL},
    {"c4: {min_words: 1}", "Lorem Ipsum dolor.", "lorem_ipsum", NULL},
    {"c4: {min_words: 1}", "if (x) { return.", "curly_bracket", NULL},
    {"c4: {min_words: 1, min_sentences: 1, max_word_chars: 5}", "longer words.\nshort ones.", NULL, "short ones."},
    {"fineweb", "a line\nanother line\nthird line", "lines_with_end", NULL},
    {"fineweb", "a.\nb.\nc.", "short_lines", NULL},
    {"fineweb: {short_chars: 2}", "a line of text.\na line of text.", "duplicate_line_chars", NULL},
    {"fineweb: {short_chars: 0, max_duplicate_line_chars: 1}", "a.\nb.\nc.", "line_ends_per_word", NULL},
    {"fineweb: {short_chars: 2}", "\xE3\x81\x93\xE3\x82\x8C\xE3\x80\x82 a b c d\nb c d e f.", NULL, NULL},
    {"symbols", "a+b=c;{}[]", "symbols", NULL},
    {"symbols", "abc 123 12", "digits", NULL},
    {"symbols", "SHOUTING \xC3\x89", "upper_case", NULL},
    {"symbols", "\xD0\xA1\xD0\xBB\xD0\xBE\xD0\xB2\xD0\xBE, 1", NULL, NULL},
    {"stop_words", "red shoes, blue shoes, green shoes", "stop_word_share", NULL},
    {"stop_words", "The cats", "different_stop_words", NULL},
    {"stop_words", "The cat is (of course) here.", NULL, NULL},
    {"repeated_lines", "menu\ntext\n menu \n\n\nother\nmenu", NULL, "menu\ntext\n\n\nother\n"},
    {"repeated_lines: {keep: 2}", "menu\ntext\nmenu\nmenu\n", NULL, "menu\ntext\nmenu\n"},
    {"repeated_lines: {max_share: 0.4}", "menu\nmenu\nmenu\nx", "repeated_lines", NULL},
    {"repeated_lines: {min_chars: 5}", "menu\nmenu\nlonger\nlonger", NULL, "menu\nmenu\nlonger\n"},
    {"unicode", "plain text\tof ASCII\n", NULL, NULL},
    {"unicode", "caf\xC3\x83\xC2\xA9 \xC3\xA2\xE2\x82\xAC\xE2\x84\xA2s", NULL, "caf\xC3\xA9 \xE2\x80\x99s"},
    {"unicode", "caf\xC3\x83\xC6\x92\xC3\x82\xC2\xA9", NULL, "caf\xC3\xA9"}, /* twice */
    {"unicode",
     "\xC3\x90\xC2\xBF\xC3\x91\xE2\x82\xAC\xC3\x90\xC2\xB8\xC3\x90\xC2\xB2\xC3\x90\xC2\xB5\xC3\x91\xE2\x80\x9A", NULL,
     "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82"},
    {"unicode", "CAF\xC3\x89\xE2\x80\x9D, Spa\xC3\x9F\xE2\x80\x9C, \xC2\xAB\xC3\xA0\xC2\xBB \xC3\x83O", NULL,
     NULL}, /* rightly so */
    {"unicode", "na\xEFve \x93quote\x94", NULL, "na\xC3\xAFve \xE2\x80\x9Cquote\xE2\x80\x9D"},
    {"unicode: {bytes: false, max_replacement: 1}", "na\xEFve", NULL, "na\xEF\xBF\xBDve"},
    {"unicode",
     "\xEF\xBB\xBF"
     "a\x01"
     "b\x7F\xC2\x80"
     "c\xEF\xBF\xBE",
     NULL, "abc"},
    {"unicode",
     "a\r\nb\rc\xE2\x80\xA8"
     "d\xC2\x85"
     "e",
     NULL, "a\nb\nc\nd\ne"},
    {"unicode", "e\xCC\x81", NULL, "\xC3\xA9"},
    {"unicode: {form: none}", "e\xCC\x81", NULL, NULL},
    {"unicode: {form: nfkc}", "\xEF\xAC\x81", NULL, "fi"},
    {"unicode", "lost \xEF\xBF\xBD\xEF\xBF\xBD text", "replacement_characters", NULL},
};

static struct rules *rules_of(const char *filter)
{
    struct rules *r;
    struct err e;
    char text[1000];
    snprintf(text, sizeof text, "rules:\n  - %s\n", filter);
    assert_ok(rules_parse(&r, text, strlen(text), "r.yaml", &e), &e);
    return r;
}

static void check(const char *filter, const char *text, size_t n, const char *dropped, const char *left, size_t n_left)
{
    struct rules *r = rules_of(filter);
    struct document d = {.n_chars = -1};
    struct removals t;
    removals_init(&t, r->use, r->n);
    document_set(&d, text, n, &(struct origin){.source = "x"});
    int use = rules_judge(r, &d, &t);
    const char *by = NULL;
    for (int i = 0; use == 0 && i < r->use[0].filter->n_rules; i++)
        if (t.use[0].rule[i].dropped) by = r->use[0].filter->rule[i].name;
    if ((by == NULL) != (dropped == NULL) || (by && strcmp(by, dropped) != 0))
        fail_msg("%s on \"%s\": %s, wanted %s", filter, text, by ? by : "kept", dropped ? dropped : "kept");
    if (!by && (d.text.n != n_left || memcmp(d.text.p, left, n_left) != 0))
        fail_msg("%s on \"%s\" leaves \"%s\", wanted \"%s\"", filter, text, d.text.p, left);
    if (!by && (t.use[0].changed == 1) != (n != n_left || memcmp(text, left, n) != 0))
        fail_msg("%s on \"%s\": counted %d as changed", filter, text, (int)t.use[0].changed);
    removals_fini(&t);
    document_free(&d);
    rules_free(r);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *left = rows[i].left ? rows[i].left : rows[i].text;
        check(rows[i].rules, rows[i].text, strlen(rows[i].text), rows[i].dropped, left, strlen(left));
    }
    check("unicode", "a\0b", 3, NULL, "ab", 2);
    check("c4: {min_sentences: 0}", "", 0, NULL, "", 0);
    check("c4: {min_sentences: 0, min_words: 1}", "a b.\nc d\0", 9, NULL, "a b.", 4); /* a NUL ends no sentence */
}

/* Every letter of Latin-1 and every mark of Windows-1252 comes back from having been read wrongly. */
static void test_every_letter(void **state)
{
    (void)state;
    for (int byte = 0xA0; byte < 0x100; byte++) {
        assert_int_equal(cp1252_byte(cp1252_char((unsigned char)byte)), byte);
        char wrong[20], right[3] = {(char)(0xC0 | byte >> 6), (char)(0x80 | (byte & 63)), 0};
        struct str out = {0}, mended = {0};
        for (int i = 0; i < 2; i++) {
            struct str one = {0};
            mojibake_bytes(right + i, 1, &one);
            str_add(&out, one.p, one.n);
            str_free(&one);
        }
        snprintf(wrong, sizeof wrong, "x%sy", out.p);
        assert_int_equal(mojibake_mend(wrong, strlen(wrong), &mended), 1);
        assert_int_equal(mended.n, 4);
        assert_memory_equal(mended.p + 1, right, 2);
        str_free(&out);
        str_free(&mended);
    }
    for (int byte = 0x80; byte < 0xA0; byte++) assert_int_equal(cp1252_byte(cp1252_char((unsigned char)byte)), byte);
}

static void test_bad_words(void **state)
{
    (void)state;
    char *dir = scratch_new(), rules[400],
         *list = put_text(dir, "w.txt", "# ours\nheck\n what the f*ck \n\xC3\x89t\xC3\xA9\nheck no\n*\n");
    static const struct {
        const char *text;
        bool dropped;
    } texts[] = {{"Oh HECK.", true},
                 {"checkers and hecks", false},
                 {"what the f*ck!", true},
                 {"what the f*cks", false},
                 {"un \xC3\xA9t\xC3\x89", true},
                 {"\xC3\xA9t\xC3\xA9s", false},
                 {"a * b", true},
                 {"nothing", false}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(rules, sizeof rules, "bad_words: {file: %s}", list);
        check(rules, texts[i].text, strlen(texts[i].text), texts[i].dropped ? "bad_words" : NULL, texts[i].text,
              strlen(texts[i].text));
    }
    snprintf(rules, sizeof rules, "bad_words: {file: %s, anywhere: true}", list);
    check(rules, "checkers", 8, "bad_words", "", 0);
    snprintf(rules, sizeof rules, "bad_words: {file: %s, max: 2}", list);
    check(rules, "heck heck", 9, NULL, "heck heck", 9);
    check(rules, "heck heck no heck", 17, "bad_words", "", 0);
    xfree(list);
    scratch_free(dir);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"rules:\n  - lenght\n", "r.yaml:2|'lenght'|did you mean length"},
        {"rules:\n  - nothing_like_it\n", "r.yaml:2|there are unicode, length"},
        {"rules:\n  - length:\n    min_words: 3\n", "r.yaml:2|are its keys indented"},
        {"rules:\n  - unicode\n  - length:\n      min_word: 3\n", "r.yaml:4|rules[1].length.min_word|min_words"},
        {"rules:\n  - length: {min_words: -1}\n", "r.yaml:2|rules[0].length.min_words"},
        {"rules:\n  - length: {min_words: x}\n", "r.yaml:2|min_words|x"},
        {"rules:\n  - length: {min_words: 1, min_words: 2}\n", "r.yaml:2|min_words|twice"},
        {"rules:\n  - length: 5\n", "r.yaml:2|length has keys"},
        {"rules:\n  - [length]\n", "r.yaml:2|an item is a name"},
        {"rules: []\n", "no filter|--help"},
        {"", "rules"},
        {"rule:\n  - length\n", "r.yaml:1|rules"},
        {"rules:\n  - bad_words\n", "r.yaml:2|bad_words.file|required"},
        {"rules:\n  - bad_words: {file: /nowhere}\n", "r.yaml:2|/nowhere"},
        {"rules:\n  - classifier: {model: /nowhere}\n", "r.yaml:2|/nowhere"},
        {"rules:\n  - classifier: {model: /etc/passwd}\n", "r.yaml:2|not a quality model"},
        {"rules:\n  - language: {keep: [xx]}\n", "r.yaml:2|no language xx|de|en"},
        {"rules:\n  - gopher_quality: {stop_words: [a], min_stop_words: 2}\n", "r.yaml:2|min_stop_words is 2 of 1"},
        {"rules:\n  - gopher_repetition: {max_top_n_grams: [1, 2]}\n", "r.yaml:2|max_top_n_grams"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rules *r;
        struct err e = {0};
        int code = rules_parse(&r, bad[i].text, strlen(bad[i].text), "r.yaml", &e);
        assert_err(code, &e, ERR_REQUEST, bad[i].words);
        assert_null(r);
    }
}

/* What rules_print says is the same rules. */
static void test_printed(void **state)
{
    (void)state;
    struct rules *a = rules_of(
                     "gopher_quality: {stop_words: [x, y], min_words: 7}\n  - unicode\n  - repeated_lines: {keep: 3}"),
                 *b;
    struct str text = {0};
    struct err e;
    rules_print(a, &text);
    assert_ok(rules_parse(&b, text.p, text.n, "p.yaml", &e), &e);
    assert_int_equal(b->n, 3);
    assert_true(a->key == b->key);
    rules_free(b);
    str_clear(&text);
    struct rules *c =
        rules_of("gopher_quality: {stop_words: [x, z], min_words: 7}\n  - unicode\n  - repeated_lines: {keep: 3}");
    assert_true(a->key != c->key);
    rules_free(a);
    rules_free(c);
    str_free(&text);
}

/* A MiB of what is one word, one line, one letter, no line, marks, invalid bytes: each filter in proportion. */
static void test_hostile(void **state)
{
    (void)state;
    static const char *const units[] = {"a",        "a ", "\n",  "\xC3\x83\xC2\xA9", "\x80", "\xCC\x81",
                                        "[",        ". ", "a\n", "\xEF\xBF\xBD",     "#...", "\r",
                                        "<script>&"};
    static const char *const all[] =
        {"unicode: {max_replacement: 1}",
         "length",
         "gopher_quality: {min_words: 0, min_mean_word_length: 0, max_mean_word_length: 0}",
         "gopher_repetition: {max_duplicate_paragraphs: 1, max_duplicate_lines: 1, max_duplicate_line_chars: 1, "
         "max_duplicate_paragraph_chars: 1, "
         "max_top_n_grams: [1, 1, 0.99999], max_duplicate_n_grams: [0.9999, 0.9999, 0.9999, 0.9999, 0.9999, 0.9999]}",
         "c4: {min_sentences: 0}",
         "fineweb: {min_lines_with_end: 0, max_short_lines: 1}",
         "symbols: {max_symbols: 1}",
         "stop_words",
         "repeated_lines",
         "language: {min_probability: 0}"};
    size_t most = ((size_t)1 << 20) / CASE_STRIDE / CASE_STRIDE;
    struct document d = {.n_chars = -1};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        struct rules *r = rules_of(all[f]);
        struct removals t;
        removals_init(&t, r->use, r->n);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            struct str text = {0};
            while (text.n < most) str_puts(&text, units[u]);
            double start = clock_thread_s();
            document_set(&d, text.p, text.n, &(struct origin){.source = "x", .index = (int64_t)u});
            rules_judge(r, &d, &t);
            double took = clock_thread_s() - start;
            if (took > 10) fail_msg("%s takes %.1f s for a MiB of %s", all[f], took, units[u]);
            str_free(&text);
        }
        removals_fini(&t);
        rules_free(r);
    }
    document_free(&d);
}

/* What is counted comes back from its JSON, and a sum of parts is the whole. */
static void test_removals(void **state)
{
    (void)state;
    struct rules *r = rules_of("length: {min_chars: 4}\n  - repeated_lines");
    struct removals whole, part[2], back;
    struct document d = {.n_chars = -1};
    removals_init(&whole, r->use, r->n);
    removals_init(&part[0], r->use, r->n);
    removals_init(&part[1], r->use, r->n);
    removals_init(&back, r->use, r->n);
    for (int i = 0; i < 100; i++) {
        char text[60];
        snprintf(text, sizeof text, i % 3 ? "line %d\nline %d\n" : "%d", i, i);
        for (int k = 0; k < 2; k++) {
            document_set(&d, text, strlen(text), &(struct origin){.source = "s", .index = i});
            rules_judge(r, &d, k ? &part[i * 7 % 5 == 0] : &whole);
        }
    }
    removals_add(&part[0], &part[1]);
    struct str a = {0}, b = {0}, c = {0};
    struct removals *const those[] = {&whole, &part[0]};
    for (int i = 0; i < 2; i++) {
        struct json_out j = {.s = i ? &b : &a};
        json_begin_object(&j, NULL);
        removals_write(those[i], &j);
        json_end_object(&j);
    }
    assert_string_equal(a.p, b.p);
    assert_int_equal(whole.use[0].dropped, 34);
    assert_int_equal(whole.use[1].changed, 66);
    struct json *root;
    struct err e;
    assert_ok(json_parse(&root, a.p, a.n, "a", &e), &e);
    assert_ok(removals_read(&back, json_get(root, "filters"), "a", &e), &e);
    struct json_out j = {.s = &c};
    json_begin_object(&j, NULL);
    removals_write(&back, &j);
    json_end_object(&j);
    assert_string_equal(a.p, c.p);
    json_free(root);
    removals_fini(&whole);
    removals_fini(&part[0]);
    removals_fini(&part[1]);
    removals_fini(&back);
    str_free(&a);
    str_free(&b);
    str_free(&c);
    document_free(&d);
    rules_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_every_letter), cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_printed),      cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_removals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
